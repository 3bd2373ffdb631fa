"""Lanes of work orders to blocks: read, parse, compute.

Planning and starting a statement takes longer than a few records do. So small pieces of many lanes
are put into one table, and parsed and computed together; whose rows are whose is told by
segments. A piece as large as `piece_bytes` is a table of its own. What comes of a source does
not depend on what it was read together with.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate, compress, pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from muntin.errors import BadRowError, EngineError, InputError
from muntin.fidelity.losses import Loss
from muntin.fidelity.score import NEVER
from muntin.kernel.clocks import Clocks
from muntin.kernel.compute import Recipe, Segment, compute_together, repeated_sources
from muntin.kernel.engine import run
from muntin.kernel.forms import merge_all
from muntin.kernel.merge import gather
from muntin.kernel.reading import Begun, File, Reading
from muntin.logs.bad import ahead_text, first_bad_row, first_fall, place_of
from muntin.logs.chunks import (
    PIECE_BYTES,
    Bundle,
    Chunk,
    Overlong,
    Piece,
    WorkOrder,
    fits_beside,
    read_pieces,
    split,
)
from muntin.logs.copies import log_of
from muntin.logs.files import written_until
from muntin.logs.formats import Wanted, needed_columns, records_sql, sizes_sql
from muntin.logs.gunzip import CUT, is_gzip
from muntin.model.records import NOWHERE, POSITION, SIZE, SOURCE_COLUMN, TIME, UNTIL
from muntin.model.streams import Stream
from muntin.units import FIRST_US, LAST_US

# Blocks of pieces are merged when they become many: a lane may be one long gzip file.
_BLOCKS_AT_MOST = 32
# What many shapes have to begin with takes longer than few records: they get more of them at once,
# and blocks of lanes are merged before anybody takes them, as long as there is room.
_MANY_SHAPES = 16
_PIECES_OF_MANY = 4
_HELD_BYTES = 96 << 20
_PIECES_AT_MOST = 4096  # in one table
# Streams and sources that have had a line which is no JSON, as far as this process knows.
_torn: set[tuple[str, str]] = set()

Blocks = dict[str, pa.Table]


def read_lane(
    lane: Sequence[WorkOrder],
    stream: Stream,
    recipes: Sequence[Recipe],
    slack_us: int | None,
    piece_bytes: int = PIECE_BYTES,
) -> tuple[Blocks, Reading]:
    """A lane's blocks by shape, and its reading."""
    ((blocks, (reading,)),) = read_lanes([lane], stream, recipes, slack_us, piece_bytes)
    return blocks, reading


def read_lanes(
    lanes: Iterable[Sequence[WorkOrder]],
    stream: Stream,
    recipes: Sequence[Recipe],
    slack_us: int | None,
    piece_bytes: int = PIECE_BYTES,
) -> Iterator[tuple[Blocks, list[Reading]]]:
    """The blocks of some lanes by shape with a reading of each, until all lanes are read.

    Bad rows are counted, or raise where the stream says FAIL.
    """
    reader = _Reader(stream, recipes, piece_bytes)
    states = [_Lane(lane, _clocks(lane[0], slack_us)) for lane in lanes]
    finished: list[_Lane] = []
    for lane in sorted(states, key=reader.is_behind):  # stable
        reader.read(lane)
        finished.append(lane)
        if reader.is_full:
            yield reader.take_blocks(), [done.reading() for done in finished]
            finished = []
    if finished:
        yield reader.take_blocks(), [done.reading() for done in finished]


def _clocks(first: WorkOrder, slack_us: int | None) -> Clocks:
    return Clocks.since(first.since, slack_us, first.latest, first.doubt)


@dataclass
class _Lane:
    """Orders of one source, and what their pieces have come to so far."""

    orders: Sequence[WorkOrder]
    clocks: Clocks
    readings: list[Reading] = field(default_factory=list)
    told: bool = False  # of a bad row
    span: tuple[WorkOrder, int, int] | None = None
    """The lowest and the highest time in an order that is read at once."""

    begun: WorkOrder | None = None  # the last of which a record was read

    @property
    def source(self) -> str:
        return self.orders[0].source

    def reach(self, order: WorkOrder, positions: pa.ChunkedArray) -> None:
        """Takes the times of some records of an order that is read at once."""
        low, high = pc.min_max(positions).as_py().values()
        if low is not None and self.span is not None and self.span[0] is order:
            low, high = min(low, self.span[1]), max(high, self.span[2])
        self.span = self.span if low is None else (order, low, high)

    def begins(self, order: WorkOrder) -> bool:
        """Whether this is the first record of an order, and of its file."""
        before, self.begun = self.begun, order
        return before is not order and not order.start and not order.skip

    def reading(self) -> Reading:
        number = self.orders[0].sequence
        if len(self.readings) == 1:
            return replace(self.readings[0], sequence=number)
        start = Reading(self.source, number, reached=self.clocks.reached(), doubt=self.clocks.doubt)
        return Reading.merge([start, *self.readings])


