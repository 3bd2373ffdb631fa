"""A state as objects under a URL: S3, Google's and Azure's storage and the like, and HDFS.

Objects are there as a whole when a request returns, and are never changed: what is added is a new
object. Where two programs must not both succeed, `create` and `exchange` let one of them win.
Requests that fail or stall are made again, for as long as the storage is waited for.
"""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from muntin.errors import StateError, StorageError
from muntin.store.patience import Trying, has_answered
from muntin.store.requests import (
    SECONDS,
    AbsentError,
    RefusedError,
    RequestError,
    Requests,
    Tag,
    TakenError,
)

if TYPE_CHECKING:
    from muntin.store.buckets import Bucket
    from muntin.store.hdfs import Hdfs

PATIENCE = 60.0  # seconds for which a storage that fails or stalls is waited for
_SIDE_BY_SIDE = 8
_AT_ONCE = 1 << 20  # bytes that are fetched as a whole
T = TypeVar("T")


@dataclass(frozen=True)
class ObjectStorage:
    """The objects under a URL, with credentials from where other programs look for them, too."""

    url: str
    patience: float = PATIENCE
    told: tuple[tuple[str, str], ...] = ()  # what is no secret, for processes that may not know it
    begins: bool = field(default=False, compare=False)  # made by a command, from what it was given
    appends = False
    needs_sync = False

    @classmethod
    def at(cls, url: str) -> ObjectStorage:
        """The storage as this process knows it, wherever it is sent."""
        return cls(url, told=_kind(url).known(url), begins=True)

    def __reduce__(self) -> tuple[type[ObjectStorage], tuple[Any, ...]]:
        """Whoever is sent it is in the middle of a run."""
        return ObjectStorage, (self.url, self.patience, self.told)

    def __str__(self) -> str:
        return self.url

    def where(self, name: str = "") -> str:
        return f"{self.url}/{name}" if name else self.url

    def within(self, folder: str) -> ObjectStorage:
        return replace(self, url=f"{self.url}/{folder}")

    def options(self) -> dict[str, str] | None:
        """What deltalake is to know, of a storage that has been reached: it says less if not."""
        if self.begins and not has_answered(self.url):
            self.size("_delta_log")
        return self._requests.options(self.patience)

    def patiently(self, use: Callable[[], T]) -> T:
        def used() -> T:
            try:
                return use()
            except StateError as error:
                for each in _causes(error):
                    if (reason := self._requests.passing(each)) is not None:
                        raise RequestError(reason) from error
                raise

        return self._do("used", "", used)

    @property
    def _requests(self) -> Requests:
        return _opened(self.url, min(SECONDS, self.patience), self.told)

    def read(self, name: str) -> bytes:
        return self._do("read", name, lambda: self._requests.get(name))

    def read_all(self, names: Sequence[str]) -> Iterator[bytes]:
        if len(names) < 2:
            yield from map(self.read, names)
            return
        with ThreadPoolExecutor(_SIDE_BY_SIDE, thread_name_prefix="muntin-read") as threads:
            for start in range(0, len(names), _SIDE_BY_SIDE):
                yield from threads.map(self.read, names[start : start + _SIDE_BY_SIDE])

    def read_range(self, name: str, start: int, end: int) -> bytes:
        """The bytes of an object between two places."""
        return self._do("read", name, lambda: self._requests.get_range(name, start, end))

    def open(self, name: str) -> pa.NativeFile:
        size = self.size(name)
        if size is None or size <= _AT_ONCE:
            return pa.BufferReader(self.read(name))
        return pa.PythonFile(_Ranges(self, name, size), mode="r")

    def put(self, name: str, data: bytes) -> None:
        self._do("written", name, lambda: self._requests.put(name, data))

    def append(self, name: str, data: bytes) -> int:
        raise NotImplementedError("objects are never changed")

    def create(self, name: str, data: bytes) -> Tag | None:
        """Makes an object that nobody has made yet, and returns its tag; None if there is one.

        What is made has to differ from what others make, so that after a lost answer it is known
        whose it is.
        """
        return self._decide(name, data, lambda: self._requests.create(name, data))

    def exchange(self, name: str, data: bytes, tag: Tag) -> Tag | None:
        """Puts an object in the place of one with this tag; None if there is another by now."""
        return self._decide(name, data, lambda: self._requests.exchange(name, data, tag))

    def _decide(self, name: str, data: bytes, request: Callable[[], Tag]) -> Tag | None:
        try:
            return self._do("written", name, request)
        except _LostError:
            found = self.tagged(name)  # which may be ours, if it was its answer that was lost
            return found[1] if found is not None and found[0] == data else None

    def tagged(self, name: str) -> tuple[bytes, Tag] | None:
        """An object with its tag, if there is one."""
        try:
            return self._do("read", name, lambda: self._requests.tagged(name))
        except _AbsentError:
            return None

    @contextmanager
    def output(self, name: str) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(prefix="muntin-") as folder:
            path = Path(folder) / Path(name).name
            yield path
            if path.exists():
                self._do("written", name, lambda: self._requests.put(name, path))

    def names(self, folder: str) -> list[str]:
        return sorted(self._listed(folder)[0])

    def folders(self, folder: str) -> list[str]:
        return sorted(self._listed(folder)[1])

    def _listed(self, folder: str) -> tuple[list[str], list[str]]:
        return self._do("listed", folder, lambda: self._requests.listed(folder))

    def size(self, name: str) -> int | None:
        try:
            return self._do("read", name, lambda: self._requests.size(name))
        except _AbsentError:
            return None

    def sizes(self, folder: str) -> dict[str, int]:
        found = self._do("listed", folder, lambda: self._requests.sizes(folder))
        return dict(sorted(found.items()))

    def remove(self, names: Iterable[str]) -> None:
        several = list(names)
        if several:
            with suppress(_AbsentError):
                self._do("removed", several[0], lambda: self._requests.delete(several))

    def sweep(self, folders: Sequence[str], before: float) -> None:
        self._do("listed", "", lambda: self._requests.sweep(folders, before))

    def sync(self, names: Iterable[str]) -> None:
        """Nothing is left to do: a request returns when an object will stay."""

    def above(self, folder: str) -> list[str]:
        return []

    def _do(self, done: str, name: str, request: Callable[[], T]) -> T:
        """Makes a request until it succeeds, is refused, or the storage was waited for enough."""
        trying = Trying(self.url, self.patience, self.begins)
        while True:
            try:
                with trying.watched():
                    answer = request()
            except RequestError as error:
                if isinstance(error, RefusedError):
                    trying.answered()
                elif trying.failed(str(error.__cause__ or error), str(error)):
                    continue
                place = self.where(name)
                if isinstance(error, TakenError):
                    raise _LostError(f"{place} is there already") from error
                kind = _AbsentError if isinstance(error, AbsentError) else StorageError
                raise kind(f"{place} cannot be {done}: {error}") from error
            trying.answered()
            return answer


class _Ranges(io.RawIOBase):
    """A large object, of which what is asked for is fetched: often its end alone."""

    def __init__(self, storage: ObjectStorage, name: str, size: int) -> None:
        super().__init__()
        self._storage = storage
        self._name = name
        self._size = size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        begin = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        self._at = begin + offset
        return self._at

    def read(self, size: int = -1) -> bytes:
        end = self._size if size < 0 else min(self._size, self._at + size)
        if end <= self._at:
            return b""
        data = self._storage.read_range(self._name, self._at, end)
        self._at = end
        return data


class _LostError(StateError):
    """Another program has written first."""


class _AbsentError(StateError):
    """There is no such object."""


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


@lru_cache(256)
def _opened(url: str, seconds: float, told: tuple[tuple[str, str], ...]) -> Requests:
    """One client a process for each storage."""
    return _kind(url).at(url, seconds, dict(told))


def _kind(url: str) -> type[Bucket] | type[Hdfs]:
    """Whom to ask, of which the library is loaded now."""
    if url.startswith("hdfs://"):
        from muntin.store.hdfs import Hdfs

        return Hdfs
    from muntin.store.buckets import Bucket

    return Bucket
