"""Which file is which, while logs are renamed, cut, copied and replaced meanwhile.

A file is the one we know if it still has the bytes around the place where reading stopped.
Its inode only says where to look first. Records carry their time, so logs that differ at all
mostly differ in these bytes; where a file is searched for them, whole lines are.
"""

from __future__ import annotations

import errno
import io
import os
import zlib
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from tempfile import TemporaryFile
from typing import BinaryIO, NamedTuple, cast

from muntin.errors import InputError
from muntin.fidelity.score import EVER
from muntin.logs.gunzip import BLOCK_BYTES, Gunzip, is_gzip

PRINT_BYTES = 256
_BLOCK_BYTES = 64 << 10
_NEWLINE = ord("\n")
_BACK_BYTES = 1 << 10  # before where reading stopped: by what is there an overwritten log is known
_LINES_BYTES = 16 << 10  # in which the last lines have to begin by which an edited log is known
_SEARCHED_BYTES = 1 << 30  # of a log, at most, to find them

Key = tuple[int, int]  # device and inode


@dataclass(frozen=True)
class Fingerprint:
    """The inode of a file, the checksum of its last bytes before `end`, and that of its first.

    Lines may end alike, so that of the last whole lines is known, too, unless they are too long.
    """

    inode: int
    end: int
    crc: int
    head_end: int = 0
    head_crc: int = 0
    last_size: int = 0
    last_hash: str = ""


@dataclass(frozen=True)
class FilePosition:
    """How far one file has been read: bytes, or row groups of a Parquet file.

    A copy of a file that is still there is not read as long as that is so.
    """

    source: str
    path: str
    device: int
    inode: int
    position: int = 0
    print_end: int = 0
    print_crc: int = 0
    head_end: int = 0  # first bytes of the text, by which compressed copies are known
    head_crc: int = 0
    skip: int = 0  # bytes of the text of a gzip file that were read before it was compressed
    seen: int = 0  # bytes there were when it was handed out last
    modified: int = 0  # when that was written, in nanoseconds
    since: int | None = None  # how far its source had come then, in time; None: it was new
    original: int = 0  # the inode of the file that this is a copy of
    back_crc: int = 0  # of bytes a bit before these, by which it is known if they are overwritten
    last_size: int = 0  # of the last whole lines before that place, by which an edited log is known
    last_hash: str = ""
    again: bool = False  # it has the name of a log that was read, and may have what that had

    @property
    def key(self) -> Key:
        return self.device, self.inode

    @property
    def fingerprint(self) -> Fingerprint:
        known = self.print_end, self.print_crc, self.head_end, self.head_crc
        return Fingerprint(self.inode, *known, self.last_size, self.last_hash)


def written_until(modified: int | None) -> int:
    """Behind what was written last, in microseconds; a file without a time may be of any."""
    return modified + 1 if modified else EVER


def is_absence(error: OSError) -> bool:
    """Whether an error says that nothing is there, and not that it cannot be looked at."""
    return error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)


def checksum(file: BinaryIO, end: int, size: int = PRINT_BYTES) -> int:
    """The checksum of the last bytes before `end`, for a fingerprint."""
    start = max(0, end - size)
    file.seek(start)
    return zlib.crc32(file.read(end - start))


class Prints(NamedTuple):
    """By what a file is known once it was read up to a place."""

    print_crc: int  # of the last bytes
    back_crc: int = 0  # of some a bit before them; 0 where these would be among the first
    last_size: int = 0  # of the last lines, of which the first has its time; 0 if they are too long
    last_hash: str = ""


def prints(file: BinaryIO, end: int) -> Prints:
    """What is known of a file by its bytes before `end`."""
    start = max(0, end - _LINES_BYTES)
    file.seek(start)
    text = file.read(end - start)
    back = text[-_BACK_BYTES - PRINT_BYTES : -_BACK_BYTES]
    behind_first = end >= _BACK_BYTES + 2 * PRINT_BYTES
    last = _last_lines(text, start == 0)
    return Prints(
        zlib.crc32(text[-PRINT_BYTES:]),
        zlib.crc32(back) if behind_first else 0,
        len(last),
        _hash(last) if last else "",
    )


