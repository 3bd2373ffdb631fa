"""Blocks to rows: consolidate panes into due windows, then finish and order them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from muntin.kernel.engine import run
from muntin.kernel.statements import consolidate_sql, finish_sql, order_sql
from muntin.model import Job

# Partials times windows that one statement may hold at once; bounds memory, not answers.
ROWS_AT_ONCE = 4_000_000


def finish(job: Job, block: pa.Table, ends: Sequence[int]) -> pa.Table:
    """Rows of the due windows from one key group, not yet ordered across key groups."""
    slices = [_finish_slice(job, block, part) for part in _slices(job, block, ends)]
    return pa.concat_tables(slices)


def order(job: Job, rows: Sequence[pa.Table]) -> pa.Table:
    """Rows of all key groups as the result's rows, window by window, `w` first."""
    doing = f"ordering the windows of job {job.name}"
    return run(order_sql(job), {"rows": pa.concat_tables(rows)}, doing)


def _finish_slice(job: Job, block: pa.Table, ends: Sequence[int]) -> pa.Table:
    pane = block.column("pane")
    oldest, newest = ends[0] - job.window.length, ends[-1]
    inside = pc.and_(pc.greater_equal(pane, oldest), pc.less(pane, newest))
    tables = {"blocks": block.filter(inside), "due": pa.table({"w": pa.array(ends, pa.int64())})}
    doing = f"finishing windows {ends[0]} to {ends[-1]} of job {job.name}"
    return run(finish_sql(job, consolidate_sql(job)), tables, doing)


def _slices(job: Job, block: pa.Table, ends: Sequence[int]) -> Iterator[Sequence[int]]:
    panes = max(1, pc.count_distinct(block.column("pane")).as_py())
    overlap = -(-job.window.length // job.window.step)
    expanded = max(1, block.num_rows * overlap * job.window.step // panes)
    count = max(1, ROWS_AT_ONCE // expanded)
    for start in range(0, len(ends), count):
        yield ends[start : start + count]