@dataclass(frozen=True)
class _Read:
    """A piece of a lane, or instead of one why there is none.

    Then it is lost, with the bytes where that is known, or a bad row.
    """

    lane: _Lane
    order: WorkOrder
    piece: Piece | Chunk | None
    refusal: str | None = None
    lost: bool = False
    left: int | None = None

    @property
    def file(self) -> File:
        start = self.order.start if self.piece is None else self.piece.start
        return File(self.order.path, start == 0 and not self.order.skip)

    @property
    def log(self) -> str:
        return log_of(self.order.path)


class _Reader:
    """Puts pieces together as they are read, and computes their blocks."""

    def __init__(self, stream: Stream, recipes: Sequence[Recipe], piece_bytes: int) -> None:
        self.bytes = 0  # of which blocks have not been taken
        self._stream = stream
        self._recipes = recipes
        self._piece_bytes = piece_bytes
        self._shapes = {recipe.shape.id: recipe.shape for recipe in recipes}
        self._is_of_many = len(self._shapes) >= _MANY_SHAPES
        self._at_once = piece_bytes * (_PIECES_OF_MANY if self._is_of_many else 1)
        self._wanted = Wanted.of(self._shapes.values())
        self._needed = [c.name for c in needed_columns(stream, self._wanted)]
        self._needs = _needed_from(recipes)
        self._blocks: dict[str, list[pa.Table]] = {}
        self._seen: set[str] = set()  # columns of which there was a value
        self._pending: list[_Read] = []
        self._pending_bytes = 0

    def is_behind(self, lane: _Lane) -> bool:
        """Whether a source is so far behind that its next records may be too old for anybody."""
        reached = lane.clocks.of(TIME).reached
        return self._needs is not None and reached is not None and reached < self._needs

    def read(self, lane: _Lane) -> None:
        """Reads all orders of a lane. The last pieces may wait for those of the next lanes."""
        format_, fail = self._stream.format, self._stream.on_bad_row == "fail"
        for order in lane.orders:
            in_bytes = format_.kind != "parquet" and not is_gzip(order.path)
            left = order.end - order.start
            try:
                for piece in read_pieces(order, format_, self._needed, self._at_once):
                    left -= piece.size
                    if not isinstance(piece, Overlong):
                        self._add(_Read(lane, order, piece), piece.size)
                    elif fail:
                        raise BadRowError(str(piece))
                    else:
                        self._add(_Read(lane, order, None, str(piece)), 0)
            except InputError as error:
                if fail:
                    raise
                known = max(0, left) if in_bytes else None
                self._add(_Read(lane, order, None, str(error), True, known), 0)
                self._flush()  # what is lost is behind what was read, and not behind what follows

    @property
    def is_full(self) -> bool:
        """Whether there is so much that blocks should be taken before more is read."""
        if not self._is_of_many or self.bytes < self._piece_bytes:
            return self.bytes >= self._piece_bytes
        held = sum(int(block.nbytes) for blocks in self._blocks.values() for block in blocks)
        return held >= _HELD_BYTES

    def take_blocks(self) -> Blocks:
        """The blocks of all that was read since they were last taken."""
        self._flush()
        blocks, self._blocks, self.bytes = self._blocks, {}, 0
        return merge_all(self._shapes, blocks, gather)

    def _add(self, read: _Read, size: int) -> None:
        full = self._pending_bytes + size > self._at_once
        if self._pending and (full or not self._fits(read)):
            self._flush()
        self._pending.append(read)
        self._pending_bytes += size
        self.bytes += size

    def _fits(self, read: _Read) -> bool:
        """Whether a piece may be in one table with those that wait."""
        if len(self._pending) >= _PIECES_AT_MOST:
            return False
        if self.is_behind(read.lane) != self.is_behind(self._pending[-1].lane):
            return False
        if self._wanted.sequences and any(other.lane is read.lane for other in self._pending):
            return False  # where a sequence falls is told from where the piece before has ended
        pieces = (other.piece for other in reversed(self._pending) if other.piece is not None)
        known = next(pieces, None)
        return known is None or read.piece is None or fits_beside(read.piece, known)

    def _flush(self) -> None:
        reads, self._pending, self._pending_bytes = self._pending, [], 0
        if not reads:
            return
        table = _Table.of(reads, self._stream, self._wanted)
        if self.is_behind(reads[0].lane):
            table = self._without_old(table)
        if table.reads:
            self._compute(table, self._parsed(table, self._wanted), self._wanted)

    def _without_old(self, table: _Table) -> _Table:
        """Computes what is too old for any window, and returns the rest.

        Of what nobody needs only the times are parsed; it is counted, and not checked further.
        """
        wanted = Wanted(())
        times = self._parsed(table, wanted)
        positions = np.asarray(times.column(POSITION).combine_chunks().fill_null(NOWHERE))
        needed: set[int] = set()  # lanes, by identity: what follows in them is in order
        is_old = []
        for read, rows in zip(table.reads, table.ranges(), strict=True):
            latest = int(positions[rows.start : rows.stop].max(initial=NOWHERE))
            if latest >= (self._needs or NOWHERE):
                needed.add(id(read.lane))
            is_old.append(id(read.lane) not in needed)
        old = table.only(is_old)
        if old.reads:
            mask = np.repeat(is_old, [len(rows) for rows in table.ranges()])
            self._compute(old, times.filter(pa.array(mask)), wanted)
        return table.only([not known for known in is_old])

    def _parsed(self, table: _Table, wanted: Wanted) -> pa.Table:
        """Lines are taken to be whole, which is faster, until a source has a torn one."""
        name = self._stream.name
        if not any((name, read.lane.source) in _torn for read in table.reads):
            try:
                return self._parse(table, wanted, torn=False)
            except EngineError:  # one with another cause is raised again below
                records = self._parse(table, wanted, torn=True)
                missing = records.column(POSITION).is_null().to_numpy()
                for read, rows in zip(table.reads, table.ranges(), strict=True):
                    if missing[rows.start : rows.stop].any():
                        _torn.add((name, read.lane.source))
                return records
        return self._parse(table, wanted, torn=True)

    def _parse(self, table: _Table, wanted: Wanted, torn: bool) -> pa.Table:
        """The records of a table; where they cannot be had, the error names the file."""
        if table.fields is None:
            return _no_records(self._stream, wanted)
        reads = table.reads
        try:
            records = parse_fields(table.fields, self._stream, wanted, reads[0].order.path, torn)
        except EngineError:
            for number in range(len(reads)) if torn and len(reads) > 1 else ():
                self._parse(table.only([n == number for n in range(len(reads))]), wanted, torn)
            raise
        column = self._stream.column(SOURCE_COLUMN)
        if column in wanted.columns and column not in records.column_names:
            counts = [len(rows) for rows in table.ranges()]
            sources = repeated_sources(table.segments(), counts, self._stream.before)
            records = records.append_column(column, sources)
        return records

    def _compute(self, table: _Table, records: pa.Table, wanted: Wanted) -> None:
        """Keeps the blocks of a table, and hands the readings of its pieces to their lanes."""
        before = [read.lane.clocks.reached() if wanted.sequences else {} for read in table.reads]
        blocks, readings = compute_together(records, table.segments(), self._recipes)
        readings[0] = replace(readings[0], columns=self._new_columns(records, wanted))
        for number, reading in enumerate(readings):
            rows, read = table.ranges()[number], table.reads[number]
            mine = records.slice(rows.start, len(rows))
            if is_gzip(read.order.path):
                read.lane.reach(read.order, mine[POSITION])
            if reading.bad:
                reading = self._noted(table, number, mine, reading, wanted, before[number])
            if reading.faults:
                reading = self._placed(table, number, reading)
            if TIME.column in reading.first and read.lane.begins(read.order):
                at = _first_time(mine[POSITION], read.lane.clocks.latest)
                reading = replace(reading, begun=(Begun(read.log, read.order.path, at),))
            read.lane.readings.append(reading)
        for shape, block in blocks.items():
            self._blocks.setdefault(shape, []).append(block)
        if any(len(several) > _BLOCKS_AT_MOST for several in self._blocks.values()):
            merged = merge_all(self._shapes, self._blocks)
            self._blocks = {shape: [block] for shape, block in merged.items()}

    def _new_columns(self, records: pa.Table, wanted: Wanted) -> frozenset[str]:
        """The columns of which these records are the first to have a value."""
        there = set(wanted.columns).intersection(records.column_names) - self._seen
        new = {name for name in there if records.column(name).null_count < records.num_rows}
        self._seen |= new
        return frozenset(new)

    def _placed(self, table: _Table, number: int, reading: Reading) -> Reading:
        """The reading with the places of records that jobs have failed on."""
        order, chunk, format_ = table.reads[number].order, table.chunk(number), self._stream.format
        return reading.placed(lambda row: place_of(row, order, chunk, format_))

    def _noted(
        self,
        table: _Table,
        number: int,
        records: pa.Table,
        reading: Reading,
        wanted: Wanted,
        before: Mapping[str, int],
    ) -> Reading:
        """The reading with a note of a bad row. One of a lane is told of; all are counted."""
        stream, (lane, order) = self._stream, (table.reads[number].lane, table.reads[number].order)
        fail, refusal = stream.on_bad_row == "fail", table.reads[number].refusal
        if refusal is not None:
            lane.told = True
            lost = (_lost(table.reads[number], reading),) if table.reads[number].lost else ()
            return replace(reading, notes=(refusal,), lost=lost)
        if lane.told and not fail:
            return reading
        chunk, row, note = table.chunk(number), None, None
        if chunk.broken or records.column(POSITION).null_count:
            row = first_bad_row(chunk, records, stream, wanted)
        elif reading.backwards:
            row = first_fall(chunk, records, stream, wanted, before)
        elif reading.ahead:
            note = ahead_text(order.path, reading.ahead)
        if row is not None:
            note = row.described(order, chunk, stream)
        if note is None:
            return reading
        if fail:
            raise BadRowError(note)
        lane.told = True
        return replace(reading, notes=(note,))


