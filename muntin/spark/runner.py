"""Runs a program on Spark: batch after batch, each committed before the next.

The loop is ours rather than a streaming query's, because positions, panes and results then
become final in one commit, and a batch costs no planning by Spark.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any

from pyspark import SparkContext

from muntin.logs.events import FileEvents
from muntin.logs.tail import BATCH_BYTES
from muntin.model import Job, Program, Stream
from muntin.run.agents import Agents
from muntin.run.catalog import Catalog
from muntin.run.files import LogFiles
from muntin.run.loop import POLL_SECONDS, Clock, Loop, Rules, Turn
from muntin.run.progress import Progress
from muntin.schedule.pace import Pace, rest_after
from muntin.spark.collection import SparkCollection
from muntin.spark.trouble import explained
from muntin.store.hold import StateHold, locked
from muntin.store.journal import Journal
from muntin.windows.choice import Sharing
from muntin.wire.keys import Keys


@dataclass(frozen=True)
class Settings:
    """How to run. `follow` waits for more; otherwise the input is finite."""

    state: Path
    follow: bool
    idle_seconds: float = 10.0
    batch_bytes: int = BATCH_BYTES
    seconds: float | None = None
    sharing: Sharing = "auto"
    keys: Keys | None = None  # for agents


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
    stopped: list[str] = field(default_factory=list)  # jobs that had too many errors
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
            "stopped": self.stopped,
            "open_by_job": {job: records for job, (records, _) in self.open.items()},
        }


class StreamRun:
    """One stream of a program, from the logs where they are to its tables."""

    def __init__(
        self,
        context: SparkContext,
        stream: Stream,
        jobs: Sequence[Job],
        settings: Settings,
        clock: Clock = time.time,
        others: Iterable[str] = (),
    ) -> None:
        """`others` are the streams of the program beside this one."""
        catalog = Catalog.of(stream, jobs)
        follow = settings.follow
        self._collection = SparkCollection(context, once=not catalog.in_order(follow))
        journal = Journal(settings.state, catalog, self._collection, others)
        self._events = FileEvents() if follow else None
        self.intake: LogFiles | Agents
        sharing = settings.sharing
        if stream.agents:
            self.intake, sharing = (
                Agents(stream, journal.progress.pipeline, settings.keys, settings.idle_seconds),
                "shared",
            )
        else:
            self.intake = LogFiles(
                stream,
                follow,
                journal.positions,
                settings.batch_bytes,
                lanes=2 * self._collection.groups,  # for tasks of about the same size
                events=self._events,
            )
        rules = Rules(follow, settings.idle_seconds, sharing)
        self.loop = Loop(catalog, self.intake, self._collection, journal, rules, clock, Pace())
        self._before = _totals(self.loop.progress)
        self._late_before = {name: late.records for name, late in self.loop.progress.late.items()}

    def add_to(self, summary: Summary) -> None:
        """What this run has done."""
        progress = self.loop.progress
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
        for name in self.loop.catalog.jobs:
            records, windows = self.loop.waiting(name)
            if records:
                summary.open[name] = records, windows
        summary.stopped += self.loop.stopped
        summary.resumed |= any(self._before)

    def close(self) -> None:
        self.intake.close()
        if self._events is not None:
            self._events.close()
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
        hold: StateHold | None = None,
    ) -> None:
        """Who holds the state folder already says so; otherwise it is held from the first turn."""
        self._hold = hold
        self._clock = clock
        self._program = program
        self._context = context
        self._settings = settings
        self.stop = stop or Event()
        self.summary = Summary()

    def turns(self) -> Iterator[Turn]:
        with ExitStack() as stack:
            hold = self._hold or stack.enter_context(locked(self._settings.state))
            runs = [self._open(stream, stack) for stream in self._streams()]
            started = time.monotonic()
            try:
                for turn in self._turns(runs, started, hold):
                    if turn.bytes or turn.emission.windows:
                        self.summary.seconds = time.monotonic() - started
                    yield turn
            finally:
                for run in runs:
                    run.add_to(self.summary)

    def _streams(self) -> list[Stream]:
        return [s for s in self._program.streams.values() if self._program.jobs_of(s.name)]

    def _open(self, stream: Stream, stack: ExitStack) -> StreamRun:
        jobs = self._program.jobs_of(stream.name)
        others = self._program.streams
        run = StreamRun(self._context, stream, jobs, self._settings, self._clock, others)
        stack.callback(run.close)
        if not self._settings.follow:
            run.intake.require()
        return run

    def _turns(self, runs: list[StreamRun], started: float, hold: StateHold) -> Iterator[Turn]:
        seconds = self._settings.seconds
        while runs and not self.stop.is_set():
            begun = time.monotonic()
            taken: list[tuple[StreamRun, Turn]] = []
            for run in runs:
                with hold.in_use(), explained(self._settings.state):
                    turn = run.loop.turn(_first(runs))
                taken.append((run, turn))
                yield turn  # it is final, and may not wait for a stream that may fail
            behind = [run for run, turn in taken if turn.remaining]
            runs = runs if self._settings.follow else behind
            if seconds is not None and time.monotonic() - started >= seconds:
                return
            if self._settings.follow and not behind:
                for run in runs:
                    run.loop.tidy()
                wake_at = _first(runs)
                rest = POLL_SECONDS
                if any(turn.bytes for _, turn in taken):
                    rest = rest_after(time.monotonic() - begun, POLL_SECONDS)
                until = rest if wake_at is None else wake_at - self._clock()
                self.stop.wait(max(0.0, min(rest, until)))


def _first(runs: Sequence[StreamRun]) -> float | None:
    """When the next windows of any stream have to set off: streams take turns."""
    return min((at for run in runs if (at := run.loop.wake_at()) is not None), default=None)


def _totals(progress: Progress) -> tuple[int, int, int, int]:
    return progress.records, progress.bytes, progress.bad, progress.windows
