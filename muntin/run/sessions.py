"""Sessions that leave: which ones of a job, and what each of them counts and scores.

    answer ─► WaitingSessions: rows in tasks ─► tasks score and write ─► StoredSessions: in files

Every session is a window of its own, so that what is known of each is as much as its rows. Where
these are many, tasks are told what decides (`Verdict`: the board, a few numbers by source), and
tell what all of their sessions come to together.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from muntin.fidelity.score import C2, NEVER, Board, Reason, State
from muntin.fidelity.timing import Timing
from muntin.kernel.statements import SESSION_START, WINDOW_END
from muntin.model.counts import Counts, Fault
from muntin.model.jobs import Job
from muntin.run.many import Part, Parts, Stored, Writer
from muntin.run.results import SESSION, AtHand, Departing, JobWindows, Kind, Result, runs_of


@dataclass(frozen=True)
class Verdict:
    """Which sessions of a job leave, and how complete they are."""

    board: Board
    began: int = NEVER  # sessions that start before it are not the job's
    before: int | None = None  # nor are those that start here or later
    until: int | None = None  # it has failed there: sessions that end later do not leave
    lags_after: int | None = None  # lags are counted of those that end later; None: of none

    def leaves(self, starts: pa.ChunkedArray, ends: pa.ChunkedArray) -> pa.ChunkedArray:
        """Which sessions with these bounds leave."""
        mine = pc.greater_equal(starts, self.began)
        if self.before is not None:
            mine = pc.and_(mine, pc.less(starts, self.before))
        return mine if self.until is None else pc.and_(mine, pc.less_equal(ends, self.until))

    def sessions(self, job: Job, rows: pa.Table) -> JobWindows:
        """The sessions that leave, of ordered rows; all rows of a session are among them.

        Each counts the records it has, and late ones of its key.
        """
        rows = rows.filter(self.leaves(rows[SESSION_START], rows[WINDOW_END]))
        counts: dict[Kind, Counts] = {}
        columns = (rows.column(name).to_pylist() for name in SESSION)
        for start, end, records, late in zip(*columns, strict=True):
            count = Counts(records + late, late=late)
            counts[start, end] = counts[start, end] + count if (start, end) in counts else count
        scores = {kind: self.score(*kind, count) for kind, count in counts.items()}
        return JobWindows(job, rows, counts, scores)

    def score(self, start: int, end: int, counts: Counts) -> C2:
        """Between two positions where something is known of a source, all sessions score alike."""
        limits, gaps, known = self._known
        between = bisect_left(limits, end), bisect_right(gaps, start), bisect_left(gaps, end)
        if between not in known:
            known[between] = _score(self.board, start, end)
        return _less(known[between], counts) if counts.late else known[between]

    @cached_property
    def _known(self) -> tuple[list[int], list[int], dict[tuple[int, int, int], C2]]:
        tracks = self.board.tracks.values()
        limits = sorted({at for t in tracks for at in (t.first, t.until, t.whole)})
        return limits, sorted({at for t in tracks for gap in t.never for at in gap[:2]}), {}

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in vars(self).items() if name != "_known"}


def _score(board: Board, start: int, end: int) -> C2:
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


@dataclass(frozen=True)
class Totals:
    """What some sessions come to together."""

    windows: int = 0
    rows: int = 0
    timing: Timing = field(default_factory=Timing)
    last: tuple[Kind, Counts, C2] | None = None  # the one that ends last
    lacking: Mapping[str, int] = field(default_factory=dict)
    """By source of which some lack something, where the first of them ends."""

    @classmethod
    def of(cls, windows: JobWindows, lags_after: int | None) -> Totals:
        """Of sessions with the time at which they leave."""
        timing, lacking, within = Timing(), dict[str, int](), windows.job.bounds.within_us
        left_us = int(windows.at * 1e6)
        for (_, end), c2 in windows.scores.items():
            late = left_us - end if lags_after is not None and end > lags_after else None
            timing.leave(c2, late, within)
            for missing in c2.missing:
                lacking[missing.source] = min(end, lacking.get(missing.source, end))
        if not windows.counts:
            return cls()
        last = windows.last
        told = last, windows.counts[last], windows.scores[last]
        return cls(windows.num_windows, windows.num_rows, timing, told, lacking)

    def plus(self, other: Totals) -> Totals:
        """Of others, too, none of which is among these."""
        lasts = [each for each in (self.last, other.last) if each is not None]
        lacking = dict(self.lacking)
        for source, end in other.lacking.items():
            lacking[source] = min(end, lacking.get(source, end))
        return Totals(
            self.windows + other.windows,
            self.rows + other.rows,
            self.timing.plus(other.timing),
            max(lasts, key=lambda each: (each[0][1], -each[0][0]), default=None),
            lacking,
        )


class WaitingRows(Protocol):
    """Rows of a job's sessions that tasks have."""

    @property
    def faults(self) -> Sequence[tuple[Kind, Fault]]:
        """What has failed on the way to them, and in which window."""

    def write(
        self, sessions: WaitingSessions, writer: Writer, first: int
    ) -> tuple[list[Part], Totals]:
        """Has tasks order, score and store those that leave, numbered from the `first` on."""

    def let_go(self) -> None:
        """Says that the rows are not needed any more."""