@dataclass(frozen=True)
class _Table:
    """Pieces of many lanes in one table; None where there is none, as all were refused."""

    reads: Sequence[_Read]
    fields: pa.Table | None
    counts: Sequence[int]  # rows of each
    broken: Sequence[Mapping[int, str]]

    @classmethod
    def of(cls, reads: Sequence[_Read], stream: Stream, wanted: Wanted) -> _Table:
        try:
            bundle = _split(reads, stream, wanted)
        except InputError:
            reads = [_splittable(read, stream, wanted) for read in reads]
            bundle = _split(reads, stream, wanted)
        bundled = iter(zip(bundle.rows, bundle.broken, strict=True))
        # What could not be read is one bad row.
        told = [(0, {0: ""}) if read.piece is None else next(bundled) for read in reads]
        return cls(reads, bundle.fields, [rows for rows, _ in told], [b for _, b in told])

    @cached_property
    def _ranges(self) -> list[range]:
        return [range(*ends) for ends in pairwise(accumulate(self.counts, initial=0))]

    def ranges(self) -> list[range]:
        """The rows of each piece."""
        return self._ranges

    def segments(self) -> list[Segment]:
        return [
            Segment(read.lane.source, count, read.lane.clocks, sorted(broken), read.file)
            for read, count, broken in zip(self.reads, self.counts, self.broken, strict=True)
        ]

    def chunk(self, number: int) -> Chunk:
        """One of the pieces by itself."""
        rows, piece = self.ranges()[number], self.reads[number].piece
        assert self.fields is not None
        assert piece is not None
        fields = self.fields.slice(rows.start, len(rows))
        return Chunk(fields, piece.start, piece.size, dict(self.broken[number]))

    def only(self, chosen: Sequence[bool]) -> _Table:
        """The table with some of its pieces."""
        fields = self.fields
        if all(chosen):
            return self
        if fields is not None:
            # Not a filter: Arrow has none for every type of text.
            parts = [fields.slice(rows.start, len(rows)) for rows in compress(self._ranges, chosen)]
            fields = pa.concat_tables([fields.slice(0, 0), *parts])
        reads, counts = list(compress(self.reads, chosen)), list(compress(self.counts, chosen))
        return _Table(reads, fields, counts, list(compress(self.broken, chosen)))


