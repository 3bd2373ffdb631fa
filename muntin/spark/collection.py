"""Blocks in Spark's memory: one step per batch, every step partitioned by key group alike.

An element of a step is (group, kept): the blocks of one key group by job. Steps share one
partition function, so their union has one partition per group and moves nothing. Steps are
merged when they become many, and their lineage is cut there: a merged step that is lost with an
executor ends the run, which starts again from its checkpoint.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import chain
from operator import itemgetter

import pyarrow as pa
from pyspark import RDD, SparkContext, StorageLevel
from pyspark.sql import DataFrame

from muntin.errors import MuntinError
from muntin.kernel.block import decode, encode
from muntin.kernel.compute import Cost, Recipe
from muntin.kernel.due import Due, Emitted, due_kinds
from muntin.kernel.finish import completed, finish, order
from muntin.kernel.kinds import kind_of
from muntin.kernel.merge import merge, split
from muntin.kernel.slices import Packed, finish_in_slices, merge_in_slices
from muntin.logs.records import Report, read_lane
from muntin.logs.tail import Lane
from muntin.model import Job, Shape, Stream
from muntin.run.pipeline import Answer
from muntin.spark.moving import move
from muntin.windows.shelf import Complete, Shelf
from muntin.windows.spec import WindowSpec

STEPS_AT_MOST = 12
TELLING = 0  # the key group with which news travel
_LEVEL = StorageLevel.MEMORY_AND_DISK

Jobs = dict[str, Job]
Shapes = dict[str, Shape]
Blocks = dict[str, list[Packed]]
News = Report | MuntinError  # of a lane


@dataclass
class Kept:
    """The blocks of one key group by shape, and news on their way to the driver."""

    blocks: Blocks = field(default_factory=dict)
    news: list[News] = field(default_factory=list)
    complete: list[Complete[bytes]] = field(default_factory=list)


@dataclass
class GroupAnswer:
    """What one key group has for the driver: rows of due windows, blocks to save."""

    group: int = 0
    rows: dict[str, list[bytes]] = field(default_factory=dict)
    blocks: dict[str, list[bytes]] = field(default_factory=dict)
    states: Blocks = field(default_factory=dict)
    costs: dict[str, Cost] = field(default_factory=dict)
    ends: dict[str, int] = field(default_factory=dict)
    complete: list[Complete[bytes]] = field(default_factory=list)


Step = RDD[tuple[int, Kept]]


def home(group: int) -> int:
    """The partition of a key group. All steps are partitioned by this very function."""
    return group


class SparkCollection:
    def __init__(
        self, context: SparkContext, stream: Stream, jobs: Sequence[Job], once: bool = False
    ) -> None:
        """Blocks that are asked for `once`, at the end, are not merged and not saved before."""
        self._once = once
        self._context = context
        self._stream = stream
        self._jobs: Jobs = {job.name: job for job in jobs}
        self.shapes: Shapes = {job.shape.id: job.shape for job in jobs}
        self.groups = context.defaultParallelism
        self._steps: list[Step] = []
        self._emitted: dict[str, Emitted] = {}
        self._shelf: Shelf[bytes] = Shelf()

    def read(
        self, lanes: Sequence[Lane], recipes: Sequence[Recipe], slack_us: int | None
    ) -> list[Report]:
        stream, shapes, groups = self._stream, self.shapes, self.groups

        def compute(tasks: Iterable[list[Lane]]) -> Iterator[tuple[int, Kept]]:
            for lane in chain.from_iterable(tasks):
                try:
                    blocks, report = read_lane(lane, stream, recipes, slack_us)
                except MuntinError as error:  # raised by the driver, without Spark's traceback
                    yield TELLING, Kept(news=[error])
                else:
                    yield from scatter(shapes, blocks, report, groups)

        # One a core: batches are read in a second, of which another task would take a part.
        tasks = shared_out(lanes, groups)
        computed = self._context.parallelize(tasks, len(tasks)).mapPartitions(compute)
        return self.keep(computed)

    def keep(self, computed: RDD[tuple[int, Kept]]) -> list[Report]:
        """Adds blocks that tasks have computed as one more step; returns their reports."""
        if len(self._steps) >= STEPS_AT_MOST:
            self.compact()
        if self._once:
            step, news = move(computed, self.groups, home, _parted)
        else:
            moved = computed.partitionBy(self.groups, home)
            step = _merged(moved, self.shapes, {}).persist(_LEVEL)
            news = self._context.runJob(step, _news)
        self._steps.append(step)
        found = list(_reports(news))
        self._shelf.drop_touched(self.shapes, [t for report in found for t in report.tallies])
        return found

    def keep_frame(self, computed: DataFrame) -> list[Report]:
        """The same for a frame of (group, pickled blocks)."""
        return self.keep(computed.rdd.map(lambda row: (row.g, pickle.loads(row.kept))))

    def answer(self, due: Due, save: Mapping[str, Emitted] | None) -> Answer:
        if not self._steps:
            return Answer()
        jobs, once = self._jobs, self._once

        def answer(items: Iterable[tuple[int, Kept]]) -> Iterator[GroupAnswer]:
            found = list(items)
            yield _answer(jobs, found, due, save, found if once else found[-1:])

        steps = [*self._complete(due), *self._steps]
        if not due and not once:
            steps = steps[-1:]
        answers = self._union(steps).mapPartitions(answer).collect()
        for group in answers:
            self._shelf.put(group.complete)
        rows: dict[str, list[pa.Table]] = {}
        blocks: dict[str, list[bytes]] = {}
        costs: dict[str, Cost] = {}
        ends: dict[str, int] = {}
        for group in answers:
            for name, end in group.ends.items():
                ends[name] = min(end, ends.get(name, end))
            for name, parts in group.rows.items():
                found = rows.setdefault(name, [])
                found.extend(decode(part, f"rows of job {name}") for part in parts)
            for shape, unsaved in group.blocks.items():
                blocks.setdefault(shape, []).extend(unsaved)
            for shape, cost in group.costs.items():
                costs[shape] = costs.get(shape, Cost()) + cost
        self._keep_states(answers, blocks)
        ordered = {}
        for name, found in rows.items():
            later = kind_of(jobs[name].shape).later_rounds(jobs[name], found)
            ordered[name] = order(jobs[name], [later])
        return Answer(ordered, blocks, costs, ends)

    def _complete(self, due: Due) -> list[Step]:
        """Complete windows that due ones may be made of, as one more step before the others."""
        by_group: dict[int, list[Complete[bytes]]] = {}
        for complete in self._shelf.useful(due_kinds(self._jobs, due)):
            by_group.setdefault(complete.group, []).append(complete)
        items = [(group, Kept(complete=found)) for group, found in by_group.items()]
        if not items:
            return []
        return [self._like_others(self._context.parallelize(items).partitionBy(self.groups, home))]

    def _keep_states(self, answers: Sequence[GroupAnswer], blocks: dict[str, list[bytes]]) -> None:
        """What jobs without windows know of their keys now is one more step, and is saved."""
        changed = [(group.group, Kept(group.states)) for group in answers if group.states]
        if changed:
            step = self._context.parallelize(changed).partitionBy(self.groups, home)
            self._steps.append(_merged(step, self.shapes, {}).persist(_LEVEL))
        for _, kept in changed:
            for shape, packed in kept.blocks.items():
                blocks.setdefault(shape, []).extend(p.data for p in packed)

    def forget(self, emitted: Mapping[str, Emitted]) -> None:
        self._emitted = dict(emitted)
        self._shelf.drop_before({shape: e.oldest_pane for shape, e in emitted.items()})

    def compact(self) -> None:
        """Merges all steps into one, without what no window needs any more."""
        blocks = self._union(self._steps).mapValues(lambda kept: Kept(kept.blocks))
        step = self._like_others(_merged(blocks, self.shapes, self._emitted)).persist(_LEVEL)
        step.localCheckpoint()
        step._jrdd.count()  # by the JVM: counting in Python takes one more worker a core
        self.clear()
        self._steps = [step]

    def clear(self) -> None:
        for step in self._steps:
            if step.is_cached:
                step.unpersist()
        self._steps = []

    def restore(self, blocks: Mapping[str, Sequence[bytes]]) -> None:
        """Starts from saved blocks."""
        shapes, groups = self.shapes, self.groups
        items = [(shape, block) for shape, found in blocks.items() for block in found]

        def spread(item: tuple[str, bytes]) -> Iterator[tuple[int, Kept]]:
            shape, block = item
            saved = {shape: decode(block, f"saved block of {shapes[shape].stream}")}
            return scatter(shapes, saved, None, groups)

        if items:
            self.keep(self._context.parallelize(items).flatMap(spread))

    def _like_others(self, step: Step) -> Step:
        """The step serialized as the others are, or their union would send all through Python."""
        return step._reserialize(self._steps[-1]._jrdd_deserializer)

    def _union(self, steps: list[Step]) -> Step:
        return steps[0] if len(steps) == 1 else self._context.union(steps)


def shared_out(lanes: Sequence[Lane], tasks: int) -> list[list[Lane]]:
    """The lanes in at most so many tasks of about the same size, the longest first."""
    found: list[list[Lane]] = [[] for _ in range(min(tasks, len(lanes)))]
    sizes = [(0, number) for number in range(len(found))]
    for size, lane in sorted(((_size(lane), lane) for lane in lanes), key=itemgetter(0))[::-1]:
        least, number = heappop(sizes)
        found[number].append(lane)
        heappush(sizes, (least + size, number))
    return found


def _size(lane: Lane) -> int:
    return sum(order.end - order.start for order in lane)


def scatter(
    shapes: Shapes, blocks: Mapping[str, pa.Table], report: Report | None, groups: int
) -> Iterator[tuple[int, Kept]]:
    """A lane's blocks by key group; the report travels with one of them."""
    kept: dict[int, Kept] = {TELLING: Kept(news=[report] if report else [])}
    for shape, block in blocks.items():
        for group, rows in split(shapes[shape], block, groups).items():
            kept.setdefault(group, Kept()).blocks[shape] = [Packed.of(rows)]
    yield from kept.items()


