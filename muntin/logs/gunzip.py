"""The text of gzip members, up to where they are damaged.

Python's gzip module drops what it has read when it meets damage, so that what is lost depends
on how much was asked for. Here everything before the damaged block is given, always.
"""

from __future__ import annotations

import io
import zlib
from pathlib import Path
from typing import Any, BinaryIO

BLOCK_BYTES = 64 << 10
CUT = "it ends too early"
_GZIP = 31  # zlib's way to say: with gzip's header and checksum


class Gunzip(io.RawIOBase):
    """Reads the members in `[start, end)` of a file; damage ends them and says why."""

    def __init__(self, file: BinaryIO, start: int, end: int | None) -> None:
        self.damage: str | None = None
        self._file = file
        self._end = end
        self._member = zlib.decompressobj(_GZIP)
        self._inside = True  # a member, rather than behind the last one
        self._input = b""
        self._text = memoryview(b"")
        file.seek(start)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        room = memoryview(buffer)
        if not self._text:
            self._text = memoryview(self._next())
        count = min(len(room), len(self._text))
        room[:count] = self._text[:count]
        self._text = self._text[count:]
        return count

    def _next(self) -> bytes:
        """Some more text, always cut at the same places; nothing at the end."""
        text = b""
        while not text and self.damage is None and (self._input or self._read()):
            text = self._decompress()
        if text or self.damage is not None or not self._inside:
            return text
        self.damage = CUT
        return self._member.flush()

    def _read(self) -> bool:
        while not self._input and (data := self._file.read(self._room())):
            # Zeros may follow the last member, to fill a block.
            self._input = data if self._inside else data.lstrip(b"\0")
        self._inside = self._inside or bool(self._input)
        return bool(self._input)

    def _room(self) -> int:
        left = BLOCK_BYTES if self._end is None else self._end - self._file.tell()
        return min(BLOCK_BYTES, left)

    def _decompress(self) -> bytes:
        try:
            text = self._member.decompress(self._input, BLOCK_BYTES)
        except zlib.error as error:
            self.damage = _words(str(error))
            return b""
        self._input = self._member.unconsumed_tail
        if self._member.eof:
            self._input = self._member.unused_data.lstrip(b"\0")
            self._inside = bool(self._input)
            self._member = zlib.decompressobj(_GZIP)
        return text


def is_gzip(path: Path | str) -> bool:
    return str(path).endswith(".gz")


def skip(text: io.BufferedIOBase, count: int) -> int:
    """Reads on by so many bytes, or to the end; returns how many there were."""
    left = count
    while left and (read := len(text.read(min(BLOCK_BYTES, left)))):
        left -= read
    return count - left


def _words(error: str) -> str:
    """What zlib has to say, without its numbers."""
    if "incorrect header" in error:
        return "this is not gzip data"
    return "its checksum is wrong" if "check" in error else "its data is damaged"