def _last_lines(text: bytes, is_all: bool) -> bytes:
    """Whole lines at the end of a text, of as many bytes as a fingerprint at least."""
    if not text.endswith(b"\n"):
        return b""
    before = text.rfind(b"\n", 0, max(0, len(text) - PRINT_BYTES))
    begin = before + 1 if before >= 0 else 0 if is_all and len(text) >= PRINT_BYTES else len(text)
    return text[begin:]


def _hash(text: bytes) -> str:
    return blake2b(text, digest_size=12).hexdigest()


def holds(file: BinaryIO, known: Fingerprint) -> bool:
    """Whether a file has the bytes of a fingerprint, wherever it came from."""
    if os.fstat(file.fileno()).st_size < known.end or checksum(file, known.end) != known.crc:
        return False
    file.seek(known.end - known.last_size)
    return not known.last_size or _hash(file.read(known.last_size)) == known.last_hash


def is_overwritten(file: BinaryIO, known: FilePosition) -> bool:
    """Whether a file may be the one that was read, with other bytes just before that place.

    It begins as it did, is no shorter, and a line ends where one did. One that was cut and written
    anew, by somebody who begins all of his logs alike, could be taken for that only if it has come
    to the same place; so it must have been looked at a moment ago, or be known by what it `keeps`.
    """
    size = os.fstat(file.fileno()).st_size
    if known.head_end < PRINT_BYTES or known.print_end < 2 * PRINT_BYTES:
        return False
    if size < max(known.print_end, known.seen) or known.print_end != known.position:
        return False
    file.seek(0)
    begins_alike = zlib.crc32(file.read(known.head_end)) == known.head_crc
    file.seek(known.print_end - 1)
    return begins_alike and file.read(1) == b"\n"


def place_of_last(file: BinaryIO, known: FilePosition) -> int | None:
    """Where the last lines end that were read of another file, if this has them, and once.

    Lines before them may be others than they were: somebody has edited a log.
    """
    size, found = known.last_size, []
    if not size or known.position != known.print_end:
        return None
    if os.fstat(file.fileno()).st_size > _SEARCHED_BYTES:
        return None
    file.seek(0)
    at, last = 0, b"\n"  # what was read before, and before all the end of a line
    while block := file.read(_BLOCK_BYTES):
        text, end = last + block, block.find(b"\n")
        while end >= 0:
            stop = len(last) + end + 1
            begins = stop > size and text[stop - size - 1] == _NEWLINE
            if begins and _hash(text[stop - size : stop]) == known.last_hash:
                found.append(at + end + 1)
            end = block.find(b"\n", end + 1)
        at += len(block)
        last = text[-size - 1 :]
    return found[0] if len(found) == 1 else None


def keeps(file: BinaryIO, known: FilePosition) -> bool:
    """Whether a file has the bytes that were read a bit before the last ones."""
    return known.back_crc != 0 and prints(file, known.print_end).back_crc == known.back_crc


def first_print(file: BinaryIO) -> Fingerprint:
    """The fingerprint of a file of which nothing was read yet."""
    stat = os.fstat(file.fileno())
    end = min(stat.st_size, PRINT_BYTES)
    return Fingerprint(stat.st_ino, end, checksum(file, end))


def last_line_end(file: BinaryIO, start: int, size: int) -> int:
    """The end of the last complete line in `[start, size)`, or `start` if there is none."""
    end = size
    while end > start:
        begin = max(start, end - _BLOCK_BYTES)
        file.seek(begin)
        newline = file.read(end - begin).rfind(b"\n")
        if newline >= 0:
            return begin + newline + 1
        end = begin
    return start


