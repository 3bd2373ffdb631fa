"""Rows of a result that SQL refuses: left out, and told of in rows of their own.

Lists that were cut are told of in the same way.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from muntin.errors import BadValueError
from muntin.kernel.apart import unquoted, values_text
from muntin.kernel.python.faults import sparse_rows
from muntin.kernel.python.states import with_faults
from muntin.kernel.statements import limited, whole_name
from muntin.model.counts import Fault
from muntin.model.jobs import Job
from muntin.units import describe_time

_FAULT = "fault"
_CUT = 10  # lists of a batch that are told of


@dataclass(frozen=True)
class Unfinished:
    """A row that a job does not get: the window it is of, its partials, and how many records."""

    job: Job
    which: int
    bounds: tuple[int, int]
    end: int  # as rows of `finish` name the window
    partials: pa.Table
    records: int

    def fault(self, finish: Callable[[Job], object], otherwise: BadValueError) -> Fault:
        """What is wrong with it: the first of the job's expressions that fails by itself."""
        words, reason = "adding up", otherwise.reason
        for expression, alone in _alone(self.job):
            try:
                finish(alone)
            except BadValueError as error:
                words, reason = expression, error.reason
                break
        position = self.bounds[1] - 1
        return Fault(self.job.name, words, self._given(), reason, position, records=self.records)

    def _given(self) -> str:
        return _group(self.job, self.bounds, self.partials.slice(0, 1))


def _group(job: Job, bounds: tuple[int, int], row: pa.Table) -> str:
    """A window and the keys of a row in it, for people."""
    shape = job.shape
    start, end = (describe_time(at) if shape.axis.is_time else at for at in bounds)
    labels = {f"k{i}": unquoted(key.words or key.sql) for i, key in enumerate(shape.keys)}
    keys = values_text(row, labels)
    return f"the window from {start} to {end}{f', {keys}' if keys else ''}"


def _alone(job: Job) -> Iterator[tuple[str, Job]]:
    """The job with each of its expressions alone, and words for it."""
    bare = replace(job, outputs=(), having=None, order=(), limit=None)
    if job.having is not None:
        yield "HAVING", replace(bare, having=job.having)
    for output in job.outputs:
        yield f"column '{output.name}'", replace(bare, outputs=(output,))
    for order in job.order:
        yield "ORDER BY", replace(bare, order=(order,))


def with_unfinished(rows: pa.Table, unfinished: Sequence[tuple[Unfinished, Fault]]) -> pa.Table:
    """Rows of `finish`, and one more for each fault."""
    if _FAULT not in rows.column_names:
        rows = rows.append_column(_FAULT, pa.nulls(rows.num_rows, pa.binary()))
    columns = {
        "w": [each.end for each, _ in unfinished],
        "win": [each.which for each, _ in unfinished],
        _FAULT: [pickle.dumps(fault) for _, fault in unfinished],
    }
    return pa.concat_tables([rows, sparse_rows(rows.schema, len(unfinished), columns)])


def told_apart(job: Job, rows: pa.Table) -> tuple[pa.Table, list[tuple[tuple[int, int], Fault]]]:
    """Rows of `finish` without faults, and the faults, lists that were cut among them.

    Each is told with the kind and end of its window.
    """
    core = job.core
    core = replace(core, shape=core.shape.answered) if core.shape.by_source else core
    faults = [((which, end), fault) for which, end, fault in _cut(core, rows)]
    if _FAULT not in rows.column_names:
        return rows, faults
    told = rows.filter(pc.is_valid(rows[_FAULT]))
    columns = (told[name].to_pylist() for name in ("win", "w", _FAULT))
    failed = [((which, end), pickle.loads(data)) for which, end, data in zip(*columns, strict=True)]
    return rows.filter(pc.is_null(rows[_FAULT])), [*failed, *faults]


def ordered_with_faults(
    job: Job, tables: Sequence[pa.Table], order: Callable[[pa.Table], pa.Table]
) -> pa.Table:
    """What ordering makes of the rows of all key groups, with their faults behind them."""
    rows = pa.concat_tables(tables, promote_options="default")
    cut = list(_cut(job, rows))
    if cut:
        if _FAULT not in rows.column_names:
            rows = rows.append_column(_FAULT, pa.nulls(rows.num_rows, pa.binary()))
        columns = {
            "w": [end for _, end, _ in cut],
            "win": [which for which, _, _ in cut],
            _FAULT: [pickle.dumps(fault) for _, _, fault in cut],
        }
        rows = pa.concat_tables([rows, sparse_rows(rows.schema, len(cut), columns)])
    if _FAULT not in rows.column_names:
        return order(rows)
    told = rows.filter(pc.is_valid(rows[_FAULT]))
    good = rows.filter(pc.is_null(rows[_FAULT])).drop_columns([_FAULT])
    return with_faults(order(good), told)


def _cut(job: Job, rows: pa.Table) -> Iterator[tuple[int, int, Fault]]:
    """Lists that have ended at their limit, and where: the kind and end of a window."""
    for finish in limited(job):
        longer = pc.greater(rows[whole_name(finish)], finish.most)
        for number in np.flatnonzero(pc.fill_null(longer, False))[:_CUT].tolist():
            row = rows.slice(number, 1)
            which, end, whole = (
                int(row[name][0].as_py()) for name in ("win", "w", whole_name(finish))
            )
            bounds = (
                job.windows[which].bounds(end) if job.windows else (row["started"][0].as_py(), end)
            )
            reason = (
                f"ends after {finish.most:,} of {whole:,} values; "
                f"{finish.words}(x ORDER BY y LIMIT n) takes more or fewer"
            )
            given = _group(job, bounds, row)
            yield (
                which,
                end,
                Fault(job.name, finish.words, given, reason, bounds[1] - 1, records=0, errors=0),
            )


def with_window_faults(rows: pa.Table, faults: Sequence[tuple[tuple[int, int], Fault]]) -> pa.Table:
    """Ordered rows, and one more for each window that is left out as a whole."""
    if not faults:
        return rows
    told = {
        "win": pa.array([which for (which, _), _ in faults], pa.int32()),
        "w": pa.array([end for (_, end), _ in faults], pa.int64()),
        _FAULT: pa.array([pickle.dumps(fault) for _, fault in faults], pa.binary()),
    }
    return with_faults(rows, pa.table(told))
