"""Which file holds the bytes of another one: the copies that rotation makes, plain or compressed.

A copy has the first bytes of its original, and those before the place up to which that was read,
or up to which the copy goes. Of a compressed file its text is compared, as far as it can be read.
Files are compared only if their names say that one may come of the other.
"""

from __future__ import annotations

import io
import os
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from muntin.logs.files import PRINT_BYTES, FilePosition, checksum, holds
from muntin.logs.gunzip import BLOCK_BYTES, Gunzip, is_gzip, skip

# What rotation appends to the name of a log.
_ADDED = re.compile(r"(?:[._-](?:\d[\d._:T-]*|old|bak|orig|copy|save|prev)|~)+$")
_SEPARATORS = "._-~"
_COMPARED_BYTES = 64 << 10  # at the end of two files: lines may end alike, but not have their times
_TURN = re.compile(r"[._-]\d[\d._:T-]*(?=\.|$)|\.old$")  # a number or a date, also before an ending


def log_of(path: Path | str) -> str:
    """The log that a file is or was a part of, by its path: `/logs/a.log` of `a.log.2.gz`."""
    folder, name = os.path.split(os.path.abspath(path))  # noqa: PTH100
    plain = name.removesuffix(".gz")
    return str(Path(folder, _ADDED.sub("", plain) or plain))


def is_one_log(path: Path | str, other: Path | str) -> bool:
    """Whether rotation may have made one name of the other: `a.log` and `a-20260301.log.gz`."""
    names = [Path(p).name.removesuffix(".gz") for p in (path, other)]
    short, long = sorted(names, key=len)
    if short == long or Path(log_of(short)) == Path(log_of(long)):
        return True
    if long.startswith(short):
        return long[len(short)] in _SEPARATORS
    stem, dot, end = short.rpartition(".")
    inside = long.removeprefix(stem).removesuffix(dot + end)
    return bool(stem) and len(inside) == len(long) - len(short) and inside[0] in _SEPARATORS


def is_rotated(path: Path | str, log: Path | str) -> bool:
    """Whether a file has the name that rotation gives a log: its own, with a number or a date."""
    name, plain = Path(path).name.removesuffix(".gz"), Path(log).name
    return any(name[: m.start()] + name[m.end() :] == plain for m in _TURN.finditer(name))


@contextmanager
def _text(path: Path) -> Iterator[io.BufferedReader]:
    with path.open("rb") as file:
        yield io.BufferedReader(Gunzip(file, 0, None), BLOCK_BYTES) if is_gzip(path) else file


def first_bytes(path: Path | str, size: int = PRINT_BYTES) -> bytes:
    """The first bytes of a file's text, at most so many."""
    with _text(Path(path)) as text:
        return text.read(size)


def _tail(path: Path, end: int | None, size: int = PRINT_BYTES) -> tuple[int, int]:
    """Where a file's text ends, or `end` if that is before, and the checksum of the bytes there."""
    if not is_gzip(path):
        with path.open("rb") as file:
            length = os.fstat(file.fileno()).st_size
            end = length if end is None else min(end, length)
            return end, checksum(file, end, size)
    last, length = b"", 0
    with _text(path) as text:
        if end is not None:
            length = skip(text, max(0, end - size))
        while room := BLOCK_BYTES if end is None else end - length:
            block = text.read(room)
            if not block:
                break
            length += len(block)
            last = (last + block)[-size:]
    return length, zlib.crc32(last)


def text_length(path: Path) -> int:
    return _tail(path, None)[0]


def text_holds(path: Path, file: FilePosition) -> bool:
    """Whether the text of a file is that of one which was read, and perhaps more."""
    if is_gzip(path) == is_gzip(file.path):
        with path.open("rb") as bytes_:
            return holds(bytes_, file.fingerprint)
    if is_gzip(file.path) or not file.print_end:
        return False
    first = first_bytes(path, file.head_end)
    if (len(first), zlib.crc32(first)) != (file.head_end, file.head_crc):
        return False
    if file.head_end == PRINT_BYTES and is_all_read(path, file):
        return True
    known = file.print_end, file.print_crc
    return _tail(path, file.print_end) == known or _breaks_off(path, file.print_end)


def _breaks_off(path: Path, end: int) -> bool:
    """Whether a compressed file is damaged before so many bytes of its text.

    If it begins as what was read up to there, all that it gives was read: taken for another log, it
    would be read twice.
    """
    with path.open("rb") as file:
        members = Gunzip(file, 0, None)
        length = skip(io.BufferedReader(members, BLOCK_BYTES), end)
    return length < end and members.damage is not None


def is_all_read(path: Path, file: FilePosition) -> bool:
    """Whether a compressed file says that its text is as long as what was read."""
    with path.open("rb") as bytes_:
        bytes_.seek(0, os.SEEK_END)
        if bytes_.tell() < 18:  # the least that gzip writes
            return False
        bytes_.seek(-4, os.SEEK_END)
        return int.from_bytes(bytes_.read(4), "little") == file.position % (1 << 32)


def is_copy(path: Path, original: Path | str) -> bool:
    """Whether all of a file's text is in another one, from its start on."""
    first = first_bytes(path)
    if not first or first_bytes(original, len(first)) != first:
        return False
    end, crc = _tail(path, None, _COMPARED_BYTES)
    return _tail(Path(original), end, _COMPARED_BYTES) == (end, crc)
