"""Panes that are kept for questions, in files of their own, once no window to come holds them.

Open panes are blocks of the state. When a state begins new files of blocks, those of its panes
that have settled move into a file here; the same commit names it, and says up to where panes of
the shape have moved. So a pane is in one of both places, whatever happens in between.

A file is Arrow's, in pieces of some thousand rows in the order of panes and keys, with an index of
where each piece lies, so that a question reads the pieces it is about. Small files become larger
ones as they grow in number; files that are older than the panes are kept for are removed.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from muntin.errors import StateError
from muntin.kernel.block import Block
from muntin.kernel.merge import distinct, merge
from muntin.model.shapes import Shape
from muntin.run.past import Past
from muntin.store.storage import Storage

FOLDER = "panes"
PIECE_ROWS = 1 << 16
SLICE_ROWS = 1 << 23  # of blocks that are merged at once, about
_MANY = 8  # files of about one size that become one
_SIZES = 8  # by which sizes of files differ that are not about the same
_SMALL = 1 << 16  # bytes, of files that are all about the same
_LARGE = 32 << 20  # bytes, of files that stay as they are
_INDEX = b"muntin"
_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
Key = str | int | None


@dataclass(frozen=True)
class PaneFile:
    """What a state knows of a file: whose panes, how large these are, and where they lie."""

    shape: str
    pane: int
    lower: int  # positions
    upper: int
    rows: int
    bytes: int

    def share(self, rows: int) -> int:
        """About how many of its bytes so many rows are."""
        return self.bytes * rows // max(1, self.rows)


@dataclass(frozen=True)
class Piece:
    """Rows that are read together: panes `[lower, upper)`, and the bounds of their first key."""

    rows: int
    lower: int
    upper: int
    least: Key = None  # None where nothing is told
    most: Key = None

    def has(self, lower: int, upper: int, keys: Collection[Key] | None) -> bool:
        """Whether rows may be of panes `[lower, upper)` and one of these first keys."""
        if self.upper <= lower or self.lower >= upper:
            return False
        if keys is None or self.least is None or self.most is None:
            return True
        return any(_between(self.least, key, self.most) for key in keys)


def _between(least: Key, key: Key, most: Key) -> bool:
    if isinstance(least, str) and isinstance(key, str) and isinstance(most, str):
        return least.encode() <= key.encode() <= most.encode()
    if isinstance(least, int) and isinstance(key, int) and isinstance(most, int):
        return least <= key <= most
    return True  # of what cannot be compared, nothing is left out


@dataclass
class PaneFiles:
    """The files of one stream's panes."""

    folder: Storage  # of the stream
    files: dict[str, PaneFile] = field(default_factory=dict)
    moved: dict[str, int] = field(default_factory=dict)  # by shape, up to where panes are here
    new: list[str] = field(default_factory=list)  # files that no commit has named yet
    damaged: set[str] = field(default_factory=set)  # which cannot be merged with others

    def keep(
        self, past: Mapping[str, Past], shapes: Mapping[str, Shape], blocks: Iterable[Block]
    ) -> None:
        """Takes panes that have settled out of blocks.

        `shapes` are those of `past`, and `blocks` all that the state had.
        """
        by_shape: dict[str, list[Block]] = {}
        for block in blocks:
            if block.shape in past:
                by_shape.setdefault(block.shape, []).append(block)
        self._expire(past)
        for id_, known in past.items():
            lower, shape = self.moved.get(id_, known.began), shapes[id_]
            if known.settled > lower:
                mine = by_shape.get(id_, [])
                for start, end in _stretches(shape.pane, mine, lower, known.settled):
                    rows = settled(shape, mine, start, end)
                    if rows.num_rows:
                        self._write(id_, shape.pane, rows)
                self.moved[id_] = known.settled

    def _write(self, shape: str, pane: int, rows: pa.Table) -> None:
        name, data = f"{shape}-{uuid4().hex[:12]}.arrow", packed(rows)
        self.folder.put(f"{FOLDER}/{name}", data)
        panes = rows.column("pane")
        lower, upper = pc.min(panes).as_py() * pane, (pc.max(panes).as_py() + 1) * pane
        self.files[name] = PaneFile(shape, pane, lower, upper, rows.num_rows, len(data))
        self.new.append(name)

    @property
    def many(self) -> list[str]:
        """Files of about one size that are to become one, the smallest first; or none."""
        by_size: dict[tuple[int, str, int], list[str]] = {}
        for name, file in self.files.items():
            if file.bytes < _LARGE and name not in self.damaged:
                size = int(np.log(max(file.bytes, _SMALL) / _SMALL) / np.log(_SIZES))
                by_size.setdefault((size, file.shape, file.pane), []).append(name)
        return next((names for _, names in sorted(by_size.items()) if len(names) >= _MANY), [])

    def merge(self) -> list[str]:
        """Makes one file of many, which the next commit names in their place.

        One that cannot be read stays as it is. Returns what there is to say.
        """
        notes, tables = list[str](), dict[str, pa.Table]()
        for name in self.many:
            try:
                tables[name] = self.read(name)
            except StateError as error:
                self.damaged.add(name)
                notes.append(f"{error}; questions about its panes are refused until it is put back")
        if tables:
            first = self.files[next(iter(tables))]
            for name in tables:
                del self.files[name]
            self._write(first.shape, first.pane, pa.concat_tables(tables.values()))
        return notes

    def _expire(self, past: Mapping[str, Past]) -> None:
        for name, file in list(self.files.items()):
            if file.shape not in past or file.upper <= past[file.shape].began:
                del self.files[name]
        self.moved = {shape: at for shape, at in self.moved.items() if shape in past}

    def strays(self) -> list[str]:
        """Files that no state names, as it is known here."""
        return [f"{FOLDER}/{n}" for n in self.folder.names(FOLDER) if n not in self.files]

    def read(self, name: str) -> pa.Table:
        """All rows of a file."""
        with self.folder.open(f"{FOLDER}/{name}") as file:
            try:
                return pa.ipc.open_file(file).read_all()
            except (pa.ArrowException, OSError) as error:
                where = self.folder.where(f"{FOLDER}/{name}")
                raise StateError(f"{where} is damaged: {error}") from error

    def of(self, shape: str, lower: int, upper: int) -> dict[str, PaneFile]:
        """The files that may have panes between two positions."""
        return {
            name: file
            for name, file in self.files.items()
            if file.shape == shape and file.lower < upper and file.upper > lower
        }


