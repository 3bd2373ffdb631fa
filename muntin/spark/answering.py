"""What a task does to answer: rows of due windows from the blocks of one key group.

Few rows, and few blocks that have to be saved, go to the driver, which is the fastest. Many rows
stay with the task until they are ordered and stored, and many blocks it saves itself. Complete
windows, of which larger ones may be made, and states that live on stay with it, too.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa

from muntin.kernel.block import Block, decode, encode
from muntin.kernel.due import Due, Emitted, due_jobs
from muntin.kernel.finish import completed, finish
from muntin.kernel.forms import Asked, Form, finish_form, forms_of, shared_cost
from muntin.kernel.kinds import kind_of
from muntin.kernel.kinds.kind import Missed
from muntin.kernel.merge import block_of, distinct, merge
from muntin.kernel.reading import Cost, added_costs
from muntin.kernel.slices import Needed, finish_in_slices, merge_all_in_slices
from muntin.model.shapes import Shape
from muntin.spark.holdings import (
    Blocks,
    Element,
    Holding,
    Jobs,
    Made,
    Rows,
    Shapes,
    by_shape,
    shapes_of,
)
from muntin.spark.policies import Span, spans_of
from muntin.spark.rows import Waits, in_chunks, looked_at
from muntin.spark.telling import Told
from muntin.store.blocks import BlockFiles
from muntin.windows.shelf import Complete
from muntin.windows.spec import WindowSpec

Useful = frozenset[tuple[int, str, WindowSpec, int]]
"""Complete windows by the number of the answer that made them, shape, kind and key group."""


@dataclass
class Head:
    """What one key group has for the driver."""

    group: int
    rows: dict[str, list[bytes]] = field(default_factory=dict)  # of jobs that have few
    waits: dict[str, Waits] = field(default_factory=dict)  # of the others
    blocks: Blocks = field(default_factory=dict)  # to save, if they are few
    files: dict[str, int] = field(default_factory=dict)  # in which the task has saved them if not
    spans: list[Span] = field(default_factory=list)  # of states that live on
    made: list[Complete[int]] = field(default_factory=list)
    costs: dict[str, Cost] = field(default_factory=dict)
    ends: dict[str, int] = field(default_factory=dict)
    missed: dict[str, Missed] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)  # that finishing took, by job


@dataclass(frozen=True)
class Answering:
    """What tasks are told to do. Every task has one key group."""

    number: int
    jobs: Jobs
    due: Due
    save: Mapping[str, Emitted] | None
    unsaved: frozenset[int]  # steps of which nothing has been saved before
    useful: Useful
    files: BlockFiles | None
    save_bytes: int  # of blocks, that a task leaves to the driver
    row_bytes: int  # of rows of a job, that a task sends to the driver
    waiting: frozenset[str]  # jobs whose rows wait in any case

    def __call__(self, group: int, items: Iterable[Element]) -> Iterator[Element | Told[Head]]:
        every = list(items)
        held = [each for _, each in every if isinstance(each, Holding)]
        made = [each for _, each in every if isinstance(each, Made)]
        head, states, complete = Head(group), Blocks(), list[Complete[bytes]]()
        blocks_of, asked = by_shape(held), due_jobs(self.jobs, self.due)
        together: set[str] = set()
        for form in self._forms(asked, blocks_of, group, made):
            started, found = time.perf_counter(), _Found(self, head)
            for name, table in finish_form(form, self.due).items():
                yield from ((group, rows) for rows in found.add(name, table))
            seconds = time.perf_counter() - started
            together |= found.names
            head.seconds |= self.due.spread(found.names, seconds)
            head.costs = added_costs(head.costs, shared_cost(form, seconds))
        due = self.due.ends.keys() | self.due.sessions.keys()
        for id_, every_job in asked.items():
            blocks, shape = blocks_of.get(id_), next(iter(every_job.values())).shape
            mine = {name: job for name, job in every_job.items() if name not in together}
            if not blocks or not mine.keys() & due:
                continue
            started, found = time.perf_counter(), _Found(self, head)
            for done in self._finished(shape, mine, blocks, group, made):
                for name, table in done.rows.items():
                    yield from ((group, rows) for rows in found.add(name, table))
                complete += done.complete
                head.ends |= done.ends
                head.missed |= done.missed
                if done.state is not None:
                    states[id_] = [done.state]
            seconds = time.perf_counter() - started
            head.seconds |= self.due.spread(found.names & mine.keys(), seconds)
            cost = Cost(0, sum(block.rows for block in blocks), seconds)
            head.costs = added_costs(head.costs, {id_: cost})
        if self.save is not None:
            head.blocks = _to_save(shapes_of(self.jobs), self._new(held), group, self.save)
        for id_, lives in states.items():
            head.blocks.setdefault(id_, []).extend(lives)
        self._save(head)
        head.spans = spans_of(block for blocks in states.values() for block in blocks)
        head.made = [Complete(c.shape, c.spec, c.last_end, self.number, group) for c in complete]
        yield group, Holding(states)
        if complete:
            yield group, Made(self.number, tuple(complete))
        yield Told(head)

    def _new(self, held: Iterable[Holding]) -> Iterator[Holding]:
        return (each for each in held if each.step in self.unsaved)

    def _forms(
        self, asked: Mapping[str, Jobs], held: Blocks, group: int, made: Sequence[Made]
    ) -> list[Form]:
        """The shapes whose due windows are made together: not those with complete windows."""

        def table(blocks: Sequence[Block], shape: Shape) -> pa.Table:
            return pa.concat_tables([block.table(shape.pane) for block in distinct(blocks)])

        some = []
        for id_, mine in asked.items():
            if id_ in held and not self._complete(id_, group, made):
                blocks, shape = held[id_], next(iter(mine.values())).shape
                rows = sum(block.rows for block in blocks)
                some.append(Asked(mine, rows, partial(table, blocks, shape)))
        return forms_of(some, self.due)

    def _finished(
        self, shape: Shape, jobs: Jobs, blocks: Sequence[Block], group: int, made: Sequence[Made]
    ) -> Iterator[_Done]:
        """Rows of a shape's due windows, and what is needed again later."""
        if kind_of(shape).in_slices and not self.due.more:
            for rows in finish_in_slices(shape, jobs, blocks, self.due):
                yield _Done(rows)
            return
        table = pa.concat_tables([block.table(shape.pane) for block in distinct(blocks)])
        known = self._complete(shape.id, group, made)
        done = finish(shape, jobs, table, self.due, known)
        complete = [
            Complete(c.shape, c.spec, c.last_end, encode(c.rows), group)
            for c in completed(shape.id, done.made, group)
        ]
        stays = block_of(shape, merge(shape, done.stays), group=group) if done.stays else None
        yield _Done(done.rows, complete, stays, done.ends, done.missed)

    def _complete(
        self, shape: str, group: int, made: Sequence[Made]
    ) -> list[tuple[WindowSpec, pa.Table]]:
        return [
            (c.spec, decode(c.rows, f"complete windows of shape {shape}"))
            for each in made
            for c in each.complete
            if c.shape == shape and (each.number, shape, c.spec, group) in self.useful
        ]

    def _save(self, head: Head) -> None:
        """Saves blocks if they are many."""
        every = [block for blocks in head.blocks.values() for block in blocks]
        if self.files is not None and sum(len(b.data) for b in every) > self.save_bytes:
            name, length = self.files.write(every)
            head.blocks, head.files = {}, {name: length}


