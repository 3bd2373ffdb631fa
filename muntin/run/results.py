"""What leaves a pipeline: windows of jobs, as results and as rows to store."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from muntin.fidelity.score import C2, Board, Reason, State
from muntin.kernel.block import Block
from muntin.kernel.engine import quote, run
from muntin.kernel.kinds import kind_of
from muntin.kernel.statements import (
    SESSION_LATE,
    SESSION_RECORDS,
    SESSION_START,
    WINDOW,
    WINDOW_END,
)
from muntin.model import Counts, Job
from muntin.units import FIRST_US, LAST_US

Kind = tuple[int, int]  # which of the job's windows and the pane it ends before; or a session
Numbers = NDArray[np.int64]
_TIMES = pa.timestamp("us", "UTC")
_ROWS_AT_ONCE = 32_768  # that are made ready for storing


@dataclass(frozen=True)
class Result:
    """The rows of one job for one window `[start, end)`: microseconds of time, or a count.

    `window` says which of the job's windows it is, for example `1 hour every 5 minutes`. Where
    late data has changed it since, `revision` counts the times that it has left before.
    """

    job: str
    window: str
    start: int
    end: int
    rows: pa.Table
    counts: Counts
    c2: C2
    revision: int = 0

    def to_pandas(self) -> Any:
        """A DataFrame; with dates out of Python's calendar, they are no objects of its own."""
        try:
            return self.rows.to_pandas()
        except (OverflowError, ValueError):
            return self.rows.to_pandas(date_as_object=False)


