"""Runs a program on Spark: batch after batch, each committed before the next."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any

from pyspark.sql import SparkSession

from muntin.logs.tail import BATCH_BYTES, Batch, Tail
from muntin.model import Job, Program, Stream
from muntin.pipeline import Emission, Pipeline, Progress
from muntin.spark.collection import SparkCollection
from muntin.store.checkpoint import Checkpoint, Saved, keep_known, locked, shape
from muntin.store.results import Results

SAVES_PER_REWRITE = 64
_POLL_SECONDS = 0.1


@dataclass(frozen=True)
class Settings:
    """How to run. `follow` waits for more; otherwise the input is finite."""

    state: Path
    follow: bool
    idle_seconds: float = 10.0
    batch_bytes: int = BATCH_BYTES


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

    def to_json(self) -> dict[str, Any]:
        return {
            "records": self.records,
            "bytes": self.bytes,
            "bad": self.bad,
            "late": sum(self.late.values()),
            "windows": self.windows,
            "seconds": round(self.seconds, 3),
            "mb_per_second": round(self.bytes / 1e6 / self.seconds, 1) if self.seconds else 0.0,
            "late_by_job": self.late,
            "slack_needed_us": self.slack_us,
        }


class StreamRun:
    """One stream's pipeline with its tail, its checkpoints and its results."""

    def __init__(
        self, session: SparkSession, stream: Stream, jobs: Sequence[Job], settings: Settings
    ) -> None:
        self.stream = stream
        self._settings = settings
        self._checkpoint = Checkpoint(settings.state, stream.name)
        self._results = Results(settings.state)
        self._collection = SparkCollection(session.sparkContext, stream, jobs)
        self._unsaved = 0
        self.notes: list[str] = []
        saved = self._checkpoint.load()
        if saved is not None:
            self._resume(saved, jobs)
        self._batch = saved.batch + 1 if saved else 0
        self.pipeline = Pipeline(
            stream,
            jobs,
            self._collection,
            settings.follow,
            settings.idle_seconds,
            saved.progress if saved else Progress(),
        )
        self.tail = Tail(
            stream,
            settings.follow,
            saved.positions if saved else (),
            settings.batch_bytes,
            tasks=2 * session.sparkContext.defaultParallelism,
        )

    def _resume(self, saved: Saved, jobs: Sequence[Job]) -> None:
        self._results.publish(saved.batch, saved.results)
        self.notes += keep_known(saved, {job.name: job for job in jobs})
        self._collection.restore(saved.blocks)

    def step(self, now: float) -> Step:
        """Reads, emits and commits one batch."""
        batch = self.tail.next_batch(now, in_order=self.pipeline.slack_us is not None)
        notes = (*self.notes, *self.pipeline.read(batch, now))
        self.notes = []
        final = not self._settings.follow and not batch.remaining
        # A finite run without SLACK emits at its end only, and until then has nothing to save.
        save = self._settings.follow or self.pipeline.slack_us is not None or final
        emission = self.pipeline.emit(batch, now, final, save)
        if save and (batch.lanes or emission.windows):
            self._commit(batch, emission)
        records = self.pipeline.progress.records
        return Step(self.stream.name, emission, batch.bytes, batch.remaining, records, notes)

    def _commit(self, batch: Batch, emission: Emission) -> None:
        tables = {windows.job.name: windows.table() for windows in emission.windows}
        saved = Saved(
            self._batch,
            self.pipeline.progress,
            batch.positions,
            {name: shape(job) for name, job in self.pipeline.jobs.items()},
            emission.blocks,
            tables,
        )
        self._unsaved += 1
        whole = self._unsaved >= SAVES_PER_REWRITE
        if whole:
            self._collection.compact()
            saved.blocks = self._collection.answer({}, save=True).blocks
            self._unsaved = 0
        self._checkpoint.save(saved, whole)
        self._results.publish(self._batch, tables)
        self._batch += 1

    def close(self) -> None:
        self._collection.clear()


def run_on_spark(
    program: Program,
    session: SparkSession,
    settings: Settings,
    seen: Callable[[Step], None] = lambda _: None,
    stop: Event | None = None,
    seconds: float | None = None,
) -> Summary:
    """Runs all jobs until the input ends, `stop` is set or the time is over."""
    stop = stop or Event()
    with ExitStack() as stack:
        stack.enter_context(locked(settings.state))
        runs = list(_open(program, session, settings))
        for run in runs:
            stack.callback(run.close)
        before = [_totals(run.pipeline.progress) for run in runs]
        started = ended = time.monotonic()
        open_runs = runs
        while open_runs and not stop.is_set():
            still_open = []
            waiting = True
            for run in open_runs:
                step = run.step(time.time())
                seen(step)
                if step.bytes or step.emission.windows:
                    ended = time.monotonic()
                if step.remaining or settings.follow:
                    still_open.append(run)
                waiting = waiting and not step.remaining
            open_runs = still_open
            if seconds is not None and time.monotonic() - started >= seconds:
                break
            if settings.follow and waiting:
                stop.wait(_POLL_SECONDS)
        return _summary(runs, before, ended - started)


def _open(program: Program, session: SparkSession, settings: Settings) -> Iterator[StreamRun]:
    for stream in program.streams.values():
        jobs = program.jobs_of(stream.name)
        if not jobs:
            continue
        run = StreamRun(session, stream, jobs, settings)
        if not settings.follow:
            run.tail.require_files()
        yield run


def _totals(progress: Progress) -> tuple[int, int, int, int]:
    return progress.records, progress.bytes, progress.bad, progress.windows


def _summary(
    runs: Sequence[StreamRun], before: Sequence[tuple[int, int, int, int]], seconds: float
) -> Summary:
    summary = Summary(seconds=seconds)
    for run, earlier in zip(runs, before, strict=True):
        progress = run.pipeline.progress
        now = _totals(progress)
        summary.records += now[0] - earlier[0]
        summary.bytes += now[1] - earlier[1]
        summary.bad += now[2] - earlier[2]
        summary.windows += now[3] - earlier[3]
        for name, late in progress.late.items():
            summary.late[name] = late.records
            summary.slack_us[name] = late.slack_us
    return summary