def _stretches(
    pane: int, blocks: Sequence[Block], lower: int, upper: int
) -> Iterator[tuple[int, int]]:
    """Positions one behind the other, between which there are about as many rows as fit."""
    held = [(b.lower * b.pane, b.upper * b.pane, b.rows) for b in blocks if b.rows]
    inside = sum(
        rows * max(0, min(end, upper) - max(start, lower)) / (end - start)
        for start, end, rows in held
    )
    panes = -(-(upper - lower) // pane)
    each = max(1, panes // max(1, -(-int(inside) // SLICE_ROWS))) * pane
    first = lower // pane * pane
    for start in range(first, upper, each):
        yield max(start, lower), min(start + each, upper)


def settled(shape: Shape, blocks: Sequence[Block], lower: int, upper: int) -> pa.Table:
    """The rows of blocks in panes between two positions, each pane and key once.

    What tells apart windows that rows are too late for, or sources, is no part of them.
    """
    tables = [
        _shared(shape, block.table(shape.pane), lower, upper)
        for block in distinct(list(blocks))
        if block.rows and block.lower * block.pane < upper and block.upper * block.pane > lower
    ]
    if not tables:
        return pa.table({"pane": pa.array([], pa.int64())})
    rows = pa.concat_tables(tables)
    rows = rows.set_column(
        rows.column_names.index("not_before"), "not_before", pa.nulls(len(rows), pa.int64())
    )
    if shape.by_source:
        rows = rows.drop_columns([f"k{len(shape.keys) - 1}"])
    return merge(shape.answered, [rows, rows.slice(0, 0)])


def _shared(shape: Shape, rows: pa.Table, lower: int, upper: int) -> pa.Table:
    panes = rows.column("pane")
    inside = pc.and_(
        pc.greater_equal(panes, -(-lower // shape.pane)), pc.less(panes, -(-upper // shape.pane))
    )
    return rows.filter(pc.and_(inside, pc.equal(rows.column("spec"), 0)))


def packed(rows: pa.Table) -> bytes:
    """Rows as the bytes of a file, in the order of panes and their first key."""
    by, told = ["pane"], "k0" in rows.column_names and _is_told(rows.schema.field("k0").type)
    if told:
        by.append("k0")
    rows = rows.combine_chunks().take(pc.sort_indices(rows, [(name, "ascending") for name in by]))
    pieces = [rows.slice(at, PIECE_ROWS) for at in range(0, rows.num_rows, PIECE_ROWS)]
    index = [_piece(piece, told) for piece in pieces]
    told_as = json.dumps([list(vars(piece).values()) for piece in index]).encode()
    sink = pa.BufferOutputStream()
    schema = rows.schema.with_metadata({_INDEX: told_as})
    with pa.ipc.new_file(sink, schema, options=_OPTIONS) as writer:
        for piece in pieces:
            writer.write_table(piece.combine_chunks().replace_schema_metadata(schema.metadata))
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _is_told(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_integer(kind))


def _piece(rows: pa.Table, told: bool) -> Piece:
    panes = pc.min_max(rows.column("pane")).as_py()
    keys = pc.min_max(rows.column("k0")).as_py() if told else {"min": None, "max": None}
    whole = told and not rows.column("k0").null_count
    least, most = (keys["min"], keys["max"]) if whole else (None, None)
    return Piece(rows.num_rows, panes["min"], panes["max"] + 1, least, most)


def pieces_of(file: pa.ipc.RecordBatchFileReader) -> list[Piece]:
    """What a file says of its pieces."""
    metadata = file.schema.metadata or {}
    return [Piece(*row) for row in json.loads(metadata.get(_INDEX, b"[]"))]
