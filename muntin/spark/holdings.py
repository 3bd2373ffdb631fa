"""What elements of steps are, by key group, and how blocks become such elements.

A step has a `Holding` of every key group, several while it waits to be merged, and nothing else.
What an answer leaves in its tasks has complete windows and rows of results beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain

import pyarrow as pa
from pyspark import RDD

from muntin.errors import MuntinError
from muntin.kernel.block import Block, Sources
from muntin.kernel.due import Emitted
from muntin.kernel.forms import split_all
from muntin.kernel.kinds import kind_of
from muntin.kernel.merge import block_of
from muntin.kernel.reading import Reading
from muntin.kernel.slices import merge_all_in_slices
from muntin.model.jobs import Job
from muntin.model.shapes import Shape
from muntin.run.contracts import Delivery
from muntin.spark.policies import Moved, Span, spans_of
from muntin.spark.telling import Told
from muntin.windows.shelf import Complete

TELLING = 0  # the key group with which news travel

Jobs = Mapping[str, Job]
Shapes = Mapping[str, Shape]
Blocks = dict[str, list[Block]]
News = Reading | MuntinError  # of a lane
Heard = News | Span | Moved  # of a step, by the driver


@dataclass(frozen=True)
class Holding:
    """Blocks of one key group by shape, the step they are of, and news on their way to the driver.

    What an answer leaves behind is of no step. Of blocks that an executor has merged before they
    were sent, it is known how many bytes they were `made` of.
    """

    blocks: Blocks = field(default_factory=dict)
    news: tuple[News, ...] = ()
    step: int = 0
    made: int | None = None

    @property
    def moved(self) -> Moved:
        sent = bytes_of(self.blocks)
        return Moved(sent if self.made is None else self.made, sent)


@dataclass(frozen=True)
class Made:
    """Complete windows of one key group that larger ones may be made of, by the answer's number."""

    number: int
    complete: tuple[Complete[bytes], ...]


@dataclass(frozen=True)
class Rows:
    """Some rows of a job's due windows, as the number of those of one key group."""

    job: str
    number: int
    data: bytes


Element = tuple[int, Holding | Made | Rows]
Held = RDD[Element]


def home(group: int) -> int:
    """The partition of a key group. All steps are partitioned by this very function."""
    return group


def shapes_of(jobs: Jobs) -> dict[str, Shape]:
    return {job.shape.id: job.shape for job in jobs.values()}


def bytes_of(blocks: Blocks) -> int:
    return sum(len(block.data) for block in chain.from_iterable(blocks.values()))


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
    for shape, group, rows in split_all(shapes, delivery.blocks, groups):
        told = sources, delivery.sequence, group, records, version
        block = block_of(shapes[shape], rows, *told)
        held.setdefault(group, {})[shape] = [block]
    for group, blocks in held.items():
        yield group, Holding(blocks, delivery.readings if group == TELLING else ())


@dataclass(frozen=True)
class Apart:
    """Blocks of a step alone, and what the driver is told: news, and where their rows lie."""

    step: int

    def __call__(self, _: int, items: Iterable[Element]) -> Iterator[Element | Told[Heard]]:
        for group, each in items:
            assert isinstance(each, Holding), each
            yield group, Holding(each.blocks, step=self.step)
            yield from map(Told, told_of(each))
            yield Told(each.moved)


def told_of(holding: Holding) -> Iterator[News | Span]:
    """What the driver is told of a step: news, and where its rows lie."""
    yield from holding.news
    yield from spans_of(chain.from_iterable(holding.blocks.values()))


def holdings(items: Iterable[Element]) -> Iterator[Holding]:
    """The holdings among elements."""
    return (each for _, each in items if isinstance(each, Holding))


def by_shape(every: Iterable[Holding]) -> Blocks:
    """The blocks of each shape that has any."""
    blocks: Blocks = {}
    for holding in every:
        for shape, more in holding.blocks.items():
            if more:
                blocks.setdefault(shape, []).extend(more)
    return blocks


@dataclass(frozen=True)
class Merging:
    """Merges the holdings of a group into one of a step, also if there are none.

    The driver is told of it. Blocks of shapes that no job has any more are left out, and so is what
    is not needed after what was emitted.
    """

    shapes: Shapes
    emitted: Mapping[str, Emitted] = field(default_factory=dict)
    heirs: Mapping[str, str] = field(default_factory=dict)
    """Shapes that get copies of the blocks of others."""
    step: int = 0

    def __call__(self, group: int, items: Iterable[Element]) -> Iterator[Element | Told[Heard]]:
        every = list(holdings(items))
        found = by_shape(every)
        for heir, of in self.heirs.items():
            if of in found:
                found[heir] = [replace(block, shape=heir) for block in found[of]]
        several = {id_: some for id_, some in found.items() if id_ in self.shapes}
        needed = {
            id_: partial(_needed, self.shapes[id_], known)
            for id_, known in self.emitted.items()
            if id_ in several and known.is_on(self.shapes[id_].pane)
        }
        merged = merge_all_in_slices(self.shapes, several, group, needed)
        blocks = {id_: some for id_, some in merged.items() if some}
        news = tuple(chain.from_iterable(each.news for each in every))
        yield group, Holding(blocks, step=self.step)
        yield from map(Told, told_of(Holding(blocks, news)))
        yield Told(sum((each.moved for each in every), Moved(left=bytes_of(blocks))))


def _needed(shape: Shape, emitted: Emitted, table: pa.Table) -> pa.Table:
    """The rows that are needed on, of all steps: there is no older state elsewhere."""
    kind = kind_of(shape)
    return kind.without(kind.without_forgotten(table), emitted)
