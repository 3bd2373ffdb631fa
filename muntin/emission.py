"""What leaves a pipeline: windows of jobs, as results and as rows to store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from muntin.kernel.engine import quote, run
from muntin.kernel.statements import WINDOW, WINDOW_END
from muntin.language.durations import describe_window
from muntin.model import Counts, Job, Result, Score

Kind = tuple[int, int]  # which of the job's windows, and the pane it ends before
_TIMES = pa.timestamp("us", "UTC")


@dataclass(frozen=True)
class JobWindows:
    """Windows of one job that left together: their rows, ordered, and their counts."""

    job: Job
    rows: pa.Table
    counts: Mapping[Kind, Counts]
    scores: Mapping[Kind, Score]

    def newest(self) -> JobWindows:
        """The last of the windows alone."""
        which, end = max(self.counts, key=self._bound)
        same = pc.and_(pc.equal(self.rows[WINDOW], which), pc.equal(self.rows[WINDOW_END], end))
        counts = {(which, end): self.counts[which, end]}
        return replace(self, rows=self.rows.filter(same), counts=counts)

    def _bound(self, kind: Kind) -> tuple[int, int]:
        which, end = kind
        return end, -which

    def bounds(self, kind: Kind) -> tuple[int, int]:
        which, end = kind
        return self.job.windows[which].bounds(end)

    def results(self) -> Iterator[Result]:
        """One result for each window with rows, in the order of windows."""
        which, ends = (self.rows.column(name).to_numpy() for name in (WINDOW, WINDOW_END))
        columns = self.rows.drop_columns([WINDOW, WINDOW_END])
        names = [describe_window(self.job.shape.axis, spec) for spec in self.job.windows]
        for start, stop in _runs(which, ends):
            kind = int(which[start]), int(ends[start])
            rows = columns.slice(start, stop - start)
            yield Result(
                self.job.name,
                names[kind[0]],
                *self.bounds(kind),
                rows,
                self.counts[kind],
                self.scores[kind],
            )

    def table(self) -> pa.Table:
        """The rows as they are stored: job, window, columns, counts."""
        which, ends = (self.rows.column(name).to_numpy() for name in (WINDOW, WINDOW_END))
        starts, stops, names = self._windows(which, ends)
        kind = _TIMES if self.job.shape.axis.is_time else pa.int64()
        columns = {
            "job": pa.repeat(pa.scalar(self.job.name), len(ends)),
            "window_name": names,
            "window_start": pa.array(starts).cast(kind),
            "window_end": pa.array(stops).cast(kind),
        }
        columns |= {o.name: self.rows.column(o.name) for o in self.job.outputs}
        counted = np.zeros((len(ends), 3), np.int64)
        for start, stop in _runs(which, ends):
            counts = self.counts[int(which[start]), int(ends[start])]
            counted[start:stop] = counts.read, counts.bad, counts.late
        for number, name in enumerate(("read", "bad", "late")):
            columns[f"records_{name}"] = pa.array(counted[:, number])
        return pa.table(columns)

    def _windows(
        self, which: NDArray[np.int64], ends: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], pa.Array]:
        specs = self.job.windows
        lengths = np.array([spec.length for spec in specs], np.int64)[which]
        names = pa.array(
            [describe_window(self.job.shape.axis, spec) for spec in specs], pa.string()
        )
        pane = self.job.shape.pane
        return (ends - lengths) * pane, ends * pane, names.take(pa.array(which))


def _runs(which: NDArray[np.int64], ends: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Where rows of the same window begin and end."""
    if not len(ends):
        return
    changes = np.flatnonzero((ends[1:] != ends[:-1]) | (which[1:] != which[:-1])) + 1
    yield from pairwise([0, *changes.tolist(), len(ends)])


def no_windows(job: Job) -> JobWindows:
    """Nothing yet, with the columns that will come."""
    columns = ", ".join(f"NULL::{o.type} AS {quote(o.name)}" for o in job.outputs)
    ours = f"NULL::TINYINT AS {WINDOW}, NULL::BIGINT AS {WINDOW_END}"
    rows = run(f"SELECT {ours}, {columns} LIMIT 0", {}, f"describing job {job.name}")
    return JobWindows(job, rows, {}, {})


@dataclass(frozen=True)
class Emission:
    """What leaves the pipeline after one batch."""

    windows: list[JobWindows] = field(default_factory=list)
    blocks: dict[str, list[bytes]] = field(default_factory=dict)

    def results(self) -> Iterator[Result]:
        for windows in self.windows:
            yield from windows.results()
