"""Files of saved blocks, which tasks write and read; the driver knows names and lengths alone.

A file is a tape: whole when it has its name, and never changed by another than the one who made it.
One that no state names is nobody's, and is removed when a state is next written anew.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from uuid import uuid4

import pyarrow as pa

from muntin.kernel import tables
from muntin.kernel.block import Block
from muntin.store import tape
from muntin.store.storage import Storage, storage_of


def _open(place: str) -> pa.NativeFile:
    """A file at a path or URL."""
    if "://" not in place:
        return pa.OSFile(place)
    folder, _, name = place.rpartition("/")
    return storage_of(folder).open(name)


tables.open_with(_open)  # for tasks, which have rows of tables where they have blocks


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
