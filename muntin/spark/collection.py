"""Blocks in Spark's memory: one step per batch, every step partitioned by key group alike.

An element of a step is (group, holding): the blocks of one key group by shape. Steps share one
partition function, so their union has one partition per group and moves nothing. Steps are
merged when they become many, and their lineage is cut there: a merged step that is lost with an
executor ends the run, which starts again from its checkpoint.

The collection knows of each step where its rows lie, and of jobs what each call tells it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from operator import itemgetter
from typing import Protocol, runtime_checkable
from zlib import crc32

import pyarrow as pa
from pyspark import RDD, SparkContext, StorageLevel

from muntin.errors import MuntinError, WireError
from muntin.kernel.block import Block, Sources, decode, encode
from muntin.kernel.compute import Recipe
from muntin.kernel.due import Due, Emitted, due_kinds
from muntin.kernel.finish import by_window, completed, finish, order
from muntin.kernel.kinds import kind_of
from muntin.kernel.merge import block_of, distinct, merge, split
from muntin.kernel.reading import Cost, Reading
from muntin.kernel.slices import finish_in_slices, merge_in_slices
from muntin.model import Job, Shape
from muntin.run.catalog import Catalog
from muntin.run.contracts import Answer, Delivery, Taken, Task, TaskWork, Work
from muntin.spark import internals
from muntin.spark.moving import move
from muntin.spark.policies import Span, is_many, is_needed, joined, spans_of
from muntin.windows.shelf import Complete, Shelf
from muntin.windows.spec import WindowSpec

TELLING = 0  # the key group with which news travel
_LEVEL = StorageLevel.MEMORY_AND_DISK

Jobs = Mapping[str, Job]
Shapes = Mapping[str, Shape]
Blocks = dict[str, list[Block]]
News = Reading | MuntinError  # of a lane
Pairs = tuple[int, int, bytes]  # of a window: key group, number there, rows
Place = int | tuple[str, int, int]  # a key group; or a window: job, which of its kinds, and end


@dataclass(frozen=True)
class Holding:
    """The blocks of one key group by shape, and news on their way to the driver."""

    blocks: Blocks = field(default_factory=dict)
    news: tuple[News, ...] = ()
    complete: tuple[Complete[bytes], ...] = ()


@dataclass
class GroupAnswer:
    """What one key group has for the driver: rows of due windows, blocks to save."""

    group: int = 0
    rows: dict[str, list[bytes]] = field(default_factory=dict)
    blocks: Blocks = field(default_factory=dict)
    states: Blocks = field(default_factory=dict)
    costs: dict[str, Cost] = field(default_factory=dict)
    ends: dict[str, int] = field(default_factory=dict)
    complete: list[Complete[bytes]] = field(default_factory=list)


Held = RDD[tuple[int, Holding]]


@dataclass(frozen=True)
class Step:
    """One dataset of the collection, and where its rows lie."""

    held: Held
    spans: tuple[Span, ...]


def home(group: int) -> int:
    """The partition of a key group. All steps are partitioned by this very function."""
    return group


def shapes_of(jobs: Jobs) -> dict[str, Shape]:
    return {job.shape.id: job.shape for job in jobs.values()}


@runtime_checkable
class Distributed(Protocol):
    """Work whose records are on Spark already."""

    def compute(self, recipes: Sequence[Recipe], groups: int) -> RDD[tuple[int, Holding]]:
        """Blocks and readings by key group."""


class SparkCollection:
    def __init__(self, context: SparkContext, once: bool = False) -> None:
        """Blocks that are asked for `once`, at the end, are not merged and not saved before."""
        self._once = once
        self._context = context
        self.groups = context.defaultParallelism
        self.steps: tuple[Step, ...] = ()
        self._unsaved: tuple[Step, ...] = ()  # the last of them
        self._emitted: dict[str, Emitted] = {}
        self._shelf: Shelf[bytes] = Shelf()

    def add(self, work: Work, recipes: Sequence[Recipe], final: Mapping[str, int]) -> list[Reading]:
        shapes, groups = {recipe.shape.id: recipe.shape for recipe in recipes}, self.groups
        version = max((recipe.version for recipe in recipes), default=0)
        if isinstance(work, Distributed):
            return self.keep(work.compute(recipes, groups), shapes)
        assert isinstance(work, TaskWork), f"{work} cannot be done on Spark"

        def compute(tasks: Iterable[Task]) -> Iterator[tuple[int, Holding]]:
            for task in tasks:
                fresh = filter(Taken(final).take, task.deliver(recipes))
                yield from delivered(fresh, shapes, groups, version)

        # One a core: a batch is short, and starting another task would take some of its time.
        tasks = work.tasks(groups)
        computed = self._context.parallelize(tasks, len(tasks)).mapPartitions(compute)
        return self.keep(computed, shapes)

    def keep(self, computed: RDD[tuple[int, Holding]], shapes: Shapes) -> list[Reading]:
        """Adds blocks that tasks have computed as one more step; returns their readings."""
        if is_many(len(self.steps)):
            self._merge_steps(shapes)
        if self._once:
            held, told = move(computed, self.groups, home, _parted)
        else:
            moved = computed.partitionBy(self.groups, home)
            held = _merged(moved, shapes, {}).persist(_LEVEL)
            told = self._context.runJob(held, _told)
        try:
            readings = list(_readings(told))
        except WireError:  # the next batch may fare better
            held.unpersist()
            raise
        step = Step(held, tuple(joined(span for span in told if isinstance(span, Span))))
        self.steps += (step,)
        self._unsaved += (step,)
        self._shelf.drop_touched(shapes, [t for reading in readings for t in reading.tallies])
        return readings

    def answer(
        self, catalog: Catalog, due: Due, save: Mapping[str, Emitted] | None = None
    ) -> Answer:
        jobs = catalog.jobs
        unsaved = self._unsaved if save is not None else ()
        steps = self.steps if due else unsaved
        if not steps:
            return Answer()
        newest = len(unsaved)

        def answer(items: Iterable[tuple[int, Holding]]) -> Iterator[GroupAnswer]:
            held = list(items)
            yield _answer(jobs, held, due, save, held if once else held[len(held) - newest :])

        once = self._once
        held = [*self._complete(jobs, due), *(step.held for step in steps)]
        answered = self._union(held).mapPartitions(answer)
        chained = {name for name in due.ends if _has_more_rounds(jobs[name])}
        answers = _with_later_rounds(answered, jobs, chained, self.groups).collect()
        if save is not None:
            self._unsaved = ()
        for group in answers:
            self._shelf.put(group.complete)
        return self._put_together(jobs, answers)

    def _put_together(self, jobs: Jobs, answers: Sequence[GroupAnswer]) -> Answer:
        rows: dict[str, list[pa.Table]] = {}
        blocks: Blocks = {}
        costs: dict[str, Cost] = {}
        ends: dict[str, int] = {}
        for group in answers:
            for name, end in group.ends.items():
                ends[name] = min(end, ends.get(name, end))
            for name, encoded in group.rows.items():
                tables = rows.setdefault(name, [])
                tables.extend(decode(data, f"rows of job {name}") for data in encoded)
            for shape, cost in group.costs.items():
                costs[shape] = costs.get(shape, Cost()) + cost
            for shape, saved in chain(group.blocks.items(), group.states.items()):
                blocks.setdefault(shape, []).extend(saved)
        self._keep_states(shapes_of(jobs), answers)
        ordered = {name: order(jobs[name], tables) for name, tables in rows.items()}
        return Answer(ordered, blocks, costs, ends)

    def _complete(self, jobs: Jobs, due: Due) -> list[Held]:
        """Complete windows that due ones may be made of, as one more step before the others."""
        by_group: dict[int, list[Complete[bytes]]] = {}
        for complete in self._shelf.useful(due_kinds(jobs, due)):
            by_group.setdefault(complete.group, []).append(complete)
        items = [(group, Holding(complete=tuple(windows))) for group, windows in by_group.items()]
        if not items:
            return []
        return [self._like_others(self._context.parallelize(items).partitionBy(self.groups, home))]

    def _keep_states(self, shapes: Shapes, answers: Sequence[GroupAnswer]) -> None:
        """What goes on from here, as states of keys do, is one more step. It is saved already."""
        staying = [(group.group, Holding(group.states)) for group in answers if group.states]
        if staying:
            held = self._context.parallelize(staying).partitionBy(self.groups, home)
            blocks = [b for _, holding in staying for many in holding.blocks.values() for b in many]
            step = Step(_merged(held, shapes, {}).persist(_LEVEL), tuple(spans_of(blocks)))
            self.steps = (*self.steps[: len(self.steps) - len(self._unsaved)], step, *self._unsaved)

    def forget(self, catalog: Catalog, emitted: Mapping[str, Emitted]) -> None:
        """Lets go of steps that no window still to come holds a row of."""
        self._emitted = dict(emitted)
        self._shelf.drop_before({shape: e.oldest_pane for shape, e in emitted.items()})
        shapes = catalog.shapes
        needed = tuple(step for step in self.steps if is_needed(step.spans, shapes, emitted))
        _let_go(step for step in self.steps if step not in needed)
        self.steps = needed
        self._unsaved = tuple(step for step in self._unsaved if step in needed)

    def compact(self, catalog: Catalog) -> None:
        """Merges all steps into one, to be saved whole."""
        self._merge_steps(catalog.shapes)
        self._unsaved = self.steps

    def _merge_steps(self, shapes: Shapes) -> None:
        """Merges all steps into one, without what no window needs any more."""
        if not self.steps:
            return
        blocks = self._union([step.held for step in self.steps]).mapValues(_blocks_alone)
        held = self._like_others(_merged(blocks, shapes, self._emitted)).persist(_LEVEL)
        held.localCheckpoint()
        internals.compute(held)
        spans = joined(span for step in self.steps for span in step.spans if span.shape in shapes)
        unsaved = bool(self._unsaved)
        self.clear()
        self.steps = (Step(held, tuple(spans)),)
        self._unsaved = self.steps if unsaved else ()

    def clear(self) -> None:
        _let_go(self.steps)
        self.steps = self._unsaved = ()

    def restore(self, catalog: Catalog, blocks: Mapping[str, Sequence[Block]]) -> None:
        """Starts from saved blocks."""
        shapes, groups = catalog.shapes, self.groups
        saved = [block for shape, of_shape in blocks.items() if shape in shapes
                 for block in distinct(of_shape)]  # fmt: skip

        def spread(block: Block) -> Iterator[tuple[int, Holding]]:
            shape = shapes[block.shape]
            for group, rows in split(shape, block.table(shape.pane), groups).items():
                # No delivery any more: with other groups, several blocks may have a part of one.
                told = block.sources, None, group, block.records, block.version
                yield group, Holding({block.shape: [block_of(shape, rows, *told)]})

        if saved:
            self.keep(self._context.parallelize(saved).flatMap(spread), shapes)
            self._unsaved = ()

    def _like_others(self, held: Held) -> Held:
        """The step serialized as the others are, or their union would send all through Python."""
        return internals.serialized_like(held, self.steps[-1].held)

    def _union(self, steps: list[Held]) -> Held:
        return steps[0] if len(steps) == 1 else self._context.union(steps)


def _let_go(steps: Iterable[Step]) -> None:
    for step in steps:
        if step.held.is_cached:
            step.held.unpersist()


def delivered(
    deliveries: Iterator[Delivery], shapes: Shapes, groups: int, version: int
) -> Iterator[tuple[int, Holding]]:
    """Deliveries by key group. What is raised on the way is told to the driver as a value."""
    try:
        for delivery in deliveries:
            yield from scatter(shapes, delivery, groups, version)
    except MuntinError as error:  # raised by the driver, without Spark's traceback
        yield TELLING, Holding(news=(error,))


def scatter(
    shapes: Shapes, delivery: Delivery, groups: int, version: int
) -> Iterator[tuple[int, Holding]]:
    """A delivery's blocks by key group; its readings travel with one of them."""
    held: dict[int, Blocks] = {TELLING: {}}
    sources = Sources.of(reading.source for reading in delivery.readings)
    records = sum(reading.records for reading in delivery.readings)
    for shape, table in delivery.blocks.items():
        for group, rows in split(shapes[shape], table, groups).items():
            told = sources, delivery.sequence, group, records, version
            block = block_of(shapes[shape], rows, *told)
            held.setdefault(group, {})[shape] = [block]
    for group, blocks in held.items():
        yield group, Holding(blocks, delivery.readings if group == TELLING else ())


