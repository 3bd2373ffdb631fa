"""What leaves a pipeline: windows of jobs, as results and as rows to store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from muntin.kernel.engine import quote, run
from muntin.kernel.statements import SESSION_RECORDS, SESSION_START, WINDOW, WINDOW_END
from muntin.language.durations import describe, describe_window
from muntin.model import Counts, Job, Result, Score

Kind = tuple[int, int]  # which of the job's windows and the pane it ends before; or a session
Numbers = NDArray[np.int64]
_TIMES = pa.timestamp("us", "UTC")


@dataclass(frozen=True)
class JobWindows:
    """Windows of one job that left together: their rows, ordered, and their counts.

    A session is told by where it starts and ends, any other window by its kind and last pane.
    """

    job: Job
    rows: pa.Table
    counts: Mapping[Kind, Counts]
    scores: Mapping[Kind, Score]

    def newest(self) -> JobWindows:
        """The last of the windows alone."""
        last = max(self.counts, key=lambda kind: (self.bounds(kind)[1], -kind[0]))
        first, ends = self._kinds()
        same = pa.array((first == last[0]) & (ends == last[1]))
        return replace(self, rows=self.rows.filter(same), counts={last: self.counts[last]})

    def bounds(self, kind: Kind) -> tuple[int, int]:
        if self.job.shape.gap is not None:
            return kind
        which, end = kind
        return self.job.windows[which].bounds(end)

    def results(self) -> Iterator[Result]:
        """One result for each window with rows, in the order of windows."""
        ours = [name for name in self.rows.column_names if name in _OURS]
        columns = self.rows.drop_columns(ours)
        first, ends = self._kinds()
        names = self._names()
        for start, stop in _runs(first, ends):
            kind = int(first[start]), int(ends[start])
            name = names[0] if self.job.shape.gap is not None else names[kind[0]]
            rows = columns.slice(start, stop - start)
            counts, score = self.counts[kind], self.scores[kind]
            yield Result(self.job.name, name, *self.bounds(kind), rows, counts, score)

    def table(self) -> pa.Table:
        """The rows as they are stored: job, window, columns, counts."""
        kind = _TIMES if self.job.shape.axis.is_time else pa.int64()
        which = pa.array(self.rows.column(WINDOW).to_numpy())
        starts, ends = self._all_bounds()
        columns = {
            "job": pa.repeat(pa.scalar(self.job.name), len(ends)),
            "window_name": pa.array(self._names(), pa.string()).take(which),
            "window_start": pa.array(starts).cast(kind),
            "window_end": pa.array(ends).cast(kind),
        }
        columns |= {o.name: self.rows.column(o.name) for o in self.job.outputs}
        counted = np.zeros((len(ends), 3), np.int64)
        first, ends = self._kinds()
        for start, stop in _runs(first, ends):
            counts = self.counts[int(first[start]), int(ends[start])]
            counted[start:stop] = counts.read, counts.bad, counts.late
        for number, name in enumerate(("read", "bad", "late")):
            columns[f"records_{name}"] = pa.array(counted[:, number])
        return pa.table(columns)

    def _names(self) -> list[str]:
        if self.job.shape.gap is not None:
            return [f"session {describe(self.job.shape.gap)}"]
        return [describe_window(self.job.shape.axis, spec) for spec in self.job.windows]

    def _kinds(self) -> tuple[Numbers, Numbers]:
        first = WINDOW if self.job.shape.gap is None else SESSION_START
        return self.rows.column(first).to_numpy(), self.rows.column(WINDOW_END).to_numpy()

    def _all_bounds(self) -> tuple[Numbers, Numbers]:
        first, ends = self._kinds()
        if self.job.shape.gap is not None:
            return first, ends
        lengths = np.array([spec.length for spec in self.job.windows], np.int64)[first]
        return (ends - lengths) * self.job.shape.pane, ends * self.job.shape.pane


def sessions(job: Job, rows: pa.Table, score: Score) -> JobWindows:
    """Sessions that left together; each counts the records it has."""
    starts, ends, records = (rows.column(n).to_pylist() for n in _SESSION)
    counts: dict[Kind, Counts] = {}
    for start, end, count in zip(starts, ends, records, strict=True):
        counts[start, end] = counts.get((start, end), Counts()) + Counts(count)
    return JobWindows(job, rows, counts, dict.fromkeys(counts, score))


_SESSION = (SESSION_START, WINDOW_END, SESSION_RECORDS)
_OURS = (WINDOW, *_SESSION)


def _runs(first: Numbers, ends: Numbers) -> Iterator[tuple[int, int]]:
    """Where rows of the same window begin and end."""
    if not len(ends):
        return
    changes = np.flatnonzero((ends[1:] != ends[:-1]) | (first[1:] != first[:-1])) + 1
    yield from pairwise([0, *changes.tolist(), len(ends)])


def no_windows(job: Job) -> JobWindows:
    """Nothing yet, with the columns that will come."""
    columns = ", ".join(f"NULL::{o.type} AS {quote(o.name)}" for o in job.outputs)
    mine = [WINDOW_END] if job.shape.gap is None else _SESSION
    ours = ", ".join([f"NULL::INTEGER AS {WINDOW}", *(f"NULL::BIGINT AS {name}" for name in mine)])
    rows = run(f"SELECT {ours}, {columns} LIMIT 0", {}, f"describing job {job.name}")
    return JobWindows(job, rows, {}, {})


@dataclass(frozen=True)
class Emission:
    """What leaves the pipeline after one batch."""

    windows: list[JobWindows] = field(default_factory=list)
    blocks: dict[str, list[bytes]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def results(self) -> Iterator[Result]:
        for windows in self.windows:
            yield from windows.results()
