"""Blocks in Spark's memory: one step per batch, every step partitioned by key group alike.

Steps share one partition function, so their union has one partition per group and moves nothing.
Steps are merged when they become many, and their lineage is cut there. On a cluster that of every
step is: what is lost with an executor comes back from the checkpoint, and is not read again from
logs, which may have changed. Complete windows that larger ones may be made of are datasets beside
the steps, partitioned alike.

The collection knows of each step where its rows lie, and of jobs what each call tells it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import RDD, SparkContext, StorageLevel

from muntin.errors import MuntinError
from muntin.kernel.block import Block, decode, encode
from muntin.kernel.compute import Recipe
from muntin.kernel.due import NOTHING_BEFORE, Due, Emitted, due_kinds
from muntin.kernel.finish import order
from muntin.kernel.kinds import kind_of
from muntin.kernel.kinds.kind import Missed
from muntin.kernel.merge import block_of, distinct, split
from muntin.kernel.reading import Cost, Reading
from muntin.model.jobs import Job
from muntin.run.catalog import Catalog
from muntin.run.contracts import Answer, Taken, Task, TaskWork, Work
from muntin.run.heirs import Heirs
from muntin.run.many import Waiting
from muntin.run.results import ToSave, no_windows
from muntin.run.sessions import WaitingRows
from muntin.spark import internals
from muntin.spark.answering import Answering, Head
from muntin.spark.collections import internals as homes
from muntin.spark.combining import Slots, came_twice, network_speed
from muntin.spark.holdings import (
    TELLING,
    Apart,
    Blocks,
    Element,
    Heard,
    Held,
    Holding,
    Jobs,
    Made,
    Merging,
    Rows,
    Shapes,
    delivered,
    home,
)
from muntin.spark.master import is_alone, is_local
from muntin.spark.moving import move
from muntin.spark.placing import placed, require_read
from muntin.spark.policies import ByExecutor, Moved, Span, is_many, is_needed, joined, may_wait
from muntin.spark.rows import (
    GatheredRows,
    Ordered,
    SortedRows,
    Waits,
    gathered,
    looked_at,
    stretches_of,
)
from muntin.spark.sessions import SortedSessions
from muntin.spark.telling import Make, Telling
from muntin.store.blocks import BlockFiles
from muntin.windows.shelf import Shelf

# Bytes of a batch that go to the driver, of blocks to save and of rows of a job: a file of its own,
# or another job of Spark, takes longer.
SAVED_BY_DRIVER = 1 << 20
ROWS_AT_HAND = 1 << 20
_LEVEL = StorageLevel.MEMORY_AND_DISK


@dataclass(frozen=True)
class Step:
    """One dataset of the collection, and where its rows lie."""

    number: int
    held: Held
    spans: tuple[Span, ...]


@runtime_checkable
class Distributed(Protocol):
    """Work whose records are on Spark already."""

    def compute(self, recipes: Sequence[Recipe], groups: int) -> Held:
        """Blocks and readings by key group."""


class SparkCollection:
    def __init__(
        self, context: SparkContext, files: BlockFiles | None = None, once: bool = False
    ) -> None:
        """Tasks save many blocks in `files`, if there are any.

        Blocks that are asked for `once`, at the end, are not merged and not saved before.
        """
        self._files = files
        self._numbers = count(1)  # of steps
        self._once = once
        self._may_lose = not is_local(context.master)
        self._by_executor = ByExecutor()
        self._speed = network_speed(context.getConf())
        self._context = context
        self.groups = context.defaultParallelism
        self.steps: tuple[Step, ...] = ()
        self._unsaved: tuple[Step, ...] = ()  # the last of them
        self._emitted: dict[str, Emitted] = {}
        self._alone = is_alone(context.master)
        self._anchor: RDD[int] | None = None  # of several executors, says where partitions are
        self._answers = 0
        self._shelf: Shelf[int] = Shelf()  # of the numbers of answers that made windows
        self._made: dict[int, Held] = {}  # by these numbers, where the windows are
        self._heirs: dict[str, str] = {}  # shapes to which blocks of others are to be copied

    def add(self, work: Work, recipes: Sequence[Recipe], final: Mapping[str, int]) -> list[Reading]:
        shapes, groups = {recipe.shape.id: recipe.shape for recipe in recipes}, self.groups
        version = max((recipe.version for recipe in recipes), default=0)
        if isinstance(work, Distributed):
            return self.keep(work.compute(recipes, groups), shapes)
        assert isinstance(work, TaskWork), f"{work} cannot be done on Spark"

        def compute(tasks: Iterable[Task]) -> Iterator[Element]:
            heirs = Heirs(recipes)
            for task in tasks:
                fresh = map(heirs, filter(Taken(final).take, task.deliver(recipes)))
                fresh = map(placed, fresh) if may_lose else fresh
                yield from delivered(fresh, shapes, groups, version)

        # One a core: a batch is short, and starting another task would take some of its time.
        tasks, may_lose = work.tasks(groups), self._may_lose
        given, slots = self._context.parallelize(tasks, len(tasks)), self._slots(len(tasks))
        computed = (slots.placed(given) if slots else given).mapPartitions(compute)
        readings, moved = self._keep(slots.merged(computed, shapes) if slots else computed, shapes)
        if slots and came_twice(readings):  # key groups tell what did, but not of merged blocks
            _let_go([self.steps[-1].held])
            self.steps, self._unsaved = self.steps[:-1], self._unsaved[:-1]
            readings, moved = self._keep(computed, shapes)
        self._by_executor = self._by_executor.after(moved, merged=slots is not None)
        if may_lose:
            require_read(readings)
        return readings

    def _slots(self, tasks: int) -> Slots | None:
        """Who merges what tasks compute before it is sent; None where that does not pay."""
        if not self._may_lose:
            return None
        every = internals.executors(self._context)
        if not self._by_executor.pays(tasks, every, self._speed):
            return None
        known = homes.executors(self._context)
        return Slots(known, -(-self.groups // len(known))) if known else None

    def keep(self, computed: Held, shapes: Shapes) -> list[Reading]:
        """Adds blocks that tasks have computed as one more step; returns their readings."""
        return self._keep(computed, shapes)[0]

    def _keep(self, computed: Held, shapes: Shapes) -> tuple[list[Reading], Moved]:
        """The same, and how many bytes of them were sent."""
        if is_many(len(self.steps)):
            self._merge_steps(shapes)
        merging = Merging(shapes, step=next(self._numbers))
        told: list[Heard]
        if not self._once and (self._may_lose or not self._alone):
            moved = computed.partitionBy(self.groups, home)
            # Logs that are read again later may have changed.
            held, told = self._stay(moved, merging, cut=self._may_lose)
        else:
            held, told = move(computed, Apart(merging.step), self.groups, home)
            if not self._once and not may_wait(_spans(told)):
                held, _ = self._stay(held, merging)
        step = Step(merging.step, held, _spans(told))
        self.steps += (step,)
        self._unsaved += (step,)
        readings = [each for each in told if isinstance(each, Reading)]
        self._shelf.drop_touched(shapes, [t for reading in readings for t in reading.tallies])
        return readings, sum((each for each in told if isinstance(each, Moved)), Moved())

    def answer(
        self, catalog: Catalog, due: Due, save: Mapping[str, Emitted] | None = None
    ) -> Answer:
        jobs = catalog.every
        if self._once and save is not None and not due:
            # What waits is not read from logs again once it is saved.
            saved = self._saved
            self._unsaved = self._merged(self._unsaved, Merging(catalog.shapes))
            self.steps = (*saved, *self._unsaved)
        unsaved = self._unsaved if save is not None else ()
        steps = self.steps if due else unsaved
        if not steps:
            return Answer()
        useful = self._shelf.useful(due_kinds(jobs, due))
        made = {id(self._made[c.rows]): self._made[c.rows] for c in useful}
        self._answers += 1
        task = Answering(
            self._answers,
            jobs,
            replace(due, previous={}),  # which these tasks have no use for
            save,
            frozenset(step.number for step in unsaved),
            frozenset((c.rows, c.shape, c.spec, c.group) for c in useful),
            self._files,
            SAVED_BY_DRIVER // self.groups,
            ROWS_AT_HAND // self.groups,
            frozenset(name for name in due.ends if _has_more_rounds(jobs[name])),
        )
        held = self._union([*(step.held for step in steps), *made.values()])
        answered, heads = self._stay(held, task, cut=True)
        if save is not None:
            self._unsaved = ()
        rows_in = self._settle(answered, heads)
        return _put_together(heads, self._ordered(jobs, heads, rows_in, due))

    def _settle(self, answered: Held, heads: Sequence[Head]) -> Held:
        """Keeps what goes on from here, each kind by itself; returns the rows that wait."""
        spans = joined(span for head in heads for span in head.spans)
        made = [complete for head in heads for complete in head.made]
        waits = any(head.waits for head in heads)
        only = (bool(spans), bool(made), waits).count(True) == 1
        if spans:  # states of keys, which are saved already
            states = answered if only else self._only(answered, Holding)
            self.steps = (*self._saved, Step(0, states, tuple(spans)), *self._unsaved)
        if made:
            self._made[self._answers] = answered if only else self._only(answered, Made)
            self._shelf.put(made)
            self._tidy_made()
        if not waits and not only:
            answered.unpersist()
        return answered

    def _only(self, answered: Held, kind: type) -> Held:
        """One kind of what an answer has left in its tasks."""
        some = answered.filter(lambda element: isinstance(element[1], kind))
        return self._stay(some, _as_they_are, cut=True)[0]

    def _ordered(self, jobs: Jobs, heads: Sequence[Head], held: Held, due: Due) -> _Ordered:
        """Rows of jobs in order, or where they wait, and how long jobs took."""
        ordered: dict[str, pa.Table | Waiting] = {}
        sessions: dict[str, WaitingRows] = {}
        seconds: dict[str, float] = {}
        waits = {name: Waits() for head in heads for name in head.waits}
        previous, meet = due.previous, dict[str, Job]()
        users, shown = _Users(held, len(waits)), frozenset(name for name, _, _ in due.open)
        names = {name: None for head in heads for name in (*head.rows, *head.waits)}
        for name in names:
            started, job = time.perf_counter(), jobs[name]
            if name not in waits:
                ordered[name] = order(job, _few(heads, name), previous.get(name, NOTHING_BEFORE))
            elif kind_of(job.shape).ordering(job) is None:
                meet[name] = job
            elif name in due.sessions:
                sessions[name] = SortedSessions(job, *_waiting_rows(job, heads, users))
            elif name in shown:
                rows = SortedRows(job, *_waiting_rows(job, heads, users))
                ordered[name] = rows.in_order(self._stay_cut)
            else:
                ordered[name] = SortedRows(job, *_waiting_rows(job, heads, users))
            # Groups are answered side by side.
            finishing = max(head.seconds.get(name, 0.0) for head in heads)
            seconds[name] = finishing + time.perf_counter() - started
        if meet:
            few = [element for name in meet for element in _sent(heads, name)]
            stretches = {
                name: stretches_of(job, due.ends.get(name, ()), _waiting(heads, name), self.groups)
                for name, job in meet.items()
            }
            limit = ROWS_AT_HAND // self.groups
            pieces, told = gathered(
                held, few, meet, stretches, previous, shown, self.groups, limit, self._stay_cut
            )
            by_job: dict[str, list[Ordered]] = {name: [] for name in meet}
            for each in told:
                by_job[each.place[0]].append(each)
            many = {name for name, of in by_job.items() if any(each.rows is None for each in of)}
            users_of_pieces = _Users(pieces, len(many))
            if not many:
                pieces.unpersist()
            for name, several in by_job.items():
                seconds[name] += max((each.seconds for each in several), default=0.0)
                if name in many:
                    ordered[name] = GatheredRows(pieces, several, users_of_pieces.release)
                else:
                    ordered[name] = _in_a_row(meet[name], several)
                users.release()
        in_turn = {name: ordered[name] for name in names if name in ordered}
        return _Ordered(in_turn, sessions, seconds)

    def forget(self, catalog: Catalog, emitted: Mapping[str, Emitted]) -> None:
        """Lets go of steps that no window still to come holds a row of."""
        self._emitted = dict(emitted)
        self._shelf.drop_before({shape: e.oldest_pane for shape, e in emitted.items()})
        self._tidy_made()
        shapes = catalog.shapes
        needed = tuple(step for step in self.steps if is_needed(step.spans, shapes, emitted))
        _let_go(step.held for step in self.steps if step not in needed)
        self.steps = needed
        self._unsaved = tuple(step for step in self._unsaved if step in needed)

    def _tidy_made(self) -> None:
        """Lets go of windows that are not on the shelf, and merges what is in many places."""
        needed = {complete.rows for complete in self._shelf.complete}
        kept = {number: held for number, held in self._made.items() if number in needed}
        places = {id(held): held for held in kept.values()}
        _let_go(held for held in self._made.values() if id(held) not in places)
        if is_many(len(places)) and len(places) > 1:
            whole = self._union(list(places.values()))
            merged, _ = self._stay(whole, _MadeBy(frozenset(needed)), cut=True)
            _let_go(places.values())
            kept = dict.fromkeys(kept, merged)
        self._made = kept

    def compact(self, catalog: Catalog) -> None:
        """Merges all steps into one, to be saved whole."""
        self._unsaved = self.steps  # the saved ones, too
        self._merge_steps(catalog.shapes)

    def inherit(self, catalog: Catalog, shape: str, heir: str) -> None:
        """They are copied when steps are merged, as they are to be saved whole."""
        self._heirs[heir] = shape

    def _merge_steps(self, shapes: Shapes) -> None:
        """Merges steps, without what no window needs any more; those that are saved into one."""
        heirs, self._heirs = self._heirs, {}
        merging = Merging(shapes, self._emitted, heirs)
        saved = self._merged(self._saved, merging)
        self._unsaved = self._merged(self._unsaved, merging)
        self.steps = (*saved, *self._unsaved)

    @property
    def _saved(self) -> tuple[Step, ...]:
        return self.steps[: len(self.steps) - len(self._unsaved)]

    def _merged(self, steps: Sequence[Step], merging: Merging) -> tuple[Step, ...]:
        """Steps as one, which has no lineage; none of none."""
        if not steps:
            return ()
        merging = replace(merging, step=next(self._numbers))
        held, told = self._stay(self._union([step.held for step in steps]), merging, cut=True)
        _let_go(step.held for step in steps)
        return (Step(merging.step, held, _spans(told)),)

    def clear(self) -> None:
        _let_go(step.held for step in self.steps)
        _let_go(self._made.values())
        if self._anchor is not None:  # what begins anew may be spread over other executors
            _let_go([self._anchor])
            self._anchor = None
        self.steps = self._unsaved = ()
        self._shelf, self._made = Shelf(), {}

    def restore(self, catalog: Catalog, blocks: BlockFiles) -> None:
        """Starts from saved blocks, which tasks read where they are."""
        if blocks.lengths:
            self.keep(self._read(catalog, blocks), catalog.shapes)
            self._unsaved = ()

    def _read(self, catalog: Catalog, blocks: BlockFiles) -> Held:
        """The blocks of files by the key group that they have now."""
        shapes, groups = catalog.shapes, self.groups

        def read(names: Iterable[str]) -> Iterator[tuple[int, Block | MuntinError]]:
            try:
                for name in names:
                    for block in blocks.read(name, shapes):
                        yield block.group, block
            except MuntinError as error:
                yield TELLING, error

        def spread(items: Iterable[tuple[int, Block | MuntinError]]) -> Iterator[Element]:
            every = [each for _, each in items]
            yield from ((TELLING, Holding(news=(e,))) for e in every if isinstance(e, MuntinError))
            for block in distinct([each for each in every if isinstance(each, Block)]):
                shape = shapes[block.shape]
                for group, rows in split(shape, block.table(shape.pane), groups).items():
                    # No delivery any more: with other groups, several may have a part of one.
                    told = block.sources, None, group, block.records, block.version
                    yield group, Holding({block.shape: [block_of(shape, rows, *told)]})

        names = list(blocks.lengths)
        found = self._context.parallelize(names, min(len(names), groups)).mapPartitions(read)
        # Equal deliveries are of one key group, and meet there.
        return found.partitionBy(groups, home).mapPartitions(spread)

    def _stay(
        self, rdd: RDD[Any], make: Make[Any, Any, Any], cut: bool = False
    ) -> tuple[RDD[Any], list[Any]]:
        """Has tasks make something that stays with them; returns what they tell.

        With its lineage `cut`, it is not made again where it is lost.
        """
        telling: Telling[Any] = Telling(self._context)
        made = telling.made(rdd, make)
        if self.steps:  # or their union would send all through Python
            made = internals.serialized_like(made, self.steps[-1].held)
        made.persist(_LEVEL)
        if cut:
            made.localCheckpoint()
        try:
            self._compute(made)
        except BaseException:
            telling.forget()
            with suppress(Py4JError):  # where Spark itself has gone
                made.unpersist()
            raise
        try:
            return made, telling.heard(made.getNumPartitions())
        except MuntinError:  # the next batch may fare better
            made.unpersist()
            raise

    def _compute(self, made: RDD[Any]) -> None:
        """Computes partitions where the same ones of other steps are: a union has hosts in mind and
        not executors, and what is computed elsewhere has to be sent.
        """
        if self._alone or made.getNumPartitions() != self.groups:
            internals.compute(made)
            return
        if self._anchor is None:
            numbers = self._context.parallelize(range(self.groups), self.groups)
            self._anchor = numbers.persist(_LEVEL)
            internals.compute(self._anchor)
        internals.compute_beside(self._anchor, made)

    def _stay_cut(self, rdd: RDD[Any], make: Make[Any, Any, Any]) -> tuple[RDD[Any], list[Any]]:
        return self._stay(rdd, make, cut=True)

    def _union(self, steps: list[Held]) -> Held:
        return steps[0] if len(steps) == 1 else self._context.union(steps)


def _let_go(several: Iterable[RDD[Any]]) -> None:
    with suppress(Py4JError, OSError):  # of a JVM that has gone there is nothing to let go
        for held in several:
            if held.is_cached:
                held.unpersist()


def _spans(told: Iterable[Heard]) -> tuple[Span, ...]:
    return tuple(joined(each for each in told if isinstance(each, Span)))


def _as_they_are(_: int, items: Iterable[Element]) -> Iterator[Element]:
    return iter(items)


@dataclass(frozen=True)
class _MadeBy:
    """Complete windows that some answers have made."""

    numbers: frozenset[int]

    def __call__(self, _: int, items: Iterable[Element]) -> Iterator[Element]:
        for group, each in items:
            if isinstance(each, Made) and each.number in self.numbers:
                yield group, each


class _Users:
    """Who has something in a dataset: when all are done, it goes."""

    def __init__(self, held: RDD[Any], users: int) -> None:
        self.held = held
        self._left = users

    def release(self) -> None:
        self._left -= 1
        if not self._left and self.held.is_cached:
            self.held.unpersist()


def _few(heads: Sequence[Head], name: str) -> list[pa.Table]:
    """Rows of a job that key groups have sent."""
    return [
        decode(data, f"rows of job {name}") for head in heads for data in head.rows.get(name, ())
    ]


def _sent(heads: Sequence[Head], name: str) -> Iterator[Element]:
    """The same, to go back to where the others are."""
    for head in heads:
        for number, data in enumerate(head.rows.get(name, ())):
            yield head.group, Rows(name, number, data)


def _waiting(heads: Sequence[Head], name: str) -> int:
    """About how many rows of a job wait in all key groups together."""
    return sum(head.waits[name].rows for head in heads if name in head.waits)


def _waiting_rows(
    job: Job, heads: Sequence[Head], users: _Users
) -> tuple[Held, list[Element], Waits, Callable[[], None]]:
    """Rows of a job that wait in some groups, those that others have sent, and what is known."""
    waits, few = Waits(), list[Element]()
    for head in heads:
        waits = waits.plus(head.waits.get(job.name, Waits()))
    for group, each in _sent(heads, job.name):
        assert isinstance(each, Rows)
        rows, seen = looked_at(job, decode(each.data, f"rows of job {job.name}"))
        waits = waits.plus(seen)
        few.append((group, replace(each, data=encode(rows))))
    return users.held, few, waits, users.release


def _in_a_row(job: Job, ordered: Sequence[Ordered]) -> pa.Table:
    """Ordered rows of all places, which are few."""
    places = sorted(ordered, key=lambda each: each.place)
    tables = [decode(each.rows, f"rows of job {job.name}") for each in places if each.rows]
    if not tables:
        return no_windows(job).rows
    return pa.concat_tables(tables, promote_options="default")


@dataclass(frozen=True)
class _Ordered:
    """Rows of jobs in order, or where they wait; and how long jobs took."""

    rows: Mapping[str, pa.Table | Waiting]
    sessions: Mapping[str, WaitingRows]
    seconds: Mapping[str, float]


def _put_together(heads: Sequence[Head], made: _Ordered) -> Answer:
    blocks: Blocks = {}
    files: dict[str, int] = {}
    costs: dict[str, Cost] = {}
    ends: dict[str, int] = {}
    missed: dict[str, Missed] = {}
    for head in heads:
        files |= head.files
        for name, end in head.ends.items():
            ends[name] = min(end, ends.get(name, end))
        for name, late in head.missed.items():
            missed[name] = late.plus(missed.get(name, Missed()))
        for shape, cost in head.costs.items():
            costs[shape] = costs.get(shape, Cost()) + cost
        for shape, saved in head.blocks.items():
            blocks.setdefault(shape, []).extend(saved)
    to_save = ToSave(blocks, files)
    return Answer(made.rows, to_save, costs, ends, missed, made.seconds, made.sessions)


def _has_more_rounds(job: Job) -> bool:
    return kind_of(job.shape).more_rounds(job)
