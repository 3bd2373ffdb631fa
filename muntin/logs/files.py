"""Which file is which, while logs are renamed, cut, copied and replaced under our eyes.

A file is the one that was read if it still has the bytes that end where reading stopped. Its
inode says where to look first. Records carry their time, so two logs that differ do so there.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from muntin.errors import InputError

_MARK_BYTES = 256
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
    start = max(0, end - _MARK_BYTES)
    file.seek(start)
    return zlib.crc32(file.read(end - start))


def holds(path: Path, mark: Mark) -> bool:
    """Whether a file has the marked bytes, wherever it came from."""
    with path.open("rb") as file:
        return _holds(file, mark)


def find_inode(path: Path, inode: int) -> Path | None:
    """Where a file has been renamed to within its folder, or within its link's."""
    for folder in dict.fromkeys((path.parent, path.resolve().parent)):
        for other, found in _inodes(folder):
            if found == inode:
                return other
    return None


def open_marked(path: Path, mark: Mark | None) -> BinaryIO:
    """Opens a file that was looked at before, also if it was renamed since.

    A file that was cut or rewritten in between is refused: its bytes are not those planned.
    """
    file = _open_inode(path, mark.inode) if mark is not None else path.open("rb")
    if mark is None or _holds(file, mark):
        return file
    file.close()
    raise InputError(f"{path} was cut or rewritten before it was read")


def last_line_end(path: Path, start: int, size: int) -> int:
    """The end of the last complete line in `[start, size)`, or `start` if there is none."""
    with path.open("rb") as file:
        end = size
        while end > start:
            begin = max(start, end - _BLOCK_BYTES)
            file.seek(begin)
            found = file.read(end - begin).rfind(b"\n")
            if found >= 0:
                return begin + found + 1
            end = begin
    return start


def _open_inode(path: Path, inode: int) -> BinaryIO:
    with suppress(FileNotFoundError):
        file = path.open("rb")
        if os.fstat(file.fileno()).st_ino == inode:
            return file
        file.close()
    # Replaced and nowhere to be found: what is there now may be a copy, so the mark decides.
    return (find_inode(path, inode) or path).open("rb")


def _inodes(folder: Path) -> Iterator[tuple[Path, int]]:
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            # Not entry.inode(): on overlay file systems it may differ from stat's.
            with suppress(FileNotFoundError):
                if entry.is_file():
                    yield Path(entry.path), entry.stat().st_ino


def _holds(file: BinaryIO, mark: Mark) -> bool:
    size = os.fstat(file.fileno()).st_size
    return size >= mark.end and checksum(file, mark.end) == mark.crc
