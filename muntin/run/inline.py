"""The whole path in one process, no JVM: what `muntin try` runs."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa

from muntin.errors import MuntinError, OrderError
from muntin.kernel.block import regrid
from muntin.kernel.compute import Recipe
from muntin.kernel.due import NOTHING_BEFORE, Due, Emitted, due_jobs, due_kinds
from muntin.kernel.finish import completed, finish, order
from muntin.kernel.forms import Asked, finish_form, forms_of, merge_all, shared_cost
from muntin.kernel.kinds import kind_of
from muntin.kernel.kinds.kind import Missed
from muntin.kernel.merge import merge
from muntin.kernel.reading import Cost, Reading, added_costs
from muntin.logs.chunks import PIECE_BYTES
from muntin.logs.files import FilePosition
from muntin.logs.tail import BATCH_BYTES
from muntin.model.jobs import Job, Program
from muntin.model.shapes import Shape
from muntin.model.streams import Stream
from muntin.run.catalog import Catalog, InForce
from muntin.run.contracts import Answer, Intake, Taken, TaskWork, Work
from muntin.run.derived import Readers
from muntin.run.door import Door
from muntin.run.heirs import Heirs
from muntin.run.kept import program_of
from muntin.run.loop import Loop, Rules
from muntin.run.members import files_of, results_in
from muntin.run.progress import Progress
from muntin.run.results import Departing, Emission, Result
from muntin.run.steward import Steward
from muntin.schedule.pace import Measure, Pace
from muntin.windows.choice import Sharing
from muntin.windows.shelf import Shelf
from muntin.windows.spec import WindowSpec


def ignore(_: object) -> None:
    """For callers who do not want to be told."""


def log(text: str) -> None:
    """For callers who do not say how to be told: Python prints it, unless told otherwise."""
    logging.getLogger("muntin").warning(text)


class InlineCollection:
    """Blocks in this process's memory, one a shape."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        """By the clock it is measured how long answers take."""
        self._clock = clock
        self._held: dict[str, tuple[int, pa.Table]] = {}  # a block, and the size of its panes
        self._shelf: Shelf[pa.Table] = Shelf()

    def add(self, work: Work, recipes: Sequence[Recipe], final: Mapping[str, int]) -> list[Reading]:
        assert isinstance(work, TaskWork), f"{work} cannot be done in this process"
        taken, heirs = Taken(final), Heirs(recipes)
        shapes = {recipe.shape.id: recipe.shape for recipe in recipes}
        readings: list[Reading] = []
        every = {shape: [block] for shape, block in self._blocks(shapes).items()}
        for task in work.tasks(1):
            for delivery in map(heirs, filter(taken.take, task.deliver(recipes))):
                readings += delivery.readings
                for shape, block in delivery.blocks.items():
                    every.setdefault(shape, []).append(block)
        for shape, table in merge_all(shapes, every).items():
            self._held[shape] = shapes[shape].pane, table
        self._shelf.drop_touched(shapes, [t for reading in readings for t in reading.tallies])
        return readings

    def answer(
        self, catalog: Catalog, due: Due, save: Mapping[str, Emitted] | None = None
    ) -> Answer:
        jobs, shapes = catalog.jobs, catalog.shapes
        rows: dict[str, pa.Table] = {}
        costs: dict[str, Cost] = {}
        ends: dict[str, int] = {}
        missed: dict[str, Missed] = {}
        seconds: dict[str, float] = {}
        known: dict[str, list[tuple[WindowSpec, pa.Table]]] = {}
        for complete in self._shelf.useful(due_kinds(jobs, due)):
            known.setdefault(complete.shape, []).append((complete.spec, complete.rows))
        by_shape, blocks = due_jobs(jobs, due), self._blocks(shapes)
        asked = [
            Asked(mine, blocks[shape].num_rows, partial(blocks.__getitem__, shape))
            for shape, mine in by_shape.items()
            if shape in blocks and shape not in known
        ]
        for form in forms_of(asked, due):
            started = self._clock()
            finished = finish_form(form, due)
            took = self._clock() - started
            costs = added_costs(costs, shared_cost(form, took))
            seconds |= due.spread(finished, took)
            rows |= finished
        for shape, block in blocks.items():
            mine = {name: job for name, job in by_shape.get(shape, {}).items() if name not in rows}
            if not mine:
                continue
            started = self._clock()
            done = finish(shapes[shape], mine, block, due, known.get(shape, ()))
            self._shelf.put(completed(shape, done.made))
            if done.rows:
                took = self._clock() - started
                costs = added_costs(costs, {shape: Cost(0, block.num_rows, took)})
                seconds |= due.spread(done.rows, took)
            if done.stays:
                whole = merge(shapes[shape], [block, *done.stays])
                self._held[shape] = shapes[shape].pane, whole
            ends |= done.ends
            missed |= done.missed
            rows |= done.rows
        ordered: dict[str, pa.Table] = {}
        for name, table in rows.items():
            started = self._clock()
            ordered[name] = _ordered(jobs[name], table, due)
            seconds[name] += self._clock() - started
        return Answer(ordered, costs=costs, ends=ends, missed=missed, seconds=seconds)

    def forget(self, catalog: Catalog, emitted: Mapping[str, Emitted]) -> None:
        self._shelf.drop_before({shape: e.oldest_pane for shape, e in emitted.items()})
        needed = {}
        for id_, block in self._blocks(catalog.shapes).items():
            shape = catalog.shapes[id_]
            kind = kind_of(shape)
            needed[id_] = shape.pane, kind.without(kind.without_forgotten(block), emitted[id_])
        self._held = needed

    def inherit(self, catalog: Catalog, shape: str, heir: str) -> None:
        if shape in self._held:
            self._held[heir] = self._held[shape]

    def _blocks(self, shapes: Mapping[str, Shape]) -> dict[str, pa.Table]:
        """The blocks of these shapes, on the grids that they have now."""
        return {
            shape: regrid(table, pane, shapes[shape].pane)
            for shape, (pane, table) in self._held.items()
            if shape in shapes
        }


