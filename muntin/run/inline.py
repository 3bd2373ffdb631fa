"""The whole path in one process, no JVM: what `muntin try` runs."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import pyarrow as pa

from muntin.errors import MuntinError
from muntin.kernel.block import regrid
from muntin.kernel.compute import Recipe
from muntin.kernel.due import Due, Emitted, due_kinds
from muntin.kernel.finish import completed, finish
from muntin.kernel.kinds import kind_of
from muntin.kernel.merge import merge
from muntin.kernel.reading import Cost, Reading
from muntin.logs.chunks import PIECE_BYTES
from muntin.logs.files import FilePosition
from muntin.logs.tail import BATCH_BYTES
from muntin.model import Job, Program, Shape, Stream
from muntin.run.catalog import Catalog, InForce
from muntin.run.contracts import Answer, Intake, Taken, TaskWork, Work
from muntin.run.files import LogFiles
from muntin.run.loop import Loop, Rules
from muntin.run.progress import Progress
from muntin.run.results import Emission, JobWindows, Result
from muntin.schedule.pace import Measure, Pace
from muntin.windows.choice import Sharing
from muntin.windows.shelf import Shelf


def ignore(_: object) -> None:
    """For callers who do not want to be told."""


def log(text: str) -> None:
    """For callers who do not say how to be told: Python prints it, unless told otherwise."""
    logging.getLogger("muntin").warning(text)


class InlineCollection:
    """Blocks in this process's memory, one a shape."""

    def __init__(self) -> None:
        self._held: dict[str, tuple[int, pa.Table]] = {}  # a block, and the size of its panes
        self._shelf: Shelf[pa.Table] = Shelf()

    def add(self, work: Work, recipes: Sequence[Recipe], final: Mapping[str, int]) -> list[Reading]:
        assert isinstance(work, TaskWork), f"{work} cannot be done in this process"
        taken = Taken(final)
        shapes = {recipe.shape.id: recipe.shape for recipe in recipes}
        readings: list[Reading] = []
        every = {shape: [block] for shape, block in self._blocks(shapes).items()}
        for task in work.tasks(1):
            for delivery in filter(taken.take, task.deliver(recipes)):
                readings += delivery.readings
                for shape, block in delivery.blocks.items():
                    every.setdefault(shape, []).append(block)
        for shape, tables in every.items():
            self._held[shape] = shapes[shape].pane, merge(shapes[shape], tables)
        self._shelf.drop_touched(shapes, [t for reading in readings for t in reading.tallies])
        return readings

    def answer(
        self, catalog: Catalog, due: Due, save: Mapping[str, Emitted] | None = None
    ) -> Answer:
        jobs, shapes = catalog.jobs, catalog.shapes
        rows: dict[str, pa.Table] = {}
        costs: dict[str, Cost] = {}
        ends: dict[str, int] = {}
        useful = self._shelf.useful(due_kinds(jobs, due))
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

    def forget(self, catalog: Catalog, emitted: Mapping[str, Emitted]) -> None:
        self._shelf.drop_before({shape: e.oldest_pane for shape, e in emitted.items()})
        needed = {}
        for id_, block in self._blocks(catalog.shapes).items():
            shape = catalog.shapes[id_]
            kind = kind_of(shape)
            needed[id_] = shape.pane, kind.without(kind.without_forgotten(block), emitted[id_])
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


class Unsaved:
    """A journal of runs that nobody takes up again."""

    def __init__(self, progress: Progress, before: InForce) -> None:
        self.progress = progress
        self.before = before
        self.notes: list[str] = []

    def commit(
        self,
        catalog: Catalog,
        emission: Emission,
        positions: tuple[FilePosition, ...] | None = None,
    ) -> None:
        pass

    def tidy(self) -> list[str]:
        return []


def run_inline(program: Program, note: Callable[[str], None] = log) -> Iterator[Result]:
    """Every result of every job over what the files hold now.

    `note` is given what there is to say: bad rows, exceptions in Python, jobs that stop.
    """
    for windows in windows_inline(program, note):
        yield from windows.results()


def windows_inline(
    program: Program,
    note: Callable[[str], None] = ignore,
    done: Callable[[Loop], None] = ignore,
    batch_bytes: int = BATCH_BYTES,
    piece_bytes: int = PIECE_BYTES,
    sharing: Sharing = "auto",
) -> Iterator[JobWindows]:
    """The windows of every job as they leave; each stream's loop is handed to `done` at its end."""
    for stream in program.streams.values():
        jobs = program.jobs_of(stream.name)
        if not jobs:
            continue
        files = LogFiles(stream, False, (), batch_bytes, piece_bytes)
        files.require()
        run = InlineRun(stream, jobs, Rules(False, sharing=sharing), note, files)
        while not run.is_over:
            yield from run.turn(time.time()).windows
        done(run.loop)


class InlineRun:
    """One stream, turn by turn, by the clock of whoever makes the turns."""

    def __init__(
        self,
        stream: Stream,
        jobs: Sequence[Job],
        rules: Rules,
        note: Callable[[str], None] = ignore,
        intake: Intake | None = None,
        collection: InlineCollection | None = None,
        progress: Progress | None = None,
    ) -> None:
        self._now = 0.0
        self._note = note
        self._rules = rules
        self.is_over = False
        catalog = Catalog.of(stream, jobs)
        before = InForce() if progress is None else catalog.in_force
        self.loop = Loop(
            catalog,
            intake or LogFiles(stream, rules.follow),
            collection or InlineCollection(),
            Unsaved(progress or Progress(), before),
            rules,
            lambda: self._now,
            Pace(Measure(0.0), Measure(0.0)),
        )

    def turn(self, now: float) -> Emission:
        """Reads the next batch, and emits what is due then."""
        self._now = now
        try:
            turn = self.loop.turn()
        except MuntinError:
            self._tell(self.loop.notes())
            raise
        self._tell(turn.notes)
        self.is_over = not (self._rules.follow or turn.remaining)
        return turn.emission

    def _tell(self, notes: Sequence[str]) -> None:
        for text in notes:
            self._note(text)
