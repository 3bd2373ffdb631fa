"""The whole path in one process, no JVM: what `muntin try` runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import pyarrow as pa

from muntin.kernel.finish import finish, order
from muntin.kernel.merge import merge, without
from muntin.logs.chunks import PIECE_BYTES
from muntin.logs.records import Report, read_lane
from muntin.logs.tail import BATCH_BYTES, Lane, Tail
from muntin.model import Job, Program, Result, Stream
from muntin.pipeline import Answer, Due, JobWindows, Pipeline


def ignore(_: object) -> None:
    """For callers who do not want to be told."""


class InlineCollection:
    """Blocks in this process's memory, one per job."""

    def __init__(self, stream: Stream, jobs: Sequence[Job]) -> None:
        self._stream = stream
        self._jobs = {job.name: job for job in jobs}
        self._blocks: dict[str, pa.Table] = {}

    def read(self, lanes: Sequence[Lane], slack_us: int | None) -> list[Report]:
        reports = []
        found: dict[str, list[pa.Table]] = {name: [block] for name, block in self._blocks.items()}
        for lane in lanes:
            blocks, report = read_lane(lane, self._stream, list(self._jobs.values()), slack_us)
            reports.append(report)
            for name, block in blocks.items():
                found.setdefault(name, []).append(block)
        self._blocks = {name: merge(self._jobs[name], blocks) for name, blocks in found.items()}
        return reports

    def answer(self, due: Due, save: bool) -> Answer:
        rows = {}
        for name, ends in due.items():
            if name in self._blocks:
                job = self._jobs[name]
                rows[name] = order(job, [finish(job, self._blocks[name], ends)])
        return Answer(rows)

    def forget(self, emitted: Mapping[str, int]) -> None:
        for name, end in emitted.items():
            if name in self._blocks:
                self._blocks[name] = without(self._jobs[name], self._blocks[name], end)


def run_inline(program: Program, note: Callable[[str], None] = ignore) -> Iterator[Result]:
    """Every result of every job over what the files hold now."""
    for windows in windows_inline(program, note):
        yield from windows.results()


def windows_inline(
    program: Program,
    note: Callable[[str], None] = ignore,
    done: Callable[[Pipeline], None] = ignore,
    batch_bytes: int = BATCH_BYTES,
    piece_bytes: int = PIECE_BYTES,
) -> Iterator[JobWindows]:
    """The windows of every job as they leave; each pipeline is handed to `done` at its end."""
    for stream in program.streams.values():
        jobs = program.jobs_of(stream.name)
        if not jobs:
            continue
        tail = Tail(stream, False, (), batch_bytes, piece_bytes, tasks=batch_bytes)
        pipeline = Pipeline(stream, jobs, InlineCollection(stream, jobs), follow=False)
        yield from _drain(tail, pipeline, note)
        done(pipeline)


def _drain(tail: Tail, pipeline: Pipeline, note: Callable[[str], None]) -> Iterator[JobWindows]:
    tail.require_files()
    final = False
    while not final:
        now = time.time()
        batch = tail.next_batch(now, in_order=pipeline.slack_us is not None)
        for text in pipeline.read(batch, now):
            note(text)
        final = not batch.remaining
        yield from pipeline.emit(now, final, behind=batch.behind).windows
