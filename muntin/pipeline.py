"""One stream's data path, a batch at a time; the runners differ only in the collection.

    next batch ─► compute ─► note what was read ─► which windows are due ─► finish ─► emit

A window is due when every source that holds it back has passed its end by the slack. Sources
that ended, or were idle for long enough, hold nothing back. On finite input without SLACK
nothing is late, so nothing is due before everything was read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from muntin.kernel.engine import quote, run
from muntin.kernel.statements import WINDOW_END
from muntin.logs.records import Report
from muntin.logs.tail import Batch, Lane
from muntin.model import Counts, Job, Result, Score, Stream
from muntin.windows.ledger import Ledger

Due = Mapping[str, Sequence[int]]  # job -> ends of its due windows, in order


@dataclass
class Answer:
    """Rows of due windows, ordered, by job (`w` is a window's end), and encoded blocks."""

    rows: dict[str, pa.Table] = field(default_factory=dict)
    blocks: dict[str, list[bytes]] = field(default_factory=dict)


class Collection(Protocol):
    """Where blocks are computed and kept until their windows are due."""

    def read(self, lanes: Sequence[Lane], slack_us: int | None) -> list[Report]:
        """Computes the lanes' blocks and keeps them as one more step."""

    def answer(self, due: Due, save: bool) -> Answer:
        """The due windows and, if asked, what has to be saved of the newest step."""

    def forget(self, emitted: Mapping[str, int]) -> None:
        """Drops panes that no window after `emitted` holds."""


@dataclass
class Source:
    """How far one source's time has come, and when it last had anything to say."""

    stream_time: int | None = None
    heard_at: float | None = None  # None after a restart, until the clock is known


@dataclass
class Lateness:
    """Late records of one job, and the slack that would have kept them all."""

    records: int = 0
    slack_us: int = 0


@dataclass
class Progress:
    """All that has to survive a restart, besides the blocks."""

    sources: dict[str, Source] = field(default_factory=dict)
    emitted_us: dict[str, int] = field(default_factory=dict)  # job -> end of its last window
    ledger: Ledger = field(default_factory=Ledger)
    late: dict[str, Lateness] = field(default_factory=dict)
    records: int = 0
    bad: int = 0
    bytes: int = 0
    windows: int = 0

    def counts(self, job: str) -> Counts:
        return Counts(self.records, self.bad, self.late.get(job, Lateness()).records)


@dataclass(frozen=True)
class JobWindows:
    """Windows of one job that left together: their rows, ordered, and their counts."""

    job: Job
    rows: pa.Table
    counts: Mapping[int, Counts]
    scores: Mapping[int, Score]

    def newest(self) -> JobWindows:
        """The last of the windows alone."""
        last = max(self.counts)
        rows = self.rows.filter(pc.equal(self.rows.column(WINDOW_END), last))
        return replace(self, rows=rows, counts={last: self.counts[last]})

    def results(self) -> Iterator[Result]:
        """One result for each window with rows, in the order of windows."""
        ends = self.rows.column(WINDOW_END).to_numpy()
        columns = self.rows.drop_columns([WINDOW_END])
        changes = np.flatnonzero(ends[1:] != ends[:-1]) + 1
        for start, stop in pairwise([0, *changes.tolist(), len(ends)] if len(ends) else []):
            end = int(ends[start])
            bounds = self.job.window.bounds_us(end)
            rows = columns.slice(start, stop - start)
            yield Result(self.job.name, *bounds, rows, self.counts[end], self.scores[end])

    def table(self) -> pa.Table:
        """The rows as they are stored: job, window, columns, counts."""
        ends = self.rows.column(WINDOW_END).to_numpy()
        window = self.job.window
        times = pa.timestamp("us", "UTC")
        columns = {
            "job": pa.repeat(pa.scalar(self.job.name), len(ends)),
            "window_start": pa.array((ends - window.length) * window.pane_us).cast(times),
            "window_end": pa.array(ends * window.pane_us).cast(times),
        }
        columns |= {o.name: self.rows.column(o.name) for o in self.job.outputs}
        known = np.array(sorted(self.counts), np.int64)
        at = np.searchsorted(known, ends)
        for name in ("read", "bad", "late"):
            counted = [getattr(self.counts[end], name) for end in known.tolist()]
            columns[f"records_{name}"] = pa.array(np.array(counted, np.int64)[at])
        return pa.table(columns)


def no_windows(job: Job) -> JobWindows:
    """Nothing yet, with the columns that will come."""
    columns = ", ".join(f"NULL::{o.type} AS {quote(o.name)}" for o in job.outputs)
    rows = run(
        f"SELECT NULL::BIGINT AS {WINDOW_END}, {columns} LIMIT 0", {}, f"describing job {job.name}"
    )
    return JobWindows(job, rows, {}, {})


@dataclass(frozen=True)
class Emission:
    """What leaves the pipeline after one batch."""

    windows: list[JobWindows] = field(default_factory=list)
    blocks: dict[str, list[bytes]] = field(default_factory=dict)

    def results(self) -> Iterator[Result]:
        for windows in self.windows:
            yield from windows.results()


class Pipeline:
    """The state of one stream and the decisions that follow from it."""

    def __init__(
        self,
        stream: Stream,
        jobs: Sequence[Job],
        collection: Collection,
        follow: bool,
        idle_seconds: float = 10.0,
        progress: Progress | None = None,
    ) -> None:
        self.stream = stream
        self.jobs = {job.name: job for job in jobs}
        self.collection = collection
        self.progress = progress or Progress()
        self._follow = follow
        self._idle_seconds = idle_seconds

    @property
    def slack_us(self) -> int | None:
        """None means that nothing can be late."""
        if self.stream.slack_us is None and self._follow:
            return 0
        return self.stream.slack_us

    def read(self, batch: Batch, now: float) -> tuple[str, ...]:
        """Reads a batch into the collection; returns what the user should know."""
        if not batch.lanes:
            return batch.notes
        reports = self.collection.read([self._dated(lane) for lane in batch.lanes], self.slack_us)
        self.progress.bytes += batch.bytes
        self.take(reports, now)
        notes = [note for report in reports for note in report.notes]
        return (*batch.notes, *dict.fromkeys(notes))

    def take(self, reports: Sequence[Report], now: float) -> None:
        """Notes what was read."""
        for report in reports:
            source = self.progress.sources.setdefault(report.source, Source())
            source.heard_at = now
            if report.last_us is not None:
                earlier = source.stream_time
                source.stream_time = (
                    max(earlier, report.last_us) if earlier is not None else report.last_us
                )
            self.progress.records += report.records
            self.progress.bad += report.bad
            self._count_late(report)
            self.progress.ledger.add(report.tallies)

    def emit(
        self, now: float, final: bool, save: bool = False, behind: frozenset[str] = frozenset()
    ) -> Emission:
        """The windows that are due after a batch; `final` when nothing more will come.

        Sources that are `behind` have more to be read at once, and so hold windows back.
        """
        for source in self.progress.sources.values():
            source.heard_at = now if source.heard_at is None else source.heard_at
        due = self.due(self._horizon(behind, now, final))
        if not due and not save:
            return Emission()
        answer = self.collection.answer(due, save)
        emission = Emission(
            [self._windows(name, due[name], rows) for name, rows in answer.rows.items()],
            answer.blocks,
        )
        self.close(due)
        return emission

    def _windows(self, name: str, ends: Sequence[int], rows: pa.Table) -> JobWindows:
        job = self.jobs[name]
        counts = {end: self.progress.ledger.counts(job.window, end) for end in ends}
        scores = {end: self._score(job, end) for end in ends}
        return JobWindows(job, rows, counts, scores)

    def _score(self, job: Job, end: int) -> Score:
        """How many of the known sources have passed the window's end."""
        end_us = end * job.window.pane_us
        times = [s.stream_time for s in self.progress.sources.values()]
        passed = sum(1 for t in times if not self._follow or (t is not None and t >= end_us))
        return Score(passed, len(times))

    def due(self, horizon: int | None) -> dict[str, list[int]]:
        """Windows not yet emitted that end at or before the horizon and hold records."""
        if horizon is None:
            return {}
        found = {}
        for name, job in self.jobs.items():
            panes = self.progress.ledger.panes(job.window.pane_us)
            last = horizon // job.window.pane_us
            ends = job.window.ends(panes, self._emitted(job), last)
            if ends:
                found[name] = ends
        return found

    def close(self, due: Due) -> None:
        """Remembers what was emitted and forgets what nobody needs any more."""
        for name, ends in due.items():
            self.progress.emitted_us[name] = ends[-1] * self.jobs[name].window.pane_us
            self.progress.windows += len(ends)
        emitted = {name: self._emitted(job) for name, job in self.jobs.items()}
        self.collection.forget({name: end for name, end in emitted.items() if end is not None})
        for pane_us in {job.window.pane_us for job in self.jobs.values()}:
            sharing = [j for j in self.jobs.values() if j.window.pane_us == pane_us]
            ends_ = [(j, emitted[j.name]) for j in sharing]
            needed = [j.window.oldest_pane(end) for j, end in ends_ if end is not None]
            if len(needed) == len(sharing):
                self.progress.ledger.forget(pane_us, min(needed))

    def _emitted(self, job: Job) -> int | None:
        """The pane number up to which a job's windows have left."""
        end_us = self.progress.emitted_us.get(job.name)
        return None if end_us is None else end_us // job.window.pane_us

    def _dated(self, lane: Lane) -> Lane:
        known = self.progress.sources.get(lane[0].source)
        return (replace(lane[0], since=known.stream_time if known else None), *lane[1:])

    def _horizon(self, behind: frozenset[str], now: float, final: bool) -> int | None:
        """The position before which no record is awaited, or None while that is unknown."""
        if final:
            return _EVER
        if self.slack_us is None:
            return None
        times = {n: s.stream_time for n, s in self.progress.sources.items()}
        if any(times.get(name) is None for name in behind):
            return None  # its first records are still to be read
        known = {n: t for n, t in times.items() if t is not None}
        holding = [t for n, t in known.items() if self._holds(n, behind, now)]
        if holding:
            return min(holding) - self.slack_us
        if not self._follow or not known:
            return None
        # All are silent. A clock that runs ahead must not close windows of the future.
        return min(max(known.values()) - self.slack_us, int(now * 1_000_000))

    def _holds(self, name: str, behind: frozenset[str], now: float) -> bool:
        heard_at = self.progress.sources[name].heard_at
        recent = heard_at is None or now - heard_at <= self._idle_seconds
        return name in behind or (self._follow and recent)

    def _count_late(self, report: Report) -> None:
        """A record is late for a job if at least one window it belongs to leaves it out."""
        for name, job in self.jobs.items():
            emitted = self._emitted(job)
            for tally in report.tallies:
                if tally.pane_us != job.window.pane_us or not tally.records:
                    continue
                first = job.window.first_end(tally.pane)
                marks = [m for m in (tally.not_before, emitted) if m is not None]
                if marks and first <= max(marks):
                    late = self.progress.late.setdefault(name, Lateness())
                    late.records += tally.records
                    needed = tally.stream_time - first * job.window.pane_us + 1
                    late.slack_us = max(late.slack_us, needed)


_EVER = (1 << 63) - 1