def _ordered(job: Job, rows: pa.Table, due: Due) -> pa.Table:
    whole = kind_of(job.shape).later_rounds(job, [rows])
    return order(job, [whole], due.previous.get(job.name, NOTHING_BEFORE))


class Unsaved:
    """A journal of runs that nobody takes up again."""

    def __init__(self, progress: Progress, before: InForce) -> None:
        self.progress = progress
        self.before = before
        self.notes: list[str] = []

    def store(self, catalog: Catalog, emission: Emission) -> Emission:
        return emission

    def commit(
        self,
        catalog: Catalog,
        emission: Emission,
        positions: tuple[FilePosition, ...] | None = None,
        whole: bool = False,
    ) -> Emission:
        return emission

    def require(self, job: Job) -> None:
        pass

    def keep_rows(self, name: str, rows: pa.Table) -> str | None:
        return None

    def tidy(self, room: float | None = None) -> list[str]:
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
) -> Iterator[Departing]:
    """The windows of every job as they leave; each stream's loop is handed to `done` at its end."""
    # What is kept for questions is asked of a state, which this leaves none of.
    every = (replace(stream, keep=None) for stream in program.streams.values())
    streams = [stream for stream in every if program.jobs_of(stream.name)]
    intakes = {s.name: files_of(s, False, (), batch_bytes, piece_bytes) for s in streams}
    rules = Rules(False, sharing=sharing)
    runs = {
        s.name: InlineRun(s, program.jobs_of(s.name), rules, note, intakes[s.name]) for s in streams
    }
    results = [each for intake in intakes.values() for each in results_in(intake)]
    readers = Readers(results, [run.loop for run in runs.values()])
    for name, run in runs.items():  # what reads results of others follows them
        intakes[name].require()
        while not run.is_over:
            emission = run.turn(time.time())
            readers.hand_on(run.loop, emission, run.is_over)
            yield from emission.windows
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
        door: Door | None = None,
    ) -> None:
        """Orders that are brought to the door are taken before each turn."""
        self._now = 0.0
        self._note = note
        self._rules = rules
        self.is_over = False
        catalog = Catalog.of(stream, jobs)
        before = InForce() if progress is None else catalog.in_force

        def clock() -> float:
            return self._now

        # Where there are deadlines, answers take as long as that clock says, and not the machine.
        self.loop = Loop(
            catalog,
            intake or files_of(stream, rules.follow),
            collection or InlineCollection(clock if rules.follow else time.perf_counter),
            Unsaved(progress or Progress(), before),
            rules,
            clock,
            Pace(Measure(0.0), Measure(0.0)),
        )
        self._door = door
        if door is not None:
            door.open(*program_of(Program({stream.name: stream}, {}), [catalog]))

    @property
    def loops(self) -> list[Loop]:
        return [self.loop]

    def begin(self, stream: Stream) -> Loop:
        raise OrderError(f"stream '{stream.name}' cannot be begun: this run has one stream")

    def turn(self, now: float) -> Emission:
        """Reads the next batch, and emits what is due then."""
        self._now = now
        if self._door is not None:
            steward = Steward(self)
            self._door.serve(steward.check, steward.do)
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
