"""The whole path in one process, no JVM: what `muntin try` runs."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import pyarrow as pa

from muntin.kernel.block import regrid
from muntin.kernel.compute import Cost, Recipe
from muntin.kernel.due import Due, Emitted, due_kinds
from muntin.kernel.finish import completed, finish
from muntin.kernel.kinds import kind_of
from muntin.kernel.merge import merge
from muntin.logs.chunks import PIECE_BYTES
from muntin.logs.records import Report, read_lane
from muntin.logs.tail import BATCH_BYTES, Lane, Tail
from muntin.model import Job, Program, Shape, Stream
from muntin.run.pipeline import Answer, Pipeline
from muntin.run.results import Emission, JobWindows, Result
from muntin.windows.choice import Sharing
from muntin.windows.shelf import Shelf


def ignore(_: object) -> None:
    """For callers who do not want to be told."""


class InlineCollection:
    """Blocks in this process's memory, one a shape."""

    def __init__(self, stream: Stream, piece_bytes: int = PIECE_BYTES) -> None:
        self._stream = stream
        self._piece_bytes = piece_bytes
        self._held: dict[str, tuple[int, pa.Table]] = {}  # a block, and the size of its panes
        self._shelf: Shelf[pa.Table] = Shelf()

    def read(
        self, lanes: Sequence[Lane], recipes: Sequence[Recipe], slack_us: int | None
    ) -> list[Report]:
        reports = []
        shapes = {recipe.shape.id: recipe.shape for recipe in recipes}
        every = {shape: [block] for shape, block in self._blocks(shapes).items()}
        for lane in lanes:
            blocks, report = read_lane(lane, self._stream, recipes, slack_us, self._piece_bytes)
            reports.append(report)
            for shape, block in blocks.items():
                every.setdefault(shape, []).append(block)
        for shape, tables in every.items():
            self._held[shape] = shapes[shape].pane, merge(shapes[shape], tables)
        self._shelf.drop_touched(shapes, [t for report in reports for t in report.tallies])
        return reports

    def answer(self, jobs: Mapping[str, Job], due: Due, save: object = None) -> Answer:
        rows: dict[str, pa.Table] = {}
        costs: dict[str, Cost] = {}
        ends: dict[str, int] = {}
        useful = self._shelf.useful(due_kinds(jobs, due))
        shapes = {job.shape.id: job.shape for job in jobs.values()}
        for shape, block in self._blocks(shapes).items():
            started = time.perf_counter()
            known = [(c.spec, c.rows) for c in useful if c.shape == shape]
            done = finish(shapes[shape], jobs, block, due, known)
            self._shelf.put(completed(shape, done.made))
            if done.rows:
                costs[shape] = Cost(0, block.num_rows, time.perf_counter() - started)
            if done.stays:
                whole = merge(shapes[shape], [block, *done.stays])
                self._held[shape] = shapes[shape].pane, whole
            ends |= done.ends
            rows |= done.rows
        ordered = {name: _ordered(jobs[name], table) for name, table in rows.items()}
        return Answer(ordered, costs=costs, ends=ends)

    def forget(self, jobs: Mapping[str, Job], emitted: Mapping[str, Emitted]) -> None:
        self._shelf.drop_before({shape: e.oldest_pane for shape, e in emitted.items()})
        shapes = {job.shape.id: job.shape for job in jobs.values()}
        needed = {}
        for shape, block in self._blocks(shapes).items():
            kind = kind_of(shapes[shape])
            rows = kind.without(kind.without_forgotten(block), emitted[shape])
            needed[shape] = shapes[shape].pane, rows
        self._held = needed

    def _blocks(self, shapes: Mapping[str, Shape]) -> dict[str, pa.Table]:
        """The blocks of these shapes, on the grids that they have now."""
        return {
            shape: regrid(table, pane, shapes[shape].pane)
            for shape, (pane, table) in self._held.items()
            if shape in shapes
        }


def _ordered(job: Job, rows: pa.Table) -> pa.Table:
    kind = kind_of(job.shape)
    return kind.order(job, [kind.later_rounds(job, [rows])])


def log(text: str) -> None:
    """For callers who do not say how to be told: Python prints it, unless told otherwise."""
    logging.getLogger("muntin").warning(text)


def run_inline(program: Program, note: Callable[[str], None] = log) -> Iterator[Result]:
    """Every result of every job over what the files hold now.

    `note` is given what there is to say: bad rows, exceptions in Python, jobs that stop.
    """
    for windows in windows_inline(program, note):
        yield from windows.results()


def windows_inline(
    program: Program,
    note: Callable[[str], None] = ignore,
    done: Callable[[Pipeline], None] = ignore,
    batch_bytes: int = BATCH_BYTES,
    piece_bytes: int = PIECE_BYTES,
    sharing: Sharing = "auto",
) -> Iterator[JobWindows]:
    """The windows of every job as they leave; each pipeline is handed to `done` at its end."""
    for stream in program.streams.values():
        jobs = program.jobs_of(stream.name)
        if not jobs:
            continue
        run = InlineRun(
            stream,
            jobs,
            batch_bytes=batch_bytes,
            piece_bytes=piece_bytes,
            sharing=sharing,
            note=note,
        )
        run.tail.require_files()
        while not run.is_over:
            yield from run.step(time.time()).windows
        done(run.pipeline)


class InlineRun:
    """One stream, step by step, by the clock of whoever makes the steps."""

    def __init__(
        self,
        stream: Stream,
        jobs: Sequence[Job],
        follow: bool = False,
        idle_seconds: float = 10.0,
        batch_bytes: int = BATCH_BYTES,
        piece_bytes: int = PIECE_BYTES,
        sharing: Sharing = "auto",
        note: Callable[[str], None] = ignore,
    ) -> None:
        self.tail = Tail(stream, follow, (), batch_bytes, piece_bytes, lanes=batch_bytes)
        collection = InlineCollection(stream, piece_bytes)
        self.pipeline = Pipeline(stream, jobs, collection, follow, idle_seconds, sharing=sharing)
        self.is_over = False
        self._follow = follow
        self._note = note

    def step(self, now: float) -> Emission:
        """Reads the next batch, and emits what is due then."""
        batch = self.tail.next_batch(now, self.pipeline.in_order)
        for text in self.pipeline.read(batch, now):
            self._note(text)
        self.is_over = not (self._follow or batch.remaining)
        emission = self.pipeline.emit(now, self.is_over, behind=batch.behind)
        for text in emission.notes:
            self._note(text)
        return self.pipeline.leave(emission, now)