@dataclass(frozen=True)
class _Done:
    rows: Mapping[str, pa.Table]
    complete: Sequence[Complete[bytes]] = ()
    state: Block | None = None
    ends: Mapping[str, int] = field(default_factory=dict)
    missed: Mapping[str, Missed] = field(default_factory=dict)


class _Found:
    """Rows of jobs as they come: few are kept for the driver, many go by."""

    def __init__(self, asked: Answering, head: Head) -> None:
        self._asked = asked
        self._head = head
        self._sizes: Counter[str] = Counter()
        self._few: dict[str, list[pa.Table]] = {}
        self.names: set[str] = set()

    def add(self, name: str, table: pa.Table) -> Iterator[Rows]:
        """Takes rows of a job; gives back what waits."""
        self.names.add(name)
        job, head = self._asked.jobs[name], self._head
        if name not in head.waits:
            data = encode(table)
            few = head.rows.setdefault(name, [])
            size = len(data) + sum(map(len, few))
            stays = name in self._asked.waiting or size > self._asked.row_bytes
            if not stays:
                few.append(data)
                return
            del head.rows[name]
            head.waits[name] = Waits()
            for before in few:
                yield from self.add(name, decode(before, f"rows of job {name}"))
        waits = head.waits[name]
        rows, seen = looked_at(job, table)
        head.waits[name] = waits.plus(seen)
        yield from in_chunks(name, rows, waits.chunks)


def _to_save(
    shapes: Shapes, held: Iterable[Holding], group: int, emitted: Mapping[str, Emitted]
) -> Blocks:
    """The blocks of new steps, merged, less what no window still to come holds."""
    several: Blocks = {}
    needed: dict[str, Needed] = {}
    for id_, blocks in by_shape(held).items():
        if id_ not in shapes:
            continue
        shape, kind = shapes[id_], kind_of(shapes[id_])
        # Only with the other steps is it known which sessions the newest rows belong to.
        if id_ in emitted and kind.has_panes:
            needed[id_] = partial(kind.without, emitted=emitted[id_])
            over = [b.pane == shape.pane and kind.is_over(b.upper, emitted[id_]) for b in blocks]
            blocks = [block for block, is_over in zip(blocks, over, strict=True) if not is_over]
        if any(block.rows for block in blocks):
            several[id_] = blocks
    merged = merge_all_in_slices(shapes, several, group, needed)
    return {id_: blocks for id_, blocks in merged.items() if blocks}