def open_inode(path: Path, inode: int) -> BinaryIO:
    """Opens the very file that was seen at the path, also if it was renamed a moment ago."""
    with suppress(FileNotFoundError):
        file = path.open("rb")
        if os.fstat(file.fileno()).st_ino == inode:
            return file
        file.close()
    moved = Surroundings().find(path, inode)
    if moved is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    return moved.open("rb")


def open_same(path: Path, known: Fingerprint | None) -> BinaryIO:
    """Opens a file that was looked at before, wherever it was renamed to, or a copy beside it.

    A file that was cut or rewritten since is refused: its bytes are not those that were meant.
    """
    if known is None:
        return path.open("rb")
    with suppress(FileNotFoundError):
        file = path.open("rb")
        if holds(file, known):
            return file
        file.close()
    near = Surroundings()
    others = list(filter(None, [near.find(path, known.inode), *near.beside(path)]))
    for other in others:
        with suppress(OSError):
            file = other.open("rb")
            if holds(file, known):
                return file
            file.close()
    for other in others if not is_gzip(path) else ():
        with suppress(OSError):
            text = _unpacked(other, known) if is_gzip(other) else None
            if text is not None:
                return text
    what = "was cut or rewritten" if path.exists() else "was removed"
    raise InputError(f"{path} {what} before it was read")


def _unpacked(path: Path, known: Fingerprint) -> BinaryIO | None:
    """The text of a compressed file up to the end of a fingerprint, if that is of it."""
    text = cast(BinaryIO, TemporaryFile())  # noqa: SIM115
    with path.open("rb") as file:
        members = io.BufferedReader(Gunzip(file, 0, None), BLOCK_BYTES)
        first = members.read(known.head_end)
        text.write(first)
        left = known.end - len(first) if zlib.crc32(first) == known.head_crc else 0
        while left and (block := members.read(min(left, BLOCK_BYTES))):
            text.write(block)
            left -= len(block)
    text.flush()
    if holds(text, known):
        return text
    text.close()
    return None


class Surroundings:
    """What lies near files, each folder looked into once."""

    def __init__(self) -> None:
        self._files = cache(_files)
        self._inner = cache(_inner)

    def find(self, path: Path, inode: int, printed: bool = True) -> Path | None:
        """Where a file has been renamed to: in its folder or its link's, in one in there or beside.

        It keeps its inode only where it stays on its device. One without a fingerprint, by which
        to tell it from another that has its inode now, is looked for in its own folder alone.
        """
        folders = _folders(path)
        around = [*folders, *(folder.parent for folder in folders)] if printed else []
        searched = chain(folders, chain.from_iterable(map(self._inner, around)))
        paths = (self._files(folder).get(inode) for folder in searched)
        return next(filter(None, paths), None)

    def beside(self, path: Path) -> list[Path]:
        """The files of a path's folder, and of its link's."""
        return [file for folder in _folders(path) for file in self._files(folder).values()]

    def around(self, path: Path) -> list[Path]:
        """The same, and the files of folders in there; others may be of other servers."""
        folders = _folders(path)
        searched = chain(folders, chain.from_iterable(map(self._inner, folders)))
        return [file for folder in searched for file in self._files(folder).values()]


def _folders(path: Path) -> list[Path]:
    return list(dict.fromkeys((path.parent, path.resolve().parent)))


def _inner(folder: Path) -> list[Path]:
    """The folders in a folder that are on its device."""
    folders = []
    for entry in _entries(folder):
        with suppress(OSError):
            if entry.is_dir() and entry.stat().st_dev == folder.stat().st_dev:
                folders.append(Path(entry.path))
    return folders


def _files(folder: Path) -> dict[int, Path]:
    """The files of a folder by their inodes."""
    paths: dict[int, Path] = {}
    for entry in _entries(folder):
        # Not entry.inode(): on overlay file systems it may differ from stat's.
        with suppress(OSError):
            if entry.is_file():
                paths.setdefault(entry.stat().st_ino, Path(entry.path))
    return paths


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    with suppress(OSError), os.scandir(folder) as entries:
        return list(entries)
    return []