def _parted(holding: Holding) -> tuple[Holding, list[News | Span]]:
    return _blocks_alone(holding), list(_told([(TELLING, holding)]))


def _blocks_alone(holding: Holding) -> Holding:
    return Holding(holding.blocks)


def _told(items: Iterable[tuple[int, Holding]]) -> Iterator[News | Span]:
    """What the driver is told of a step: news, and where its rows lie."""
    for _, holding in items:
        yield from holding.news
        yield from spans_of(chain.from_iterable(holding.blocks.values()))


def _readings(told: Iterable[News | Span]) -> Iterator[Reading]:
    for each in told:
        if isinstance(each, MuntinError):
            raise each
        if isinstance(each, Reading):
            yield each


def _merged(held: Held, shapes: Shapes, emitted: Mapping[str, Emitted]) -> Held:
    """One element for every group, also for those without rows: the newest one is the last.

    Blocks of shapes that no job has any more are left out.
    """

    def merge_group(
        group: int, items: Iterable[tuple[int, Holding]]
    ) -> Iterator[tuple[int, Holding]]:
        every = list(items)
        merged: Blocks = {}
        for shape, blocks in _by_shape(every).items():
            if shape in shapes:
                known = emitted.get(shape)
                needed = None
                if known is not None and known.is_on(shapes[shape].pane):
                    needed = partial(_needed, shapes[shape], known)
                merged[shape] = merge_in_slices(shapes[shape], blocks, group, needed)
        news = tuple(chain.from_iterable(holding.news for _, holding in every))
        yield group, Holding(merged, news)

    return held.mapPartitionsWithIndex(merge_group, preservesPartitioning=True)


