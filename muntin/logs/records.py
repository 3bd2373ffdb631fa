"""A lane of work orders to blocks: read, parse, compute, piece by piece."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from muntin.errors import BadRowError, EngineError, InputError
from muntin.kernel.compute import Clocks, Cost, Late, Recipe, Totals, compute, unreadable
from muntin.kernel.engine import run
from muntin.kernel.merge import gather, merge
from muntin.logs.bad import first_bad_row, first_fall
from muntin.logs.chunks import PIECE_BYTES, Chunk, WorkOrder, read_chunks
from muntin.logs.formats import Wanted, needed_columns, records_sql, sizes_sql
from muntin.model import POSITION, SIZE, SOURCE_COLUMN, TIME, Fault, Shape, Stream, Tally
from muntin.windows.ledger import Ledger

Changed = dict[str, frozenset[int]]
# Blocks of pieces are merged when they become many: a lane may be one long gzip file.
_BLOCKS_AT_MOST = 32
# Streams and sources that have had a line which is no JSON, as far as this process knows.
_torn: set[tuple[str, str]] = set()


@dataclass(frozen=True)
class Report:
    """What one lane came to, without its blocks."""

    source: str
    tallies: tuple[Tally, ...]
    records: int
    bad: int
    reached: dict[str, int]  # axis -> how far the source has come
    costs: dict[str, Cost]
    late: Late = field(default_factory=dict)  # for sessions, by shape
    notes: tuple[str, ...] = ()
    timeless: bool = False  # whether the first bad row had no time, and nothing else wrong
    faults: tuple[Fault, ...] = ()
    first: dict[str, int] = field(default_factory=dict)  # axis -> the lowest position
    changed: Changed = field(default_factory=dict)
    """The panes that have got rows, of shapes whose windows may be revised."""


def changed_panes(shapes: Mapping[str, Shape], blocks: Mapping[str, pa.Table]) -> Changed:
    """The panes with rows, by shape, where windows that have left may be revised."""
    return {
        shape: frozenset(pc.unique(block.column("pane")).to_pylist())
        for shape, block in blocks.items()
        if shapes[shape].revise_us is not None
    }


def read_lane(
    lane: Sequence[WorkOrder],
    stream: Stream,
    recipes: Sequence[Recipe],
    slack_us: int | None,
    piece_bytes: int = PIECE_BYTES,
) -> tuple[dict[str, pa.Table], Report]:
    """The lane's blocks by shape. Bad rows are counted, or raise where the stream says FAIL."""
    reading = _Reading(stream, recipes, Clocks.since(lane[0].since, slack_us, lane[0].latest))
    for order in lane:
        try:
            reading.read(order, piece_bytes)
        except InputError as error:
            if stream.on_bad_row == "fail":
                raise
            reading.give_up(order, str(error))
    blocks = reading.blocks()
    return blocks, reading.report(lane[0].source, blocks)