def _first_time(positions: pa.ChunkedArray, latest: int | None) -> int:
    """The time of the first record that has one, and one that has come: there is such a record."""
    if latest is not None:
        positions = positions.filter(pc.less_equal(positions, latest))
    first: int = positions.drop_null()[0].as_py()
    return first


def _lost(read: _Read, reading: Reading) -> Loss:
    """What could not be read of an order: in its log it follows what was read.

    Where data is damaged is not known: what was read of the file before may be wrong already.
    """
    lane, order = read.lane, read.order
    lower: int | None = NEVER if order.start == 0 else None
    if lane.span is not None and lane.span[0] is order:
        lower = lane.span[2] if str(read.refusal).endswith(CUT) else lane.span[1]
    elif lane.clocks.slack_us is not None:
        lower = reading.reached.get(TIME.column, lower)
    return Loss(
        order.source,
        order.path,
        str(read.refusal).removeprefix(f"{order.path} "),
        read.log,
        read.left,
        lower,
        written_until(order.modified),
    )


def _split(reads: Sequence[_Read], stream: Stream, wanted: Wanted) -> Bundle:
    """The fields of all pieces that there are."""
    pieces = [read.piece for read in reads if read.piece is not None]
    if not pieces:
        return Bundle(None, [], [])
    try:
        return split(pieces, stream.format, wanted.sizes)
    except (pa.ArrowException, csv.Error) as error:
        path, kind = reads[0].order.path, stream.format.kind
        raise InputError(f"{path} is not a readable {kind} file: {error}") from error