def _needed(shape: Shape, emitted: Emitted, table: pa.Table) -> pa.Table:
    """The rows that are needed on, of all steps: there is no older state elsewhere."""
    kind = kind_of(shape)
    return kind.without(kind.without_forgotten(table), emitted)


def _by_shape(items: Iterable[tuple[int, Holding]]) -> Blocks:
    """The blocks of each shape that has any."""
    every: Blocks = {}
    for _, holding in items:
        for shape, blocks in holding.blocks.items():
            every.setdefault(shape, []).extend(blocks)
    return every


def _answer(
    jobs: Jobs,
    items: Sequence[tuple[int, Holding]],
    due: Due,
    save: Mapping[str, Emitted] | None,
    unsaved: Sequence[tuple[int, Holding]],
) -> GroupAnswer:
    answer = GroupAnswer(group=items[0][0] if items else 0)
    held = _by_shape(items)
    for shape in {jobs[name].shape for name in (*due.ends, *due.sessions)}:
        blocks = held.get(shape.id)
        if blocks:
            started = time.perf_counter()
            for rows in _rows_of(shape, jobs, blocks, items, due, answer):
                for name, table in rows.items():
                    answer.rows.setdefault(name, []).append(encode(table))
            seconds = time.perf_counter() - started
            answer.costs[shape.id] = Cost(0, sum(block.rows for block in blocks), seconds)
    if save is not None:
        answer.blocks = _to_save(shapes_of(jobs), unsaved, save)
    return answer


