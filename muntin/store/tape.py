"""Files to which records are added: each record is there as a whole or not at all.

Before a record stand its length and its checksum, so that one that was cut off, when the program
was killed or the disk was full, is told from one that is whole. What is written never changes.
Who needs it to survive a power cut syncs the file and its folder.
"""

from __future__ import annotations

import errno
import os
import struct
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from muntin.errors import StateError

_HEAD = struct.Struct("<QI")  # length and checksum
START = _HEAD.size  # bytes before a record


def add(path: Path, records: Iterable[bytes]) -> int:
    """Adds records to a file; returns how long it is then.

    After an error it is as long as before.
    """
    try:
        with path.open("r+b", buffering=0) as file:  # which makes none where one was taken away
            before = file.seek(0, os.SEEK_END)
            try:
                data = framed(records)
                if file.write(data) != len(data):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                return file.tell()
            except BaseException:
                file.truncate(before)
                raise
    except OSError as error:
        raise StateError(f"{path} cannot be written: {error.strerror}") from error


def create(path: Path, records: Iterable[bytes]) -> int:
    """Makes a file with these records, which nobody sees before it is whole and on disk."""
    hidden = path.with_name(f".{path.name}")
    try:
        with hidden.open("wb") as file:
            file.write(framed(records))
            length = file.tell()
            file.flush()
            os.fsync(file.fileno())
        hidden.rename(path)
    except OSError as error:
        raise StateError(f"{path} cannot be written: {error.strerror}") from error
    return length


def read(path: Path, upto: int | None = None) -> Iterator[bytes]:
    """The whole records of a file; up to a length, before which there must be nothing else.

    Without a length, what was cut off at the end was never written; before that, all must be whole.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise StateError(f"{path} cannot be read: {error.strerror}") from error
    yield from records_in(data, str(path), upto)


def records_in(content: bytes, place: str, upto: int | None = None) -> Iterator[bytes]:
    """The same of what a file holds, wherever it is."""
    data = memoryview(content)
    at, end = 0, len(data) if upto is None else upto
    while at < end and (record := _record(data, at)) is not None:
        yield bytes(record)
        at += _HEAD.size + len(record)
    if at != upto if upto is not None else not at or _goes_on(data, at):
        raise StateError(f"{place} is damaged at byte {at:,}")


def is_damaged_at_end(content: bytes) -> bool:
    """Whether behind the last whole record there is another that was whole once.

    What was cut off when it was written is shorter than it says, or ends with zeros.
    """
    data, at = memoryview(content), 0
    while (record := _record(data, at)) is not None:
        at += length(record)
    if at + _HEAD.size > len(data) or not data[-1]:
        return False
    size, checksum = _HEAD.unpack_from(data, at)
    rest = data[at + _HEAD.size :]
    return bool(size <= len(rest) or zlib.crc32(rest) == checksum)


def places(path: Path) -> Iterator[tuple[int, bytes]]:
    """The records of a file, as `read` has them, and where they begin."""
    start = 0
    for record in read(path):
        yield start, record
        start += length(record)


def at(path: Path, starts: Iterable[int]) -> Iterator[bytes]:
    """The records that begin at some places, one after another."""
    try:
        with path.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            for start in starts:
                file.seek(start)
                size, _ = _HEAD.unpack(file.read(_HEAD.size).ljust(_HEAD.size, b"\0"))
                file.seek(start)
                record = _record(memoryview(file.read(min(end, _HEAD.size + size))), 0)
                if record is None:
                    raise StateError(f"{path} is damaged at byte {start:,}")
                yield bytes(record)
    except OSError as error:
        raise StateError(f"{path} cannot be read: {error.strerror}") from error


def whole(data: bytes) -> bytes:
    """The record that some bytes of a file are; a ValueError if they are none, or not whole."""
    record = _record(memoryview(data), 0)
    if record is None or length(record) != len(data):
        raise ValueError("its checksum does not fit what is in it")
    return bytes(record)


def size_at(start: bytes) -> int:
    """How much of a file a record takes, by the `START` bytes before it."""
    return _HEAD.size + int(_HEAD.unpack(start)[0])


def length(record: bytes | memoryview) -> int:
    """How much of a file a record takes."""
    return _HEAD.size + len(record)


def _record(data: memoryview, at: int) -> memoryview | None:
    """The record at a place, if there is a whole one."""
    if at + _HEAD.size > len(data):
        return None
    length, checksum = _HEAD.unpack_from(data, at)
    record = data[at + _HEAD.size : at + _HEAD.size + length]
    # Zeros are what a power cut may leave, and no record is empty.
    is_whole = 0 < length == len(record) and zlib.crc32(record) == checksum
    return record if is_whole else None


def _goes_on(data: memoryview, at: int) -> bool:
    """Whether a whole record follows on one that is not: then nothing was cut off."""
    return any(_record(data, later) is not None for later in range(at + 1, len(data)))


def framed(records: Iterable[bytes]) -> bytes:
    """Records as a file has them."""
    return b"".join(_HEAD.pack(len(each), zlib.crc32(each)) + each for each in records)
