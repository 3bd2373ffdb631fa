"""Runs a program on Spark: batch after batch, each committed before the next.

The loop is ours rather than a streaming query's, because positions, panes and results then
become final in one commit, and a batch costs no planning by Spark. `benchmarks/README.md` has
the figures; `attach` takes any streaming DataFrame through the same pipeline.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any

from pyspark import SparkContext

from muntin.logs.events import FileEvents
from muntin.logs.tail import BATCH_BYTES, Tail
from muntin.model import Job, Program, Stream
from muntin.run.pipeline import Pipeline, in_order
from muntin.run.progress import Progress
from muntin.run.results import Emission
from muntin.spark.collection import SparkCollection
from muntin.spark.outlet import POLL_SECONDS, Clock, Outlet
from muntin.store.checkpoint import locked
from muntin.store.journal import Journal
from muntin.windows.choice import Sharing


@dataclass(frozen=True)
class Settings:
    """How to run. `follow` waits for more; otherwise the input is finite."""

    state: Path
    follow: bool
    idle_seconds: float = 10.0
    batch_bytes: int = BATCH_BYTES
    seconds: float | None = None
    sharing: Sharing = "auto"


@dataclass(frozen=True)
class Step:
    """One batch of one stream, told to whoever watches."""

    stream: str
    emission: Emission
    bytes: int
    remaining: int
    records: int  # of the stream so far
    notes: Sequence[str]


@dataclass
class Summary:
    """What a run came to. Seconds are from the first read to the last commit."""

    records: int = 0
    bytes: int = 0
    bad: int = 0
    windows: int = 0
    seconds: float = 0.0
    late: dict[str, int] = field(default_factory=dict)
    slack_us: dict[str, int] = field(default_factory=dict)
    open: dict[str, tuple[int, int]] = field(default_factory=dict)  # job -> records, windows
    resumed: bool = False  # whether an earlier run had read anything

    @property
    def mb_per_second(self) -> float:
        return self.bytes / 1e6 / self.seconds if self.seconds else 0.0

    def to_json(self) -> dict[str, Any]:
        return {
            "records": self.records,
            "bytes": self.bytes,
            "bad": self.bad,
            "late": sum(self.late.values()),
            "windows": self.windows,
            "seconds": round(self.seconds, 3),
            "mb_per_second": round(self.mb_per_second, 1),
            "late_by_job": self.late,
            "slack_needed_us": self.slack_us,
            "open_by_job": {job: records for job, (records, _) in self.open.items()},
        }


class StreamRun:
    """One stream: its tail, its pipeline and its journal."""

    def __init__(
        self,
        context: SparkContext,
        stream: Stream,
        jobs: Sequence[Job],
        settings: Settings,
        clock: Clock = time.time,
    ) -> None:
        self._stream = stream
        self._settings = settings
        self._clock = clock
        self._remaining = 0
        self._unsaved = False  # whether something was read since the last commit
        once = not in_order(stream, jobs, settings.follow)
        self._collection = SparkCollection(context, stream, jobs, once)
        self._journal = Journal(settings.state, stream, jobs, self._collection)
        self.pipeline = Pipeline(
            stream,
            jobs,
            self._collection,
            settings.follow,
            settings.idle_seconds,
            self._journal.progress,
            settings.sharing,
        )
        self._outlet = Outlet(self.pipeline, self._journal, settings.follow, clock)
        self.tail = Tail(
            stream,
            settings.follow,
            self._journal.positions,
            settings.batch_bytes,
            lanes=2 * self._collection.groups,  # for tasks of about the same size
            events=FileEvents() if settings.follow else None,
        )
        self._notes = self._journal.notes
        self._before = _totals(self.pipeline.progress)
        self._late_before = {
            name: late.records for name, late in self.pipeline.progress.late.items()
        }

    def wake_at(self) -> float | None:
        """When windows with a deadline have to set off, if one is open."""
        return self._outlet.wake_at()

    def step(self, wake_at: float | None = None) -> Step:
        """Reads, emits and commits one batch, a short one where windows have to set off soon."""
        started = self._clock()
        first = self._outlet.leave_first(started, wake_at)
        if first.windows:
            return self._told(first, 0, first.notes)
        most = self._outlet.most(started, wake_at)
        batch = self.tail.next_batch(started, self.pipeline.in_order, most)
        notes = [*self._notes, *first.notes, *self.pipeline.read(batch, started)]
        self._notes, self._remaining = [], batch.remaining
        if batch.lanes:
            self._outlet.took(batch.bytes, self._clock() - started)
            self._unsaved = True
        final, emission = not self._settings.follow and not batch.remaining, Emission()
        # Where order does not matter, a finite run emits at its end only, and until then has
        # nothing to save.
        if final or self.pipeline.in_order:
            emission = self._outlet.leave(
                started, final, self._unsaved, batch.behind, batch.positions
            )
            self._unsaved = False
        notes += emission.notes
        if final:
            notes += self._journal.tidy()
        return self._told(emission, batch.bytes, notes)

    def tidy(self) -> None:
        """What can wait until there is nothing to read."""
        self._notes += self._journal.tidy()

    def _told(self, emission: Emission, size: int, notes: Sequence[str]) -> Step:
        records = self.pipeline.progress.records
        return Step(self._stream.name, emission, size, self._remaining, records, notes)

    def add_to(self, summary: Summary) -> None:
        """What this run has done."""
        progress = self.pipeline.progress
        done = [now - before for now, before in zip(_totals(progress), self._before, strict=True)]
        summary.records += done[0]
        summary.bytes += done[1]
        summary.bad += done[2]
        summary.windows += done[3]
        for name, late in progress.late.items():
            lost = late.records - self._late_before.get(name, 0)
            if lost:
                summary.late[name] = lost
                summary.slack_us[name] = late.slack_us
        for name in self.pipeline.jobs:
            records, windows = self.pipeline.waiting(name)
            if records:
                summary.open[name] = records, windows
        summary.resumed |= any(self._before)

    def close(self) -> None:
        self._collection.clear()


class SparkRun:
    """All streams of a program, in turns, until the input ends or somebody says stop."""

    def __init__(
        self,
        program: Program,
        context: SparkContext,
        settings: Settings,
        stop: Event | None = None,
        clock: Clock = time.time,
    ) -> None:
        self._clock = clock
        self._program = program
        self._context = context
        self._settings = settings
        self.stop = stop or Event()
        self.summary = Summary()

    def steps(self) -> Iterator[Step]:
        with ExitStack() as stack:
            stack.enter_context(locked(self._settings.state))
            runs = [self._open(stream, stack) for stream in self._streams()]
            started = time.monotonic()
            try:
                for step in self._turns(runs, started):
                    if step.bytes or step.emission.windows:
                        self.summary.seconds = time.monotonic() - started
                    yield step
            finally:
                for run in runs:
                    run.add_to(self.summary)

    def _streams(self) -> list[Stream]:
        return [s for s in self._program.streams.values() if self._program.jobs_of(s.name)]

    def _open(self, stream: Stream, stack: ExitStack) -> StreamRun:
        jobs = self._program.jobs_of(stream.name)
        run = StreamRun(self._context, stream, jobs, self._settings, self._clock)
        stack.callback(run.close)
        if not self._settings.follow:
            run.tail.require_files()
        return run

    def _turns(self, runs: list[StreamRun], started: float) -> Iterator[Step]:
        seconds = self._settings.seconds
        while runs and not self.stop.is_set():
            taken = [(run, run.step(_first(runs))) for run in runs]
            yield from (step for _, step in taken)
            behind = [run for run, step in taken if step.remaining]
            runs = runs if self._settings.follow else behind
            if seconds is not None and time.monotonic() - started >= seconds:
                return
            if self._settings.follow and not behind:
                for run in runs:
                    run.tidy()
                wake_at = _first(runs)
                until = POLL_SECONDS if wake_at is None else wake_at - self._clock()
                self.stop.wait(max(0.0, min(POLL_SECONDS, until)))


def _first(runs: Sequence[StreamRun]) -> float | None:
    """When the next windows of any stream have to set off: streams take turns."""
    return min((at for run in runs if (at := run.wake_at()) is not None), default=None)


def _totals(progress: Progress) -> tuple[int, int, int, int]:
    return progress.records, progress.bytes, progress.bad, progress.windows