@dataclass(frozen=True)
class JobWindows:
    """Windows of one job that left together: their rows, ordered, their counts and scores.

    A session is told by where it starts and ends, any other window by its kind and last pane.
    """

    job: Job
    rows: pa.Table
    counts: Mapping[Kind, Counts]
    scores: Mapping[Kind, C2]
    revisions: Mapping[Kind, int] = field(default_factory=dict)
    at: float = 0.0  # when they have left

    def newest(self) -> JobWindows:
        """The last of the windows alone."""
        last = max(self.counts, key=lambda kind: (self.bounds(kind)[1], -kind[0]))
        first, ends = self._kinds()
        same = pa.array((first == last[0]) & (ends == last[1]))
        return replace(
            self,
            rows=self.rows.filter(same),
            counts={last: self.counts[last]},
            scores={last: self.scores[last]},
            revisions={last: self.revisions.get(last, 0)},
        )

    def bounds(self, kind: Kind) -> tuple[int, int]:
        return kind_of(self.job.shape).bounds(self.job, kind)

    def results(self) -> Iterator[Result]:
        """One result for each window with rows, in the order of windows.

        A revision that has none is a result too: it takes back what there was.
        """
        ours = [name for name in self.rows.column_names if name in _OURS]
        columns = self.rows.drop_columns(ours)
        first, ends = self._kinds()
        for start, stop in _runs(first, ends):
            kind = int(first[start]), int(ends[start])
            yield self._result(kind, columns.slice(start, stop - start))
        for kind in self._withdrawn():
            yield self._result(kind, columns.slice(0, 0))

    def _result(self, kind: Kind, rows: pa.Table) -> Result:
        return Result(
            self.job.name,
            kind_of(self.job.shape).name(self.job, kind),
            *self.bounds(kind),
            rows,
            self.counts[kind],
            self.scores[kind],
            self.revisions.get(kind, 0),
        )

    def _withdrawn(self) -> list[Kind]:
        """The windows whose revision has no rows."""
        revised = [kind for kind, revision in self.revisions.items() if revision]
        if not revised:
            return []
        first, ends = self._kinds()
        with_rows = set(zip(first.tolist(), ends.tolist(), strict=True))
        return [kind for kind in revised if kind not in with_rows]

    def table(self) -> pa.Table:
        """The rows as they are stored: job, window, columns, counts, score.

        A revision without rows is one row with nothing but its window and number.
        """
        return pa.concat_tables(self.tables(), promote_options="default")

    def tables(self) -> Iterator[pa.Table]:
        """The same, some rows at a time: tables are larger than the rows they are made of."""
        told: set[Kind] = set()  # whose records are in a row
        for start in range(0, max(1, self.rows.num_rows), _ROWS_AT_ONCE):
            yield replace(self, rows=self.rows.slice(start, _ROWS_AT_ONCE))._table(told)
        names, withdrawn = self._names, self._withdrawn()
        if withdrawn:
            columns = {
                "job": [self.job.name] * len(withdrawn),
                "window_name": [names[which] for which, _ in withdrawn],
                "window_start": self._shown([self.bounds(k)[0] for k in withdrawn]),
                "window_end": self._shown([self.bounds(k)[1] for k in withdrawn]),
                "revision": [self.revisions[k] for k in withdrawn],
                "emitted_at": pa.array([int(self.at * 1e6)] * len(withdrawn), _TIMES),
            }
            yield pa.table(columns)

    def _shown(self, positions: Numbers | Sequence[int]) -> pa.Array:
        """Bounds of windows: of time, no further than there are dates that everybody can read."""
        if not self.job.shape.axis.is_time:
            return pa.array(positions, pa.int64())
        return pa.array(np.clip(positions, FIRST_US, LAST_US)).cast(_TIMES)

    def _table(self, with_records: set[Kind]) -> pa.Table:
        which = pa.array(self.rows.column(WINDOW).to_numpy())
        starts, ends = self._all_bounds()
        columns = {
            "job": pa.repeat(pa.scalar(self.job.name), len(ends)),
            "window_name": pa.array(self._names, pa.string()).take(which),
            "window_start": self._shown(starts),
            "window_end": self._shown(ends),
        }
        columns |= {o.name: self.rows.column(o.name) for o in self.job.outputs}
        counted = np.zeros((len(ends), 5), np.int64)
        told = np.zeros(len(ends), np.int64)  # which of the scores
        scores: dict[C2, int] = {}  # equal ones are made once
        records: list[Any] = [None] * len(ends)  # of each window in its first row
        first, ends = self._kinds()
        for start, stop in _runs(first, ends):
            kind = int(first[start]), int(ends[start])
            counts, c2 = self.counts[kind], self.scores[kind]
            counted[start:stop, :4] = counts.read, counts.bad, counts.late, counts.failed
            counted[start:stop, 4] = self.revisions.get(kind, 0)
            told[start:stop] = scores.setdefault(c2, len(scores))
            if c2.records is not None and kind not in with_records:
                with_records.add(kind)
                by_source = zip(c2.names, c2.records, strict=True)
                records[start] = [{"source": name, "panes": panes} for name, panes in by_source]
        for number, name in enumerate(("read", "bad", "late", "failed")):
            columns[f"records_{name}"] = pa.array(counted[:, number])
        columns["c2"] = _stored(list(scores)).take(pa.array(told))
        columns["c2_records"] = pa.array(records, RECORDS)
        columns["revision"] = pa.array(counted[:, 4])
        columns["emitted_at"] = pa.repeat(pa.scalar(int(self.at * 1e6), _TIMES), len(ends))
        return pa.table(columns)

    @cached_property
    def _names(self) -> list[str]:
        return kind_of(self.job.shape).names(self.job)

    def _kinds(self) -> tuple[Numbers, Numbers]:
        return kind_of(self.job.shape).told(self.rows)

    def _all_bounds(self) -> tuple[Numbers, Numbers]:
        return kind_of(self.job.shape).all_bounds(self.job, self._kinds())


def _stored(scores: Sequence[C2]) -> pa.Array:
    return pa.array(
        [
            {
                "area": c2.area,
                "time": c2.time,
                "space": c2.space,
                "reason": str(c2.reason),
                "sources": c2.sources,
                "panes": [{"sources": count, "panes": panes} for count, panes in c2.runs],
                "missing": [missing._asdict() for missing in c2.missing],
            }
            for c2 in scores
        ],
        pa.struct(SCORE),
    )