def _splittable(read: _Read, stream: Stream, wanted: Wanted) -> _Read:
    """The same, or a refusal if this piece cannot be split into fields."""
    try:
        _split([read], stream, wanted)
    except InputError as error:
        if stream.on_bad_row == "fail":
            raise
        size = None if read.piece is None else read.piece.size
        return replace(read, piece=None, refusal=str(error), lost=True, left=size)
    return read


def _no_records(stream: Stream, wanted: Wanted) -> pa.Table:
    """No records, with the columns that computing looks at."""
    names = [POSITION, *(axis.column for axis in wanted.sequences)]
    names += [UNTIL] if stream.until is not None else []
    names += [SIZE] if wanted.sizes else []
    return pa.table({name: pa.array([], pa.int64()) for name in names})


def _needed_from(recipes: Sequence[Recipe]) -> int | None:
    """The time before which no recipe needs anything, or None if that is not known of all."""
    moments = all(r.shape.axes == (TIME,) and r.shape.spans is None for r in recipes)
    needs = [recipe.needs for recipe in recipes if recipe.needs is not None]
    return min(needs) if moments and len(needs) == len(recipes) and needs else None


def parse(chunk: Chunk, stream: Stream, wanted: Wanted, order: WorkOrder) -> pa.Table:
    """The chunk's records in log order, with the source where the stream has no such column."""
    records = parse_fields(chunk.fields, stream, wanted, order.path, torn=True)
    if SOURCE_COLUMN in wanted.columns and SOURCE_COLUMN not in records.column_names:
        source = pa.repeat(pa.scalar(order.source), records.num_rows)
        records = records.append_column(SOURCE_COLUMN, source)
    return records


def parse_fields(
    fields: pa.Table, stream: Stream, wanted: Wanted, place: str, torn: bool
) -> pa.Table:
    """The records of fields, in their order."""
    sql = records_sql(stream, wanted, frozenset(fields.column_names), torn)
    records = _in_calendar(run(sql, {"fields": fields}, f"parsing {place}"))
    if wanted.sizes:
        sizes = f"SELECT {sizes_sql(stream.format, fields.column_names)} AS n FROM fields"
        counted = run(sizes, {"fields": fields}, f"measuring {place}")
        records = records.append_column(SIZE, counted["n"])
    return records


def _in_calendar(records: pa.Table) -> pa.Table:
    """The records; those with a time before the year 1 or after 9999 have none."""
    times = records.column(POSITION)
    bounds = pc.min_max(times)
    first, last = (bounds[name].as_py() for name in ("min", "max"))
    if first is None or (first >= FIRST_US and last <= LAST_US):
        return records
    inside = pc.and_(pc.greater_equal(times, FIRST_US), pc.less_equal(times, LAST_US))
    known = pc.if_else(inside, times, pa.scalar(None, pa.int64()))
    return records.set_column(records.column_names.index(POSITION), POSITION, known)
