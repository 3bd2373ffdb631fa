"""A lane of work orders to blocks: read, parse, compute, piece by piece."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from muntin.errors import BadRowError, EngineError, InputError
from muntin.kernel.compute import Clocks, Recipe, compute, unreadable
from muntin.kernel.engine import run
from muntin.kernel.merge import gather, merge
from muntin.kernel.reading import Reading
from muntin.logs.bad import ahead_text, first_bad_row, first_fall
from muntin.logs.chunks import PIECE_BYTES, Chunk, WorkOrder, read_chunks
from muntin.logs.formats import Wanted, needed_columns, records_sql, sizes_sql
from muntin.model import POSITION, SIZE, SOURCE_COLUMN, TIME, Stream

# Blocks of pieces are merged when they become many: a lane may be one long gzip file.
_BLOCKS_AT_MOST = 32
# Streams and sources that have had a line which is no JSON, as far as this process knows.
_torn: set[tuple[str, str]] = set()


def read_lane(
    lane: Sequence[WorkOrder],
    stream: Stream,
    recipes: Sequence[Recipe],
    slack_us: int | None,
    piece_bytes: int = PIECE_BYTES,
) -> tuple[dict[str, pa.Table], Reading]:
    """The lane's blocks by shape. Bad rows are counted, or raise where the stream says FAIL."""
    clocks = Clocks.since(lane[0].since, slack_us, lane[0].latest)
    reader = _LaneReader(stream, recipes, clocks)
    for order in lane:
        try:
            reader.read(order, piece_bytes)
        except InputError as error:
            if stream.on_bad_row == "fail":
                raise
            reader.give_up(order, str(error))
    start = Reading(lane[0].source, reached=clocks.reached())
    return reader.blocks(), Reading.merge([start, *reader.readings])


class _LaneReader:
    """Reads the orders of a lane, and holds what its pieces have come to."""

    def __init__(self, stream: Stream, recipes: Sequence[Recipe], clocks: Clocks) -> None:
        self.readings: list[Reading] = []
        self._blocks: dict[str, list[pa.Table]] = {}
        self._told = False
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
            notes: list[str] = []
            timeless = False
            if (chunk.broken or records.column(POSITION).null_count) and self._tells:
                row = first_bad_row(chunk, records, self._stream, self._wanted)
                notes += self._bad(row.described(order, chunk, self._stream))
                timeless = row.timeless
            before = self._clocks.reached()
            blocks, reading = compute(
                records, order.source, self._recipes, self._clocks, chunk.broken
            )
            if reading.backwards and self._tells:
                row = first_fall(chunk, records, self._stream, self._wanted, before)
                notes += self._bad(row.described(order, chunk, self._stream))
            if reading.ahead and self._tells:
                notes += self._bad(ahead_text(order.path, reading.ahead))
            self.readings.append(replace(reading, notes=tuple(notes), timeless=timeless))
            self._keep(blocks)

    def _keep(self, blocks: dict[str, pa.Table]) -> None:
        for shape, block in blocks.items():
            self._blocks.setdefault(shape, []).append(block)
        if any(len(several) > _BLOCKS_AT_MOST for several in self._blocks.values()):
            self._blocks = {
                shape: [merge(self._shapes[shape], several)]
                for shape, several in self._blocks.items()
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
        self._told = True
        self.readings.append(unreadable(order.source, self._recipes, self._clocks, message))

    def blocks(self) -> dict[str, pa.Table]:
        return {shape: gather(self._shapes[shape], b) for shape, b in self._blocks.items()}

    @property
    def _tells(self) -> bool:
        """One bad row is told of; all are counted."""
        return not self._told or self._stream.on_bad_row == "fail"

    def _bad(self, message: str) -> list[str]:
        if self._stream.on_bad_row == "fail":
            raise BadRowError(message)
        self._told = True
        return [message]


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