def _parted(kept: Kept) -> tuple[Kept, list[News]]:
    return Kept(kept.blocks), kept.news


def _news(items: Iterable[tuple[int, Kept]]) -> Iterator[News]:
    for _, kept in items:
        yield from kept.news


def _reports(news: Iterable[News]) -> Iterator[Report]:
    for told in news:
        if isinstance(told, MuntinError):
            raise told
        yield told


def _merged(step: Step, shapes: Shapes, emitted: Mapping[str, Emitted]) -> Step:
    """One element for every group, also for those without rows: the newest one is the last."""

    def merge_group(group: int, items: Iterable[tuple[int, Kept]]) -> Iterator[tuple[int, Kept]]:
        found = list(items)
        kept: Blocks = {}
        for shape, packed in _by_shape(found).items():
            for block in merge_in_slices(shapes[shape], packed, _name(shape, group)):
                if emitted:  # all steps are merged, so there is no older state elsewhere
                    block = kind_of(shapes[shape]).without_forgotten(block)
                needed = _needed(shapes[shape], block, emitted)
                kept.setdefault(shape, []).append(Packed.of(needed))
        yield group, Kept(kept, list(_news(found)))

    return step.mapPartitionsWithIndex(merge_group, preservesPartitioning=True)


def _needed(shape: Shape, block: pa.Table, emitted: Mapping[str, Emitted]) -> pa.Table:
    return kind_of(shape).without(block, emitted[shape.id]) if shape.id in emitted else block