@dataclass(frozen=True)
class WaitingSessions(Departing):
    """Sessions whose rows tasks have: nothing is known of any of them before they are stored."""

    job: Job
    waiting: WaitingRows
    verdict: Verdict
    counts: Mapping[Kind, Counts] = field(default_factory=dict)
    scores: Mapping[Kind, C2] = field(default_factory=dict)
    revisions: Mapping[Kind, int] = field(default_factory=dict)
    at: float = 0.0


@dataclass(frozen=True)
class StoredSessions(Stored):
    """Sessions whose rows are in files, of which it is told what all come to together."""

    job: Job
    parts: Parts
    files: tuple[Part, ...]
    verdict: Verdict
    totals: Totals
    counts: Mapping[Kind, Counts] = field(default_factory=dict)
    scores: Mapping[Kind, C2] = field(default_factory=dict)
    revisions: Mapping[Kind, int] = field(default_factory=dict)
    at: float = 0.0
    only: Kind | None = None  # the one session that is asked for

    @classmethod
    def of(
        cls, waiting: WaitingSessions, parts: Parts, files: Sequence[Part], totals: Totals
    ) -> StoredSessions:
        """The same sessions once their rows are in files."""
        told = {} if totals.last is None else {totals.last[0]: totals.last[1:]}
        counts = {kind: count for kind, (count, _) in told.items()}
        scores = {kind: c2 for kind, (_, c2) in told.items()}
        job, verdict, at = waiting.job, waiting.verdict, waiting.at
        return cls(job, parts, tuple(files), verdict, totals, counts, scores, at=at)

    @property
    def num_windows(self) -> int:
        return self.totals.windows

    @property
    def num_rows(self) -> int:
        return self.totals.rows

    def newest(self) -> StoredSessions:
        return replace(self, only=self.last)

    def results(self) -> Iterator[Result]:
        columns = [output.name for output in self.job.outputs]
        for rows in _whole(self.tables()):
            starts, ends = (rows[name].cast(pa.int64()).to_numpy() for name in _BOUNDS)
            read, late = (rows[name].to_numpy() for name in ("records_read", "records_late"))
            for begin, stop in runs_of(starts, ends):
                counts = Counts(int(read[begin]), late=int(late[begin]))
                start, end = int(starts[begin]), int(ends[begin])
                yield AtHand(
                    self.job.title,
                    self.name((start, end)),
                    start,
                    end,
                    rows.slice(begin, stop - begin).select(columns),
                    stop - begin,
                    counts,
                    self.verdict.score(start, end, counts),
                    version=self.job.edition.number,
                    used=self.used((start, end)),
                )

    def tables(self) -> Iterator[pa.Table]:
        only = self.only
        yield from self.parts.tables(only and (self.name(only), *self.bounds(only)))


_BOUNDS = ("window_start", "window_end")


def _whole(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Stored rows in their order, cut between sessions."""
    held: pa.Table | None = None
    for table in tables:
        rows = table if held is None else pa.concat_tables([held, table])
        first = _last_begins(*(rows[name].cast(pa.int64()).to_numpy() for name in _BOUNDS))
        if first:
            yield rows.slice(0, first)
        held = rows.slice(first)
    if held is not None:
        yield held


def in_sessions(rows: pa.Table, most: int) -> Iterator[pa.Table]:
    """Ordered rows, about so many at a time, cut between sessions."""
    starts, ends = (rows[name].to_numpy() for name in (SESSION_START, WINDOW_END))
    cuts = np.flatnonzero((starts[1:] != starts[:-1]) | (ends[1:] != ends[:-1])) + 1
    begin = 0
    while begin < rows.num_rows:
        next_ = np.searchsorted(cuts, begin + most)
        stop = int(cuts[next_]) if next_ < len(cuts) else rows.num_rows
        yield rows.slice(begin, stop - begin)
        begin = stop


def _last_begins(starts: np.ndarray, ends: np.ndarray) -> int:
    """The row with which the last session begins."""
    changes = np.flatnonzero((starts[1:] != starts[:-1]) | (ends[1:] != ends[:-1]))
    return int(changes[-1]) + 1 if len(changes) else 0
