"""The finish of a job: what SQL stands around its core, run over the rows of each window.

The core's rows have met from all key groups, and are in the order of their keys: so the same
records give the same rows, wherever they were read. A window that the statement fails on is left
out, and told of as a fault of its job.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from muntin.errors import BadValueError
from muntin.kernel.due import NOTHING_BEFORE, Previous
from muntin.kernel.engine import quote, run
from muntin.kernel.statements import WINDOW, WINDOW_END
from muntin.kernel.tables import rows_of
from muntin.model.counts import Fault
from muntin.model.jobs import Around, Job
from muntin.units import FIRST_US, LAST_US, describe_time

ROWS = "__rows"  # the relation of the core's rows
PREVIOUS = "__previous"  # the relation of the result's rows one step earlier
BOUNDS = "__bounds"  # the relation of one row that tells the window
RECORDS = "__records"  # the core's column of how many records a row is made of
Window = tuple[int, int]  # which of the job's kinds, and the end
TellBounds = Callable[[Window], tuple[int, int]]
TellName = Callable[[Window], str]
_TIMES = pa.timestamp("us", "UTC")


def looks_back(job: Job) -> bool:
    """Whether the finish of a job reads the rows of its previous result."""
    return job.around is not None and PREVIOUS in job.around.sql


def finish_windows(
    job: Job,
    around: Around,
    rows: pa.Table,
    bounds: TellBounds,
    name: TellName,
    previous: Previous = NOTHING_BEFORE,
) -> tuple[pa.Table, list[tuple[Window, Fault]]]:
    """Rows of results from the ordered rows of the core, window by window, and what has failed.

    Windows of one kind come in the order of their ends, after those that were `previous`.
    """
    made: list[pa.Table] = []
    told: list[Window] = []
    faults = []
    before = dict(previous) if looks_back(job) else None
    for window, core in _windows(rows):
        at = bounds(window)[1] - 1 if around.tables else 0
        joined = {t.name: rows_of(t, at, job.shape.axis, job.shape.pane) for t in around.tables}
        tables = {ROWS: core, **joined}
        if BOUNDS in around.sql:
            tables[BOUNDS] = _bounds(job, bounds(window), name(window))
        if before is not None:
            tables[PREVIOUS] = _one_step_before(job, window, before)
        try:
            made.append(run(around.sql, tables, f"the finish of job '{job.name}'"))
            told.append(window)
            if before is not None:
                before[window[0]] = window[1], made[-1]
        except BadValueError as error:
            faults.append((window, _fault(job, around, core, bounds(window), error)))
    if not made:  # there are columns all the same
        made, told = [_nothing(job)], [(0, 0)]
    counts = [table.num_rows for table in made]
    which, ends = (np.repeat(np.array(column), counts) for column in zip(*told, strict=True))
    whole = pa.concat_tables(made).add_column(0, WINDOW, pa.array(which.astype(np.int32)))
    return whole.add_column(1, WINDOW_END, pa.array(ends.astype(np.int64))), faults


def _one_step_before(job: Job, window: Window, last: Previous) -> pa.Table:
    """The rows of the window one step earlier; none if it has none, or has failed."""
    which, end = window
    ended, rows = last.get(which, (None, None))
    return rows if ended == job.windows[which].end_before(end) else _nothing(job)


def _windows(rows: pa.Table) -> Iterator[tuple[Window, pa.Table]]:
    if not rows.num_rows:
        return
    which, ends = rows[WINDOW].to_numpy(), rows[WINDOW_END].to_numpy()
    core = rows.drop_columns([WINDOW, WINDOW_END]).combine_chunks()
    changes = np.flatnonzero((ends[1:] != ends[:-1]) | (which[1:] != which[:-1])) + 1
    for start, stop in pairwise([0, *changes.tolist(), len(ends)]):
        yield (int(which[start]), int(ends[start])), core.slice(start, stop - start)


def _bounds(job: Job, bounds: tuple[int, int], name: str) -> pa.Table:
    kind = pa.int64()
    if job.shape.axis.is_time:
        kind, bounds = _TIMES, (max(bounds[0], FIRST_US), min(bounds[1], LAST_US))
    start, end = (pa.array([at]).cast(kind) for at in bounds)
    return pa.table({"window_start": start, "window_end": end, "window_name": [name]})


def _nothing(job: Job) -> pa.Table:
    """No rows, with the columns that results have."""
    columns = ", ".join(f"NULL::{o.type} AS {quote(o.name)}" for o in job.outputs)
    return run(f"SELECT {columns} LIMIT 0", {}, f"describing job '{job.name}'")


def _fault(
    job: Job, around: Around, core: pa.Table, bounds: tuple[int, int], error: BadValueError
) -> Fault:
    start, end = (describe_time(at) if job.shape.axis.is_time else at for at in bounds)
    given = f"the window from {start} to {end}"
    records = int(pc.sum(core[RECORDS]).as_py() or 0)
    words, reason = dict(around.words), error.reason
    reason = re.sub(r"__c\d+_\d+", lambda name: words.get(name[0], name[0]), reason)
    return Fault(job.name, "the finish", given, reason, bounds[1] - 1, records=records)