def _by_shape(items: Iterable[tuple[int, Kept]]) -> Blocks:
    """The blocks of each shape that has any."""
    found: Blocks = {}
    for _, kept in items:
        for shape, packed in kept.blocks.items():
            found.setdefault(shape, []).extend(packed)
    return found


def _name(shape: str, group: int) -> str:
    return f"shape {shape}, key group {group}"


def _answer(
    jobs: Jobs,
    items: Sequence[tuple[int, Kept]],
    due: Due,
    save: Mapping[str, Emitted] | None,
    unsaved: Sequence[tuple[int, Kept]],
) -> GroupAnswer:
    answer = GroupAnswer(group=items[0][0] if items else 0)
    blocks = _by_shape(items)
    for shape in {jobs[name].shape for name in (*due.ends, *due.sessions)}:
        packed = blocks.get(shape.id)
        if packed:
            started = time.perf_counter()
            for rows in _rows_of(shape, jobs, packed, items, due, answer):
                for name, table in rows.items():
                    answer.rows.setdefault(name, []).append(encode(table))
            seconds = time.perf_counter() - started
            answer.costs[shape.id] = Cost(0, sum(p.rows for p in packed), seconds)
    if save is not None:
        every = {job.shape.id: job.shape for job in jobs.values()}
        for name, block in _unsaved(every, unsaved, save):
            answer.blocks.setdefault(name, []).append(block)
    return answer


def _rows_of(
    shape: Shape,
    jobs: Jobs,
    packed: Sequence[Packed],
    items: Sequence[tuple[int, Kept]],
    due: Due,
    answer: GroupAnswer,
) -> Iterator[dict[str, pa.Table]]:
    """Rows of a shape's due windows. What is needed again later is put into the answer."""
    name = _name(shape.id, answer.group)
    if kind_of(shape).in_slices and not due.more:
        yield from finish_in_slices(shape, jobs, packed, due, name)
        return
    block = pa.concat_tables([decode(p.data, name) for p in packed])
    done = finish(shape, jobs, block, due, _made(shape.id, items))
    answer.complete += _encoded(completed(shape.id, done.made, answer.group))
    answer.ends |= done.ends
    if done.stays:
        answer.states[shape.id] = [Packed.of(merge(shape, done.stays))]
    yield done.rows


def _made(shape: str, items: Sequence[tuple[int, Kept]]) -> list[tuple[WindowSpec, pa.Table]]:
    return [
        (c.spec, decode(c.rows, f"complete windows of shape {shape}"))
        for _, kept in items
        for c in kept.complete
        if c.shape == shape
    ]


def _encoded(found: Iterable[Complete[pa.Table]]) -> Iterator[Complete[bytes]]:
    for c in found:
        yield Complete(c.shape, c.spec, c.last_end, encode(c.rows), c.group)


def _unsaved(
    shapes: Shapes, items: Sequence[tuple[int, Kept]], emitted: Mapping[str, Emitted]
) -> Iterator[tuple[str, bytes]]:
    for shape, packed in _by_shape(items).items():
        # Only with the other steps is it known which sessions the newest rows belong to.
        kind = kind_of(shapes[shape])
        whole = not kind.has_panes
        for p in packed:
            over = shape in emitted and kind.is_over(p.last + 1, emitted[shape])
            if not over:
                block = decode(p.data, f"a new block of shape {shape}")
                left = block if whole else _needed(shapes[shape], block, emitted)
                if left.num_rows:
                    yield shape, encode(left)