def _rows_of(
    shape: Shape,
    jobs: Jobs,
    blocks: Sequence[Block],
    items: Sequence[tuple[int, Holding]],
    due: Due,
    answer: GroupAnswer,
) -> Iterator[dict[str, pa.Table]]:
    """Rows of a shape's due windows. What is needed again later is put into the answer."""
    if kind_of(shape).in_slices and not due.more:
        yield from finish_in_slices(shape, jobs, blocks, due)
        return
    table = pa.concat_tables([block.table(shape.pane) for block in distinct(blocks)])
    done = finish(shape, jobs, table, due, _made(shape.id, items))
    answer.complete += _encoded(completed(shape.id, done.made, answer.group))
    answer.ends |= done.ends
    if done.stays:
        stays = block_of(shape, merge(shape, done.stays), group=answer.group)
        answer.states[shape.id] = [stays]
    yield done.rows


def _made(shape: str, items: Sequence[tuple[int, Holding]]) -> list[tuple[WindowSpec, pa.Table]]:
    return [
        (c.spec, decode(c.rows, f"complete windows of shape {shape}"))
        for _, holding in items
        for c in holding.complete
        if c.shape == shape
    ]


def _encoded(windows: Iterable[Complete[pa.Table]]) -> Iterator[Complete[bytes]]:
    for c in windows:
        yield Complete(c.shape, c.spec, c.last_end, encode(c.rows), c.group)


