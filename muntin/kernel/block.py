"""Blocks: partials of one shape and key group, packed, with a header that says what they are.

A block tells its shape and version, the sources and the delivery that it is from, where its rows
lie and on which grid, its key group, and how many records and rows it stands for. Its rows are an
Arrow table, compressed. Panes are a column of it, not separate blocks, so that one statement
merges them all.

As bytes, a header comes before the rows: a magic word, the format's version, then the length and
CRC-32 of the fields, which are JSON, then of the rows. Both are checked before use, so that a
damaged or foreign block is refused by name and never read as numbers.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from muntin.errors import BlockError

VERSION = 2
NAMES_AT_MOST = 16  # sources that a header names; more might outweigh the rows
_MAGIC = b"MNTN"
_HEADER = struct.Struct("<4sHQI")
_FIELDS = struct.Struct("<4sHII")
HEAD_START = _FIELDS.size  # bytes, that tell how long a header is
_STEPS = 64  # by which a block tells where its rows are
_ONE_STEP = 2048  # rows that are unpacked together in any case
# One thread, as everywhere: tasks are the unit of parallelism, and there is one a core.
_WRITE = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
_WRITE_PLAIN = pa.ipc.IpcWriteOptions(use_threads=False)
_WORTH_PACKING = 16_384  # bytes; of fewer, packing takes longer than all else
_READ = pa.ipc.IpcReadOptions(use_threads=False)


@dataclass(frozen=True)
class Sources:
    """Which sources are in a block: by name while they are few, else how many and a digest.

    Where digests differ that are merged, `count` is the largest of theirs: at least so many.
    """

    names: tuple[str, ...] = ()
    count: int = 0
    digest: str = ""

    @classmethod
    def of(cls, names: Iterable[str]) -> Sources:
        every = sorted(set(names))
        if len(every) <= NAMES_AT_MOST:
            return cls(tuple(every), len(every))
        return cls((), len(every), _digest(every))

    @classmethod
    def merged(cls, many: Iterable[Sources]) -> Sources:
        """Those of all together."""
        different = set(many)
        if len(different) == 1:
            return different.pop()
        together = cls.of(name for each in different for name in each.names)
        counted = {each for each in different if each.digest}
        if not counted:
            return together
        digests = sorted({each.digest for each in counted} | {_digest(together.names)})
        return cls((), max(each.count for each in {*counted, together}), _digest(digests))


def _digest(texts: Sequence[str]) -> str:
    return sha256("\0".join(texts).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Block:
    """Partials of one shape and key group. Rows lie in panes `[lower, upper)` of size `pane`.

    Where there are no panes, `pane` is 0 and positions themselves are meant. A block that is one
    delivery of its sources has its `sequence`; blocks with equal deliveries are the same block.
    `records` is how many records it was made of, those of its other key groups included.
    """

    shape: str
    data: bytes = field(repr=False)  # rows, as `encode` makes them
    rows: int
    pane: int = 0
    lower: int = 0
    upper: int = 0
    group: int = 0
    sources: Sources = Sources()
    sequence: int | None = None
    records: int = 0
    version: int = 0  # of the catalog it was computed by
    steps: tuple[tuple[int, int], ...] = ()
    """Where rows are: so many up to a pane, more up to the next."""

    @property
    def checksum(self) -> int:
        return int(_HEADER.unpack_from(self.data)[3])

    @property
    def name(self) -> str:
        return f"block of shape {self.shape}, key group {self.group}"

    @property
    def delivery(self) -> tuple[str, int, Sources, int] | None:
        """What tells a delivery from others; None if it is no single one."""
        if self.sequence is None:
            return None
        return self.shape, self.group, self.sources, self.sequence

    def table(self, pane: int | None = None) -> pa.Table:
        """The rows, on the grid of another size of panes if one is given."""
        rows = decode(self.data, self.name)
        return rows if pane is None else regrid(rows, self.pane, pane)

    def encode(self) -> bytes:
        """The block as bytes, with all that it says of itself."""
        told = {name: getattr(self, name) for name in _TYPES}
        told |= {"names": self.sources.names, "count": self.sources.count,
                 "digest": self.sources.digest, "checksum": self.checksum}  # fmt: skip
        head = json.dumps(told, separators=(",", ":")).encode()
        return _FIELDS.pack(_MAGIC, VERSION, len(head), zlib.crc32(head)) + head + self.data

    @classmethod
    def decode(cls, data: bytes, name: str) -> Block:
        """A block from its bytes. `name` says which one it is if it cannot be read."""
        block, told = _headed(data, name)
        block = replace(block, data=data[head_size(data, name) :])
        _checked(block.data, name)
        if block.checksum != told:
            raise BlockError(f"{name}: the header is of other rows")
        return block

    @classmethod
    def peek(cls, data: bytes, name: str) -> Block:
        """A block without its rows, and without where they are, from the header of its bytes."""
        return replace(_headed(data, name)[0], steps=())


def head_size(data: bytes, name: str) -> int:
    """How many bytes stand before the rows of a block, by the first `HEAD_START` of them."""
    _require(data, HEAD_START, name)
    return HEAD_START + int(_FIELDS.unpack_from(data)[2])


def _headed(data: bytes, name: str) -> tuple[Block, int]:
    """What the header of a block tells, and the checksum of the rows that belong to it."""
    size = head_size(data, name)
    head = data[HEAD_START:size]
    if len(head) != size - HEAD_START or zlib.crc32(head) != _FIELDS.unpack_from(data)[3]:
        raise BlockError(
            f"{name}: the header is damaged ({len(head)} of {size - HEAD_START} bytes)"
        )
    try:
        return _block(json.loads(head))
    except (ValueError, TypeError, KeyError) as error:
        raise BlockError(f"{name}: the header is not that of a block ({error})") from error


_TYPES: dict[str, type | tuple[type, ...]] = {
    "shape": str, "rows": int, "pane": int, "lower": int, "upper": int, "group": int,
    "sequence": (int, type(None)), "records": int, "version": int, "steps": (list, tuple),
}  # fmt: skip


def _block(told: dict[str, Any]) -> tuple[Block, int]:
    """The block that a header tells of, without its rows, and the checksum of these."""
    for name, kind in (*_TYPES.items(), ("count", int), ("checksum", int), ("digest", str)):
        if not isinstance(told[name], kind):
            raise TypeError(f"{name} is {told[name]!r}")
    sources = Sources(tuple(map(str, told["names"])), told["count"], told["digest"])
    fields = {name: told[name] for name in _TYPES if name != "steps"}
    steps = tuple((int(pane), int(rows)) for pane, rows in told["steps"])
    return Block(data=b"", sources=sources, steps=steps, **fields), told["checksum"]


def encode(table: pa.Table) -> bytes:
    """Rows as bytes, behind a header with their length and checksum."""
    sink = pa.BufferOutputStream()
    options = _WRITE if table.nbytes >= _WORTH_PACKING else _WRITE_PLAIN
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    payload: bytes = sink.getvalue().to_pybytes()
    return _HEADER.pack(_MAGIC, VERSION, len(payload), zlib.crc32(payload)) + payload


def decode(data: bytes, name: str) -> pa.Table:
    """The rows; `name` says what they are of if they cannot be read."""
    payload = _checked(data, name)
    try:
        return pa.ipc.open_stream(payload, options=_READ).read_all()
    except (pa.ArrowException, OSError) as error:  # Arrow has no class of its own for I/O
        raise BlockError(f"{name}: {error}") from error


def _checked(data: bytes, name: str) -> memoryview:
    _require(data, _HEADER.size, name)
    _, _, length, checksum = _HEADER.unpack_from(data)
    payload = memoryview(data)[_HEADER.size :]
    if len(payload) != length or zlib.crc32(payload) != checksum:
        raise BlockError(f"{name}: the block is damaged ({len(payload)} of {length} bytes)")
    return payload


def _require(data: bytes, size: int, name: str) -> None:
    """Refuses bytes that are not of this format and version."""
    if len(data) < size:
        raise BlockError(f"{name}: {len(data)} bytes are too few for a block")
    magic, version = struct.unpack_from("<4sH", data)
    if magic != _MAGIC:
        raise BlockError(f"{name}: these bytes are not a block")
    if version != VERSION:
        raise BlockError(f"{name}: block version {version}, but this Muntin reads {VERSION}")


def steps_of(table: pa.Table) -> tuple[tuple[int, int], ...]:
    """Where the rows of a table are, in at most so many steps."""
    panes = table.column("pane").to_numpy()
    if not len(panes):
        return ()
    if len(panes) <= _ONE_STEP:
        return ((int(panes.max()), len(panes)),)
    ends = np.unique(np.arange(1, _STEPS + 1) * len(panes) // _STEPS)
    low, high = int(panes.min()), int(panes.max())
    if high - low < len(panes):  # as usual: then counting is faster than sorting
        counted = np.cumsum(np.bincount(panes - low))
        at = np.searchsorted(counted, ends[ends > 0] - 1, side="right") + low
    else:
        at = np.sort(panes)[ends[ends > 0] - 1]
    upto, first = np.unique(at, return_index=True)
    last = np.append(first[1:], len(ends[ends > 0])) - 1  # the last step that ends in each pane
    rows = np.diff(ends[ends > 0][last], prepend=0)
    return tuple(zip(upto.tolist(), rows.tolist(), strict=True))


def regrid(table: pa.Table, from_pane: int, to_pane: int) -> pa.Table:
    """Rows of panes of one size as rows of panes of another.

    A pane becomes the one in which it begins. So windows have the same rows as before if their
    bounds lie on both grids. Marks are rounded down, which leaves out the same of these windows.
    A row that belongs to one window alone has its end for a pane: one that is not on the other grid
    is of a window that nobody asks for any more, and is dropped.
    """
    if from_pane == to_pane or not from_pane or not to_pane:
        return table
    panes, alone = table.column("pane").to_numpy(), table.column("spec").to_numpy() > 0
    off_grid = alone & (panes * from_pane % to_pane != 0)
    if off_grid.any():
        table = table.filter(pa.array(~off_grid))
        panes, alone = panes[~off_grid], alone[~off_grid]
    moved = panes * from_pane // to_pane
    marks = pc.fill_null(table.column("not_before"), 0).to_numpy() * from_pane // to_pane
    on_time = table.column("not_before").is_null().to_numpy() | (~alone & (marks <= moved))
    columns = {"pane": pa.array(moved), "not_before": pa.array(marks, mask=on_time)}
    for name, column in columns.items():
        table = table.set_column(table.column_names.index(name), name, column)
    return table


def rows_where(table: pa.Table, mask: pa.ChunkedArray) -> pa.Table:
    """The rows for which the mask is true; no copy is made where that is all of them."""
    return table if pc.all(mask, skip_nulls=False).as_py() else table.filter(mask)
