"""A lane of work orders to blocks: read, parse, compute, piece by piece."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from muntin.errors import BadRowError, InputError
from muntin.kernel.compute import Clock, Totals, compute
from muntin.kernel.engine import run
from muntin.kernel.merge import merge
from muntin.logs.chunks import Chunk, WorkOrder, read_chunks
from muntin.logs.formats import needed_columns, records_sql
from muntin.model import POSITION, SOURCE_COLUMN, Job, Stream, Tally


@dataclass(frozen=True)
class Report:
    """What one lane came to, without its blocks."""

    source: str
    tallies: tuple[Tally, ...]
    records: int
    bad: int
    last_us: int | None
    notes: tuple[str, ...] = ()


def read_lane(
    lane: Sequence[WorkOrder], stream: Stream, jobs: Sequence[Job], slack_us: int | None
) -> tuple[dict[str, pa.Table], Report]:
    """The lane's blocks by job. Bad rows are counted, or raise where the stream says FAIL."""
    clock = Clock(lane[0].since, slack_us)
    totals = Totals()
    notes: list[str] = []
    for order in lane:
        try:
            _read_order(order, stream, jobs, clock, totals, notes)
        except InputError as error:
            if stream.on_bad_row == "fail":
                raise
            notes.append(str(error))
            totals.bad += 1
    by_name = {job.name: job for job in jobs}
    blocks = {name: merge(by_name[name], found) for name, found in totals.blocks.items()}
    report = Report(lane[0].source, tuple(totals.tallies), totals.records, totals.bad,
                    totals.last_us, tuple(notes))  # fmt: skip
    return blocks, report


def _read_order(
    order: WorkOrder,
    stream: Stream,
    jobs: Sequence[Job],
    clock: Clock,
    totals: Totals,
    notes: list[str],
) -> None:
    wanted = tuple(sorted({name for job in jobs for name in job.uses}))
    names = [c.name for c in needed_columns(stream, wanted)]
    for chunk in read_chunks(order, stream.format, names):
        records = parse(chunk, stream, wanted, order)
        if chunk.broken or records.column(POSITION).null_count:
            message = _bad_row(chunk, records, order, stream)
            if stream.on_bad_row == "fail":
                raise BadRowError(message)
            if not notes:
                notes.append(message)
        totals.add(compute(records, order.source, jobs, clock, chunk.broken))


def parse(chunk: Chunk, stream: Stream, wanted: tuple[str, ...], order: WorkOrder) -> pa.Table:
    """The chunk's records in log order, with the source where the stream has no such column."""
    sql = records_sql(stream, wanted, frozenset(chunk.fields.column_names))
    records = run(sql, {"fields": chunk.fields}, f"parsing {order.path}")
    if SOURCE_COLUMN in wanted and SOURCE_COLUMN not in records.column_names:
        source = pa.repeat(pa.scalar(order.source), records.num_rows)
        records = records.append_column(SOURCE_COLUMN, source)
    return records


def _bad_row(chunk: Chunk, records: pa.Table, order: WorkOrder, stream: Stream) -> str:
    if chunk.broken:
        text = next(iter(chunk.broken.values()))
    else:
        row = records.column(POSITION).is_null().index(True).as_py()
        text = str(next(iter(chunk.fields.slice(row, 1).to_pylist()[0].values()), ""))
        if stream.format.kind in ("csv", "parquet"):
            text = str(chunk.fields.slice(row, 1).to_pylist()[0])
    shown = text.strip() if len(text) <= 200 else text[:200] + "…"
    return (
        f"{order.path}: a row does not fit stream '{stream.name}' "
        f"(FORMAT {stream.format.kind}, a column's type, or no time): {shown}"
    )