_RUN = pa.struct([("sources", pa.int32()), ("panes", pa.int32())])
_MISSING = pa.struct([("source", pa.string()), ("why", pa.string()), ("panes", pa.int32())])
SCORE_IN_SHORT = {
    "area": pa.float64(),
    "time": pa.float64(),
    "space": pa.float64(),
    "reason": pa.string(),
}
SCORE = SCORE_IN_SHORT | {
    "sources": pa.int32(),
    "panes": pa.list_(_RUN),
    "missing": pa.list_(_MISSING),
}
RECORDS = pa.list_(pa.struct([("source", pa.string()), ("panes", pa.list_(pa.int64()))]))


def sessions(job: Job, rows: pa.Table, board: Board) -> JobWindows:
    """Sessions that left together; each counts the records it has, and late ones of its key."""
    columns = (rows.column(n).to_pylist() for n in _SESSION)
    counts: dict[Kind, Counts] = {}
    for start, end, records, late in zip(*columns, strict=True):
        count = Counts(records + late, late=late)
        counts[start, end] = counts.get((start, end), Counts()) + count
    # Between two positions where something is known of a source, all sessions score the same.
    limits = sorted({at for t in board.tracks.values() for at in (t.first, t.until, t.whole)})
    gaps = sorted({at for t in board.tracks.values() for g in t.never for at in g[:2]})
    known: dict[tuple[int, ...], C2] = {}
    scores: dict[Kind, C2] = {}
    for (start, end), count in counts.items():
        between = bisect_left(limits, end), bisect_right(gaps, start), bisect_left(gaps, end)
        if between not in known:
            known[between] = _session_score(board, start, end)
        scores[start, end] = known[between]
        if count.late:
            scores[start, end] = _less(known[between], count)
    return JobWindows(job, rows, counts, scores)


def _session_score(board: Board, start: int, end: int) -> C2:
    """A session counts as one pane, that sources have passed or not, or lost something of."""
    tracks = {}
    for name, track in board.tracks.items():
        inside = (gap for gap in track.never if gap.lower < end and gap.upper > start)
        gaps = tuple(gap._replace(lower=end - 1, upper=end) for gap in inside)
        tracks[name] = replace(track, never=gaps)
    c2 = replace(board, tracks=tracks).score(end - 1, end, Reason.COMPLETE)
    if c2.area == 1.0:
        return c2
    waited = any(t.rest is State.AWAITED and t.whole < end for t in board.tracks.values())
    return replace(c2, reason=Reason.DEADLINE if waited else Reason.EXHAUSTED)


def _less(c2: C2, counts: Counts) -> C2:
    """The score of a session without its late records: less by their share."""
    area = c2.area * (counts.read - counts.late) / counts.read
    return replace(c2, area=area, reason=Reason.EXHAUSTED if c2.area == 1.0 else c2.reason)


_SESSION = (SESSION_START, WINDOW_END, SESSION_RECORDS, SESSION_LATE)
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
    which, *others = kind_of(job.shape).columns
    ours = ", ".join([f"NULL::INTEGER AS {which}", *(f"NULL::BIGINT AS {n}" for n in others)])
    rows = run(f"SELECT {ours}, {columns} LIMIT 0", {}, f"describing job {job.name}")
    return JobWindows(job, rows, {}, {})


@dataclass(frozen=True)
class Emission:
    """What leaves in one turn: windows, blocks to save, and what there is to say."""

    windows: tuple[JobWindows, ...] = ()
    blocks: Mapping[str, Sequence[Block]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def with_notes(self, notes: Iterable[str]) -> Emission:
        """The same, with more to say."""
        return replace(self, notes=(*self.notes, *notes))

    def results(self) -> Iterator[Result]:
        for windows in self.windows:
            yield from windows.results()
