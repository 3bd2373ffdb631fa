"""Files of saved blocks, which tasks write and read; the driver knows names and lengths alone.

A file is a tape: whole when it has its name, and never changed by another than the one who made it.
One that no state names is nobody's, and is removed when a state is next written anew.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from uuid import uuid4

import pyarrow as pa

from muntin.errors import BlockError, StateError
from muntin.kernel import tables
from muntin.kernel.block import HEAD_START, Block, head_size
from muntin.store import packs, tape
from muntin.store.storage import Storage

_AHEAD = 1 << 16  # bytes that are read where a header is looked for: most have others behind them


tables.read_with(packs.read_file)  # for tasks, which have rows of tables where they have blocks


@dataclass(frozen=True)
class Placed:
    """A saved block without its rows, and where it lies with them."""

    file: str
    at: int
    size: int
    block: Block

    @property
    def positions(self) -> tuple[int, int]:
        """Between which its rows lie."""
        return self.block.lower * self.block.pane, self.block.upper * self.block.pane


@dataclass(frozen=True)
class BlockFiles:
    """Files in the folder of a stream, by name with how much of each belongs to a state."""

    folder: Storage
    lengths: Mapping[str, int] = field(default_factory=dict)

    def write(self, blocks: Iterable[Block]) -> tuple[str, int]:
        """Writes a file of its own, from whatever process, and returns its name and length.

        It is on disk; its name is so once the folder is synced.
        """
        name = f"blocks-{uuid4().hex}.tape"
        data = tape.framed(block.encode() for block in blocks)
        self.folder.put(name, data)
        return name, len(data)

    def read(self, name: str, shapes: Collection[str]) -> Iterator[Block]:
        """The blocks of these shapes in one of the files; a StateError where it is damaged."""
        yield from self._in(name, self.folder.read(name), shapes)

    def _in(self, name: str, data: bytes, shapes: Collection[str]) -> Iterator[Block]:
        place = self.folder.where(name)
        for record in tape.records_in(data, place, self.lengths[name]):
            block = Block.decode(record, f"a saved block in {place}")
            if block.shape in shapes:
                yield block

    def every(self, shapes: Collection[str]) -> Iterator[Block]:
        """The blocks of all files, for whoever has no tasks."""
        names = list(self.lengths)
        for name, data in zip(names, self.folder.read_all(names), strict=True):
            yield from self._in(name, data, shapes)

    def placed(self, name: str, shapes: Collection[str], after: int = 0) -> list[Placed]:
        """What the blocks of these shapes say of themselves, in one of the files from a byte on.

        Rows are not read, nor looked at whether they are whole.
        """
        place, end, at = self.folder.where(name), self.lengths[name], after
        found: list[Placed] = []
        with self.folder.open(name) as file:
            window = _Window(file)
            while at < end:
                try:
                    size = tape.size_at(window.read(at, tape.START))
                    start = window.read(at + tape.START, HEAD_START)
                    head = window.read(at + tape.START, head_size(start, place))
                    block = Block.peek(head, place)
                    if at + size > end:
                        raise ValueError(f"it is longer than {end - at:,} bytes")
                except (BlockError, ValueError, OSError, pa.ArrowException) as error:
                    raise StateError(f"{place} is damaged at byte {at:,}: {error}") from error
                if block.shape in shapes:
                    found.append(Placed(name, at, size, block))
                at += size
        return found

    def at(self, places: Iterable[Placed]) -> Iterator[Block]:
        """The blocks at some places, with their rows; a StateError where one is damaged."""
        for name, several in groupby(places, lambda each: each.file):
            with self.folder.open(name) as file:
                for each in several:
                    where = f"{self.folder.where(name)} from byte {each.at:,} on"
                    try:
                        file.seek(each.at)
                        records = tape.records_in(file.read(each.size), where, each.size)
                        blocks = [
                            Block.decode(data, f"a saved block in {where}") for data in records
                        ]
                    except (BlockError, OSError, pa.ArrowException) as error:
                        raise StateError(f"{where} cannot be read: {error}") from error
                    yield from blocks


class _Window:
    """Reads a file here and there, a little more than is asked for."""

    def __init__(self, file: pa.NativeFile) -> None:
        self._file = file
        self._data = b""
        self._first = 0

    def read(self, at: int, size: int) -> bytes:
        """So many bytes from a place on; a ValueError where the file ends before."""
        if at < self._first or at + size > self._first + len(self._data):
            self._file.seek(at)
            self._first, self._data = at, self._file.read(max(size, _AHEAD))
        found = self._data[at - self._first : at - self._first + size]
        if len(found) < size:
            raise ValueError("it ends there")
        return found