class _Reading:
    """What a lane has come to so far."""

    def __init__(self, stream: Stream, recipes: Sequence[Recipe], clocks: Clocks) -> None:
        self.totals = Totals()
        self.notes: list[str] = []
        self._timeless = False
        self._stream = stream
        self._recipes = recipes
        self._shapes = {recipe.shape.id: recipe.shape for recipe in recipes}
        self._clocks = clocks
        self._wanted = Wanted.of(self._shapes.values())
        self._needed = [c.name for c in needed_columns(stream, self._wanted)]
        self._needs = _needed_from(recipes)

    def read(self, order: WorkOrder, piece_bytes: int) -> None:
        format_, bare = self._stream.format, self._wanted.sizes
        for chunk in read_chunks(order, format_, self._needed, piece_bytes, bare):
            records = self._parse(chunk, order)
            if chunk.broken or records.column(POSITION).null_count:
                self._look_at_bad(chunk, records, order)
            before = self._clocks.reached()
            done = compute(records, order.source, self._recipes, self._clocks, chunk.broken)
            if done.backwards:
                row = first_fall(chunk, records, self._stream, self._wanted, before)
                self._tell_bad(row.described(order, chunk, self._stream))
            if done.ahead:
                self._tell_bad(
                    f"{order.path}: {done.ahead:,} records are of a time more than a day ahead of "
                    f"the clock here, and count as bad"
                )
            self.totals.add(done)
            if any(len(found) > _BLOCKS_AT_MOST for found in self.totals.blocks.values()):
                self.totals.blocks = {
                    shape: [merge(self._shapes[shape], found)]
                    for shape, found in self.totals.blocks.items()
                }

    def _parse(self, chunk: Chunk, order: WorkOrder) -> pa.Table:
        """The chunk's records, or of a source that is far behind their times alone.

        What no window needs any more is counted, and neither parsed nor checked further.
        """
        reached = self._clocks.of(TIME).reached
        if self._needs is not None and reached is not None and reached < self._needs:
            times = self._parsed(chunk, Wanted(()), order)
            latest = pc.max(times.column(POSITION)).as_py()
            if latest is None or latest < self._needs:
                return times
        return self._parsed(chunk, self._wanted, order)

    def _parsed(self, chunk: Chunk, wanted: Wanted, order: WorkOrder) -> pa.Table:
        """A source's lines are taken to be whole, which is a twelfth faster, until one is not."""
        source = self._stream.name, order.source
        if source not in _torn:
            try:
                return parse(chunk, self._stream, wanted, order, torn=False)
            except EngineError:  # one with another cause is raised again below
                _torn.add(source)
        return parse(chunk, self._stream, wanted, order)

    def give_up(self, order: WorkOrder, message: str) -> None:
        """Notes that an order could not be read to its end."""
        self.notes.append(message)
        self.totals.add(unreadable(order.source, self._recipes, self._clocks))

    def blocks(self) -> dict[str, pa.Table]:
        return {shape: gather(self._shapes[shape], b) for shape, b in self.totals.blocks.items()}

    def report(self, source: str, blocks: Mapping[str, pa.Table]) -> Report:
        totals = self.totals
        tallies = tuple(Ledger(totals.tallies))
        reached, notes = self._clocks.reached(), tuple(self.notes)
        return Report(
            source,
            tallies,
            totals.records,
            totals.bad,
            reached,
            totals.costs,
            totals.late,
            notes,
            self._timeless,
            tuple(totals.faults),
            totals.first,
            changed_panes(self._shapes, blocks),
        )

    def _look_at_bad(self, chunk: Chunk, records: pa.Table, order: WorkOrder) -> None:
        if self.notes and self._stream.on_bad_row != "fail":
            return
        row = first_bad_row(chunk, records, self._stream, self._wanted)
        self._timeless = row.timeless
        self._tell_bad(row.described(order, chunk, self._stream))

    def _tell_bad(self, message: str) -> None:
        """One bad row is told of; all are counted."""
        if self._stream.on_bad_row == "fail":
            raise BadRowError(message)
        if not self.notes:
            self.notes.append(message)


def _needed_from(recipes: Sequence[Recipe]) -> int | None:
    """The time before which no recipe needs anything, or None if that is not known of all."""
    moments = all(r.shape.axes == (TIME,) and r.shape.spans is None for r in recipes)
    needs = [recipe.needs for recipe in recipes if recipe.needs is not None]
    return min(needs) if moments and len(needs) == len(recipes) and needs else None


def parse(
    chunk: Chunk, stream: Stream, wanted: Wanted, order: WorkOrder, torn: bool = True
) -> pa.Table:
    """The chunk's records in log order, with the source where the stream has no such column."""
    sql = records_sql(stream, wanted, frozenset(chunk.fields.column_names), torn)
    records = run(sql, {"fields": chunk.fields}, f"parsing {order.path}")
    if SOURCE_COLUMN in wanted.columns and SOURCE_COLUMN not in records.column_names:
        source = pa.repeat(pa.scalar(order.source), records.num_rows)
        records = records.append_column(SOURCE_COLUMN, source)
    if wanted.sizes:
        sizes = f"SELECT {sizes_sql(stream.format, chunk.fields.column_names)} AS n FROM fields"
        counted = run(sizes, {"fields": chunk.fields}, f"measuring {order.path}")
        records = records.append_column(SIZE, counted["n"])
    return records
