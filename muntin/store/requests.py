"""What a storage under a URL can be asked for, one request at a time, and what may come of one.

A request is made once: who makes it again, and for how long, is up to `objects`. Names are relative
to a URL. Errors say in a few words what the storage says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

SECONDS = 20.0  # for one request, at the most
LONGEST_PAUSE = 3.0  # seconds before it is made again


class RequestError(Exception):
    """Nothing came of a request; the next one may succeed."""


class RefusedError(RequestError):
    """No such request will succeed."""


class AbsentError(RefusedError):
    """There is no such object."""


class TakenError(RefusedError):
    """There is such an object already, or another one than was expected."""


class Tag(NamedTuple):
    """Which version of an object one has: storages compare the one or the other."""

    e_tag: str | None
    version: str | None

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Tag:
        return cls(told["e_tag"], told["version"])


class Requests(Protocol):
    """Those of one URL. All but `get` and what lists raise a RefusedError only if nothing was done,
    or if it was done by a request of before whose answer was lost.
    """

    def options(self, patience: float) -> dict[str, str] | None:
        """What deltalake has to be told to open tables in here."""

    def passing(self, error: BaseException) -> str | None:
        """What deltalake means if it has met a fault that passes, and has not waited for that."""

    def get(self, name: str) -> bytes:
        """All of an object."""

    def get_range(self, name: str, start: int, end: int) -> bytes:
        """The bytes of an object between two places."""

    def tagged(self, name: str) -> tuple[bytes, Tag]:
        """All of an object, which may have been exchanged, with its tag."""

    def put(self, name: str, data: bytes | Path) -> None:
        """Makes an object of bytes or of a file, or replaces one; others see all of it or none."""

    def create(self, name: str, data: bytes) -> Tag:
        """Makes an object; a TakenError if there is one."""

    def exchange(self, name: str, data: bytes, tag: Tag) -> Tag:
        """Replaces an object that has this tag; a TakenError if it has another, or is gone."""

    def size(self, name: str) -> int:
        """How long an object is."""

    def listed(self, folder: str) -> tuple[list[str], list[str]]:
        """The last parts of the names of objects right in a folder, and of folders."""

    def sizes(self, folder: str) -> dict[str, int]:
        """All objects in a folder, by their names within it."""

    def delete(self, names: Sequence[str]) -> None:
        """Removes objects; that one is not there may be an AbsentError."""

    def sweep(self, folders: Sequence[str], before: float) -> None:
        """Removes what was left half-written, right under the URL or anywhere in these folders, and
        was not touched since `before`, in seconds since 1970.
        """
