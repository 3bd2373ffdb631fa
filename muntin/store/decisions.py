"""What decides that a batch is final: one record more, which is there as a whole or not at all.

In a folder, records are added to a file, and only one process has the folder. Under a URL, each is
an object with a number, and of two programs that both write a number one is refused. Whoever takes
a state over writes a number first, which stays, so that whoever had it before, and does not know
yet, is refused with the next.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast
from uuid import uuid4

from muntin.errors import StateError
from muntin.store import tape
from muntin.store.holder import Holder
from muntin.store.storage import Storage

if TYPE_CHECKING:
    from muntin.store.objects import ObjectStorage

_ATTEMPTS = 20
_CLAIMS = 1000  # that stay


class Decisions(Protocol):
    """The records of a stream that count: a first one with everything, and what came after it."""

    def newest(self) -> list[bytes]:
        """The records since everything was last written; none if nothing was."""

    def claim(self) -> None:
        """Makes sure that no other program decides from here on."""

    def begin(self, batch: int, record: bytes) -> None:
        """Writes everything: records of before count no more."""

    def add(self, record: bytes) -> None:
        """Writes what has changed."""

    def move_from(self, folder: Storage) -> None:
        """Has all files of another stream, of which nothing is left there; or none."""

    def unneeded(self) -> list[str]:
        """The files with records that count no more."""

    def require_newest(self) -> None:
        """Raises a StateError if somebody else has decided meanwhile."""


def decisions_in(folder: Storage) -> Decisions:
    return Tapes(folder) if folder.appends else Numbered(cast("ObjectStorage", folder))


class Tapes:
    """Files `state-BATCH.tape`: the one with the highest number counts."""

    def __init__(self, folder: Storage) -> None:
        self._folder = folder
        self._name = ""

    def newest(self) -> list[bytes]:
        while names := self._names():
            try:
                data = self._folder.read(names[-1])
                return list(tape.records_in(data, self._folder.where(names[-1])))
            except StateError:
                if self._folder.size(names[-1]) is not None:
                    raise  # otherwise a newer one has just taken its place
        return []

    def _names(self) -> list[str]:
        names = self._folder.names("")
        return [name for name in names if name.startswith("state-") and name.endswith(".tape")]

    def claim(self) -> None:
        pass

    def begin(self, batch: int, record: bytes) -> None:
        self._name = f"state-{batch:09}.tape"
        self._folder.put(self._name, tape.framed([record]))
        self._folder.sync([""])

    def add(self, record: bytes) -> None:
        self._folder.append(self._name, tape.framed([record]))
        self._folder.sync([self._name])

    def move_from(self, folder: Storage) -> None:
        try:
            Path(folder.where()).rename(self._folder.where())
        except OSError as error:
            raise StateError(f"{folder} cannot be renamed: {error.strerror}") from error

    def unneeded(self) -> list[str]:
        return self._names()[:-1]

    def require_newest(self) -> None:
        pass


class Numbered:
    """Objects `state-NUMBER`, each of which says with which number its records begin."""

    def __init__(self, folder: ObjectStorage) -> None:
        self._folder = folder
        self._last = self._first = -1
        self._claims: set[int] = set()  # without records, among those since the first
        self._floor = -1  # below which there is nothing but claims

    def newest(self) -> list[bytes]:
        for attempt in range(_ATTEMPTS):
            names = self._names()
            if not names:
                return []
            try:
                return self._since(_number(names[-1]))
            except StateError:
                if attempt == _ATTEMPTS - 1 or self._names()[-1:] == names[-1:]:
                    raise  # otherwise newer ones have just taken their place
        raise AssertionError("unreachable")

    def _since(self, last: int) -> list[bytes]:
        """The records up to a number, whose own number and first one are remembered."""
        head, records = self._parts(last, self._folder.read(_name(last)))
        numbers = list(range(head["first"], last))
        earlier = self._folder.read_all([_name(n) for n in numbers])
        parts = {n: self._parts(n, data)[1] for n, data in zip(numbers, earlier, strict=True)}
        parts[last] = records
        self._claims = {number for number, each in parts.items() if not each}
        self._floor = head["first"] if self._floor < 0 else self._floor
        self._first, self._last = head["first"], last
        return [record for each in parts.values() for record in each]

    def _parts(self, number: int, data: bytes) -> tuple[dict[str, Any], list[bytes]]:
        place = self._folder.where(_name(number))
        head, *records = tape.records_in(data, place, len(data))
        return json.loads(head), records

    def _names(self) -> list[str]:
        names = self._folder.names("")
        return [name for name in names if name.startswith("state-") and name[6:].isdigit()]

    def claim(self) -> None:
        for _ in range(_ATTEMPTS):
            self.newest()
            number = self._last + 1
            first = self._first if self._first >= 0 else number
            if self._folder.create(_name(number), self._made(first)) is not None:
                self._claims.add(number)
                self._floor = first
                self._first, self._last = first, number
                return
        raise StateError(f"{self._folder}: others write to it all the time; stop them first")

    def begin(self, batch: int, record: bytes) -> None:
        self._decide(self._last + 1, record)

    def add(self, record: bytes) -> None:
        self._decide(self._first, record)

    def _decide(self, first: int, record: bytes) -> None:
        number = self._last + 1
        if self._folder.create(_name(number), self._made(first, record)) is None:
            raise StateError(self._lost(number))
        self._first, self._last = first, number

    def _made(self, first: int, *records: bytes) -> bytes:
        head = {"first": first, "by": str(Holder.own()), "mark": uuid4().hex}
        return tape.framed([json.dumps(head).encode(), *records])

    def move_from(self, folder: Storage) -> None:
        old = Numbered(cast("ObjectStorage", folder))
        old.claim()  # so that nobody goes on there
        records, files = old.newest(), list(folder.sizes(""))
        for name in files:
            if not name.startswith("state-"):
                self._folder.put(name, folder.read(name))
        self.newest()
        number = self._last + 1  # somebody may have claimed the folder and saved nothing
        if self._folder.create(_name(number), self._made(number, *records)) is None:
            raise StateError(self._lost(number))
        self._first = self._last = number
        folder.remove(name for name in files if name != _name(old._last))

    def _lost(self, number: int) -> str:
        found = self._folder.tagged(_name(number))
        by = "another program"
        if found is not None:
            by = str(self._parts(number, found[0])[0].get("by", by))
        return (
            f"the state {self._folder} was taken over by {by}, so this run stops; what it has "
            "committed stays, and the other one goes on from there"
        )

    def unneeded(self) -> list[str]:
        before = [n for n in map(_number, self._names()) if n < self._first]
        claims = [n for n in before if n < self._floor or n in self._claims]
        stays = set(claims[-_CLAIMS:])
        return [_name(n) for n in before if n not in stays]

    def require_newest(self) -> None:
        if self._folder.size(_name(self._last + 1)) is not None:
            raise StateError(self._lost(self._last + 1))


def _number(name: str) -> int:
    return int(name.removeprefix("state-"))


def _name(number: int) -> str:
    return f"state-{number:012}"
