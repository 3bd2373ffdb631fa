"""Which file is which, while logs are renamed, cut, copied and replaced under our eyes.

A file is the one we know if it still has the bytes around the place where reading stopped.
Its inode only says where to look first. Records carry their time, so logs that differ at all
differ in these bytes.
"""

from __future__ import annotations

import errno
import os
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from muntin.errors import InputError

MARK_BYTES = 256
_BLOCK_BYTES = 64 << 10

Key = tuple[int, int]  # device and inode


@dataclass(frozen=True)
class Mark:
    """The inode of a file, and the checksum of its last bytes before `end`."""

    inode: int
    end: int
    crc: int


@dataclass(frozen=True)
class FilePosition:
    """How far one file has been read: bytes, or row groups of a Parquet file."""

    source: str
    path: str
    device: int
    inode: int
    position: int = 0
    mark_end: int = 0
    mark_crc: int = 0

    @property
    def key(self) -> Key:
        return self.device, self.inode

    @property
    def mark(self) -> Mark:
        return Mark(self.inode, self.mark_end, self.mark_crc)


def checksum(file: BinaryIO, end: int) -> int:
    """The checksum of the last bytes before `end`, for a mark."""
    start = max(0, end - MARK_BYTES)
    file.seek(start)
    return zlib.crc32(file.read(end - start))


def holds(file: BinaryIO, mark: Mark) -> bool:
    """Whether a file has the marked bytes, wherever it came from."""
    size = os.fstat(file.fileno()).st_size
    return size >= mark.end and checksum(file, mark.end) == mark.crc


def mark_start(file: BinaryIO) -> Mark:
    """A mark for a file of which nothing was read yet."""
    stat = os.fstat(file.fileno())
    end = min(stat.st_size, MARK_BYTES)
    return Mark(stat.st_ino, end, checksum(file, end))


def last_line_end(file: BinaryIO, start: int, size: int) -> int:
    """The end of the last complete line in `[start, size)`, or `start` if there is none."""
    end = size
    while end > start:
        begin = max(start, end - _BLOCK_BYTES)
        file.seek(begin)
        found = file.read(end - begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        end = begin
    return start


def find_inode(path: Path, inode: int) -> Path | None:
    """Where a file has been renamed to: in its folder or its link's, in one in there or beside."""
    return next((other for other, found in _near(path) if found == inode), None)


def open_inode(path: Path, inode: int) -> BinaryIO:
    """Opens the very file that was seen at the path, also if it was renamed a moment ago."""
    with suppress(FileNotFoundError):
        file = path.open("rb")
        if os.fstat(file.fileno()).st_ino == inode:
            return file
        file.close()
    moved = find_inode(path, inode)
    if moved is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    return moved.open("rb")


def open_marked(path: Path, mark: Mark | None) -> BinaryIO:
    """Opens a file that was looked at before, wherever it was renamed to, or a copy beside it.

    A file that was cut or rewritten since is refused: its bytes are not those that were meant.
    """
    if mark is None:
        return path.open("rb")
    with suppress(FileNotFoundError):
        file = path.open("rb")
        if holds(file, mark):
            return file
        file.close()
    renamed = find_inode(path, mark.inode)
    copies = [other for other, _ in _beside(path)]
    for other in [renamed, *copies] if renamed else copies:
        with suppress(OSError):
            file = other.open("rb")
            if holds(file, mark):
                return file
            file.close()
    what = "was cut or rewritten" if path.exists() else "was removed"
    raise InputError(f"{path} {what} before it was read")


def _beside(path: Path) -> Iterator[tuple[Path, int]]:
    """The files of a path's folder, and of its link's, with their inodes."""
    for folder in _folders(path):
        yield from _files(folder)


def _near(path: Path) -> Iterator[tuple[Path, int]]:
    """The same, and then the files of folders in there and of folders beside it.

    A file keeps its inode only where it stays on its device.
    """
    yield from _beside(path)
    for folder in _folders(path):
        for around in (folder, folder.parent):
            with suppress(OSError), os.scandir(around) as entries:
                for entry in entries:
                    if entry.is_dir() and entry.stat().st_dev == around.stat().st_dev:
                        yield from _files(Path(entry.path))


def _folders(path: Path) -> Iterable[Path]:
    return dict.fromkeys((path.parent, path.resolve().parent))


def _files(folder: Path) -> Iterator[tuple[Path, int]]:
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            # Not entry.inode(): on overlay file systems it may differ from stat's.
            with suppress(FileNotFoundError):
                if entry.is_file():
                    yield Path(entry.path), entry.stat().st_ino