def _to_save(
    shapes: Shapes, items: Sequence[tuple[int, Holding]], emitted: Mapping[str, Emitted]
) -> Blocks:
    """The blocks of new steps, less what no window still to come holds."""
    saved: Blocks = {}
    for shape, blocks in _by_shape(items).items():
        if shape not in shapes:
            continue
        kind = kind_of(shapes[shape])
        for block in distinct(blocks):
            # Only with the other steps is it known which sessions the newest rows belong to.
            if shape not in emitted or not kind.has_panes:
                kept = [block] if block.rows else []
            elif block.pane == shapes[shape].pane and kind.is_over(block.upper, emitted[shape]):
                kept = []
            else:
                needed = partial(kind.without, emitted=emitted[shape])
                kept = merge_in_slices(shapes[shape], [block], block.group, needed)
            if kept:
                saved.setdefault(shape, []).extend(kept)
    return saved


def _has_more_rounds(job: Job) -> bool:
    return kind_of(job.shape).more_rounds(job)


def _with_later_rounds(
    answered: RDD[GroupAnswer], jobs: Jobs, chained: set[str], groups: int
) -> RDD[GroupAnswer]:
    """The answers; of `chained` jobs with the rows of whole windows in place of pairs.

    All pairs of a window meet in one task, which runs the rounds that follow. Other windows are
    with other tasks.
    """
    if not chained:
        return answered

    def apart(answers: Iterable[GroupAnswer]) -> Iterator[tuple[Place, GroupAnswer | Pairs]]:
        for answer in answers:
            for name in chained & answer.rows.keys():
                for number, data in enumerate(answer.rows.pop(name)):
                    for (which, end), pairs in by_window(decode(data, f"pairs of job {name}")):
                        yield (name, which, end), (answer.group, number, encode(pairs))
            yield answer.group, answer

    def later(items: Iterable[tuple[Place, GroupAnswer | Pairs]]) -> Iterator[GroupAnswer]:
        windows: dict[tuple[str, int, int], list[Pairs]] = {}
        for place, told in items:
            if isinstance(told, GroupAnswer):
                yield told
            elif isinstance(place, tuple):
                windows.setdefault(place, []).append(told)
        rows: dict[str, list[bytes]] = {}
        for (name, _, _), pairs in sorted(windows.items()):
            job, doing = jobs[name], f"pairs of job {name}"
            tables = [decode(data, doing) for *_, data in sorted(pairs, key=itemgetter(0, 1))]
            done = kind_of(job.shape).later_rounds(job, tables)
            rows.setdefault(name, []).append(encode(done))
        yield GroupAnswer(rows=rows)

    return answered.mapPartitions(apart).partitionBy(groups, _task_of).mapPartitions(later)


def _task_of(place: Place) -> int:
    return place if isinstance(place, int) else crc32(repr(place).encode())
