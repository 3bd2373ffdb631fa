"""Where a state is: a folder, or objects under a URL. Files have names relative to it.

A storage is a value that may be sent to tasks, which then open the same files. It holds no secrets:
every process finds credentials where it runs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from muntin.errors import InputError, StateError
from muntin.store import disk

if TYPE_CHECKING:
    import pyarrow as pa

ABANDONED_SECONDS = 3600.0  # after which, while a run goes on, nobody writes what is not whole
_SCHEMES = ("s3", "s3a", "gs", "abfs", "abfss", "az", "hdfs")
T = TypeVar("T")


class Storage(Protocol):
    """The files of one state. What cannot be read or written is a StateError that names it."""

    @property
    def appends(self) -> bool:
        """Whether files can be added to; otherwise, what is added is a new file."""

    @property
    def needs_sync(self) -> bool:
        """Whether what was written may be gone after a power cut, unless it was synced."""

    def where(self, name: str = "") -> str:
        """The path or URL of a file, as people and other programs know it."""

    def within(self, folder: str) -> Storage:
        """A folder in here as a storage of its own."""

    def options(self) -> dict[str, str] | None:
        """What deltalake has to be told to open tables in here."""

    def patiently(self, use: Callable[[], T]) -> T:
        """What comes of using a table in here, which is done again if deltalake has not waited for
        a storage that failed; so it must not matter if it is done twice.
        """

    def read(self, name: str) -> bytes:
        """All of a file."""

    def read_all(self, names: Sequence[str]) -> Iterator[bytes]:
        """Several files, in this order; where it takes long, some are read ahead."""

    def open(self, name: str) -> pa.NativeFile:
        """A file to be read here and there."""

    def put(self, name: str, data: bytes) -> None:
        """Makes a file, or replaces it; readers see all of it or none."""

    def append(self, name: str, data: bytes) -> int:
        """Adds to a file that is there, and returns its length; after an error it is as before."""

    def output(self, name: str) -> AbstractContextManager[Path]:
        """Gives a path to write a new file to, which is there after the block, or not at all."""

    def names(self, folder: str) -> list[str]:
        """The names of files right in a folder, in order; none if there is no folder."""

    def folders(self, folder: str) -> list[str]:
        """The names of folders right in a folder, in order."""

    def size(self, name: str) -> int | None:
        """How long a file is, or None if there is none."""

    def sizes(self, folder: str) -> dict[str, int]:
        """The files in a folder and in the folders in there, by name within it, with lengths."""

    def remove(self, names: Iterable[str]) -> None:
        """Removes files; those that are not there are none to remove."""

    def sweep(self, folders: Sequence[str], before: float) -> None:
        """Removes what programs or tasks that were killed have left half-written, listed to nobody.

        It is right in here or anywhere in these folders, and was not touched since `before`, in
        seconds since 1970. Who writes it after all writes it again.
        """

    def sync(self, names: Iterable[str]) -> None:
        """Returns when files and folders will outlast a power cut."""

    def above(self, folder: str) -> list[str]:
        """A folder with those that it is in: what to sync once it is new."""


Place = str | Path | Storage


def storage_of(place: Place) -> Storage:
    """The storage at a path or URL."""
    if isinstance(place, Path):
        return LocalFolder(place)
    if not isinstance(place, str):
        return place
    scheme, separator, rest = place.partition("://")
    if not separator:
        return LocalFolder(Path(place))
    if scheme == "file":
        return LocalFolder(Path(rest))
    if scheme in _SCHEMES and rest.strip("/"):
        from muntin.store.objects import ObjectStorage

        return ObjectStorage.at(place.rstrip("/"))
    raise InputError(
        f"{place} is no place for a state; give a folder, or s3://BUCKET/PATH, gs://BUCKET/PATH, "
        "abfs://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH or hdfs://HOST:PORT/PATH"
    )


def place_of(place: Place) -> str:
    """Where a state is, for somebody who is elsewhere."""
    storage = storage_of(place)
    return str(storage.path().resolve()) if isinstance(storage, LocalFolder) else storage.where()


@dataclass(frozen=True)
class LocalFolder:
    """A folder of this machine, or one that all machines have under the same path."""

    root: Path
    appends = True
    needs_sync = True

    def __reduce__(self) -> tuple[type[LocalFolder], tuple[Path]]:
        return LocalFolder, (self.root.absolute(),)  # whoever gets it may work in another folder

    def __str__(self) -> str:
        return str(self.root)

    def where(self, name: str = "") -> str:
        return str(self.path(name))

    def path(self, name: str = "") -> Path:
        return self.root / name if name else self.root

    def within(self, folder: str) -> LocalFolder:
        return LocalFolder(self.root / folder)

    def options(self) -> dict[str, str] | None:
        return None

    def patiently(self, use: Callable[[], T]) -> T:
        return use()

    def read(self, name: str) -> bytes:
        try:
            return self.path(name).read_bytes()
        except OSError as error:
            raise StateError(f"{self.path(name)} cannot be read: {error.strerror}") from error

    def read_all(self, names: Sequence[str]) -> Iterator[bytes]:
        return map(self.read, names)

    def open(self, name: str) -> pa.NativeFile:
        import pyarrow as pa  # which takes long to load, and nobody needs to know who has a state

        try:
            return pa.OSFile(str(self.path(name)))
        except OSError as error:
            reason = error.strerror or "it is damaged"
            raise StateError(f"{self.path(name)} cannot be read: {reason}") from error

    def put(self, name: str, data: bytes) -> None:
        path = self.path(name)
        hidden = path.with_name(f".{path.name}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with hidden.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            hidden.rename(path)
        except OSError as error:
            raise StateError(f"{path} cannot be written: {error.strerror}") from error

    def append(self, name: str, data: bytes) -> int:
        path = self.path(name)
        try:
            with path.open("r+b", buffering=0) as file:  # which makes none where one was taken away
                before = file.seek(0, os.SEEK_END)
                try:
                    if file.write(data) != len(data):
                        raise OSError(28, os.strerror(28))  # the disk is full
                    return file.tell()
                except BaseException:
                    file.truncate(before)
                    raise
        except OSError as error:
            raise StateError(f"{path} cannot be written: {error.strerror}") from error

    @contextmanager
    def output(self, name: str) -> Iterator[Path]:
        path = self.path(name)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            yield path
        except BaseException:
            path.unlink(missing_ok=True)
            raise

    def names(self, folder: str) -> list[str]:
        return sorted(e.name for e in self._entries(folder) if not e.is_dir())

    def folders(self, folder: str) -> list[str]:
        return sorted(e.name for e in self._entries(folder) if e.is_dir())

    def _entries(self, folder: str) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(self.path(folder)) as entries:
                return list(entries)
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise StateError(f"{self.path(folder)} cannot be read: {error.strerror}") from error

    def size(self, name: str) -> int | None:
        try:
            return self.path(name).stat().st_size
        except OSError:
            return None

    def sizes(self, folder: str) -> dict[str, int]:
        found = {}
        for path in sorted(self.path(folder).rglob("*")):
            if path.is_file():
                found[str(path.relative_to(self.path(folder)))] = path.stat().st_size
        return found

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            try:
                self.path(name).unlink(missing_ok=True)
            except OSError as error:
                raise StateError(
                    f"{self.path(name)} cannot be removed: {error.strerror}"
                ) from error

    def sweep(self, folders: Sequence[str], before: float) -> None:
        """Nothing: files have their own names from the beginning, and go as strays."""

    def sync(self, names: Iterable[str]) -> None:
        disk.sync(self.root.parent if name == ".." else self.path(name) for name in names)

    def above(self, folder: str) -> list[str]:
        parts = folder.split("/") if folder else []
        return ["/".join(parts[:n]) for n in range(len(parts), -1, -1)] + [".."]
