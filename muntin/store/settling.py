"""Panes that have settled move from saved blocks into files, in shares that any process may do.

Tasks look at what blocks say of themselves, and nobody reads their rows yet. By that the work is
cut into shares of about the same size: stretches of panes, and of a stretch that is one pane parts
of its keys. Whoever does a share reads the blocks that may have some of it, merges their rows and
writes a file under a name that nobody else uses. So a share that is done twice leaves a file that
no commit names, and no more.

Where panes move, as many rows are in memory as a share has, and whoever gives shares out knows the
places of blocks alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from muntin.kernel.block import Block
from muntin.kernel.engine import run
from muntin.kernel.merge import distinct, merge
from muntin.kernel.statements import key_names
from muntin.model.shapes import Shape
from muntin.run.past import Past
from muntin.store.blocks import BlockFiles, Placed
from muntin.store.panes import PaneFile, PaneFiles, store
from muntin.store.storage import Storage

SHARE_BYTES = 8 << 20  # of packed blocks, about
_LOOK_BYTES = 1 << 18  # that looking at a file stands for, as it is opened and read here and there
Numbers = NDArray[np.int64]
Rates = NDArray[np.float64]
T = TypeVar("T")
U = TypeVar("U")


class Tasks(Protocol):
    """Does the same to several things, wherever that is best."""

    def __call__(self, do: Callable[[T], U], items: Sequence[T], size: int) -> list[U]:
        """What comes of each, in their order; `size` is how many bytes are read for all.

        It may be done more than once to a thing, and raises what was raised.
        """


def here(do: Callable[[T], U], items: Sequence[T], size: int) -> list[U]:
    """Does it in this process, one after the other."""
    return [do(item) for item in items]


@dataclass(frozen=True)
class Share:
    """Panes between two positions, of keys in one of some parts; and blocks that may have them."""

    shape: Shape
    lower: int
    upper: int
    part: int
    parts: int
    places: tuple[Placed, ...]

    def of(self, block: Block) -> pa.Table:
        """The rows of a block that belong to it.

        What tells apart windows that rows are too late for, or sources, is no part of them.
        """
        shape, rows = self.shape, block.table(self.shape.pane)
        panes = rows.column("pane")
        first, last = (-(-position // shape.pane) for position in (self.lower, self.upper))
        inside = pc.and_(pc.greater_equal(panes, first), pc.less(panes, last))
        rows = rows.filter(pc.and_(inside, pc.equal(rows.column("spec"), 0)))
        rows = rows.set_column(
            rows.column_names.index("not_before"), "not_before", pa.nulls(len(rows), pa.int64())
        )
        if shape.by_source:
            rows = rows.drop_columns([f"k{len(shape.keys) - 1}"])
        return self._of_part(rows) if self.parts > 1 and rows.num_rows else rows

    def _of_part(self, rows: pa.Table) -> pa.Table:
        """The rows of its keys, by a hash that lasts as long as panes are on their way."""
        names = ", ".join(key_names(self.shape.answered))
        sql = f"SELECT hash({names}) % {self.parts} = {self.part} AS mine FROM rows"
        mine = run(sql, {"rows": rows}, f"panes of {self.shape.stream} by parts of their keys")
        return rows.filter(mine.column("mine"))


def settle(folder: Storage, share: Share) -> dict[str, PaneFile]:
    """Has the panes of a share in a file, each pane and key once; none if there are no rows."""
    tables = [rows for block in BlockFiles(folder).at(share.places) if len(rows := share.of(block))]
    if not tables:
        return {}
    rows = pa.concat_tables(tables)
    del tables
    rows = merge(share.shape.answered, [rows, rows.slice(0, 0)])
    return store(folder, share.shape.id, share.shape.pane, rows)


class _Looked(NamedTuple):
    """What is known of a file of blocks: those of some shapes, up to a length."""

    shapes: frozenset[str]
    length: int
    places: list[Placed]


class Settling:
    """Moves panes of one stream, and knows where the blocks are that may have others."""

    def __init__(self, panes: PaneFiles, tasks: Tasks = here) -> None:
        self._panes = panes
        self._tasks = tasks
        self._looked: dict[str, _Looked] = {}

    def due(self, past: Mapping[str, Past]) -> dict[str, tuple[int, int]]:
        """By shape, between which positions panes have settled and not moved."""
        moved = self._panes.moved
        stretches = {
            id_: (max(moved.get(id_, p.began), p.began), p.settled) for id_, p in past.items()
        }
        return {id_: (lower, upper) for id_, (lower, upper) in stretches.items() if lower < upper}

    def keep(
        self, past: Mapping[str, Past], shapes: Mapping[str, Shape], blocks: BlockFiles
    ) -> None:
        """Moves panes that have settled out of blocks, which are all that the state has.

        `shapes` are those of which panes are due. If it fails, nothing has moved.
        """
        self._panes.expire(past)
        due = self.due(past)
        if not due:
            return
        self._look(blocks, frozenset(past))
        placed: dict[str, list[Placed]] = {}
        for place in chain.from_iterable(looked.places for looked in self._looked.values()):
            placed.setdefault(place.block.shape, []).append(place)
        shares: list[Share] = []
        for id_, (lower, upper) in due.items():
            shares += shares_of(shapes[id_], placed.get(id_, []), lower, upper, SHARE_BYTES)
        size = sum(place.size for share in shares for place in share.places)
        for files in self._tasks(partial(settle, blocks.folder), shares, size):
            self._panes.add(files)
        self._panes.moved |= {id_: upper for id_, (_, upper) in due.items()}
        for name, looked in self._looked.items():
            left = [each for each in looked.places if not self._has_moved(each)]
            self._looked[name] = looked._replace(places=left)

    def _look(self, blocks: BlockFiles, shapes: frozenset[str]) -> None:
        """Learns where the blocks of files are of which that is not known."""
        known = {
            name: looked
            for name, looked in self._looked.items()
            if shapes <= looked.shapes and looked.length <= blocks.lengths.get(name, -1)
        }
        self._looked = known
        lengths = blocks.lengths
        new = {
            name: known[name].length if name in known else 0
            for name, length in lengths.items()
            if name not in known or known[name].length < length
        }
        look = partial(_placed, blocks, shapes)
        size = sum(min(lengths[name] - at, _LOOK_BYTES) for name, at in new.items())
        for name, found in zip(new, self._tasks(look, [*new.items()], size), strict=True):
            before = known[name].places if name in known else []
            left = [each for each in found if not self._has_moved(each)]
            self._looked[name] = _Looked(shapes, lengths[name], [*before, *left])

    def _has_moved(self, place: Placed) -> bool:
        moved = self._panes.moved.get(place.block.shape)
        return moved is not None and place.positions[1] <= moved


def _placed(blocks: BlockFiles, shapes: Collection[str], item: tuple[str, int]) -> list[Placed]:
    name, after = item
    return [each for each in blocks.placed(name, shapes, after) if each.block.rows]


def shares_of(
    shape: Shape, places: Sequence[Placed], lower: int, upper: int, most: int
) -> list[Share]:
    """The panes between two positions in shares of about so many bytes of blocks, at most."""
    different = {id(block) for block in distinct([place.block for place in places])}
    several = [place for place in places if id(place.block) in different]
    bounds = np.array([place.positions for place in several], np.int64).reshape(-1, 2)
    starts, ends = bounds[:, 0], bounds[:, 1]
    rates = np.array([place.size for place in several]) / (ends - starts)  # bytes by position
    found: list[Share] = []
    for start, end in _stretches(shape.pane, starts, ends, rates, (lower, upper), most):
        overlaps = np.minimum(ends, end) - np.maximum(starts, start)
        inside = np.flatnonzero(overlaps > 0)
        size = int((overlaps[inside] * rates[inside]).sum())
        # Whoever does a part of keys reads all of the pane, so that it is worth being larger.
        parts = max(1, -(-size // (2 * most))) if shape.answered.keys else 1
        some = tuple(several[number] for number in inside)
        if some:
            found += [Share(shape, start, end, part, parts, some) for part in range(parts)]
    return found


def _stretches(
    pane: int, starts: Numbers, ends: Numbers, rates: Rates, within: tuple[int, int], most: int
) -> Iterator[tuple[int, int]]:
    """Positions one behind the other, between which there are about as many bytes, or one pane.

    Rows of a block are taken to be spread evenly between its start and its end.
    """
    lower, upper = within
    starts, ends = np.clip(starts, lower, upper), np.clip(ends, lower, upper)
    edges = np.unique(np.concatenate([starts, ends]))
    slopes = np.zeros(len(edges))
    np.add.at(slopes, np.searchsorted(edges, starts), rates)
    np.subtract.at(slopes, np.searchsorted(edges, ends), rates)
    more = np.maximum(0, np.cumsum(slopes)[:-1]) * np.diff(edges)
    upto = np.concatenate([[0.0], np.cumsum(more)])  # bytes before each edge
    count = -int(-upto[-1] // most)
    cuts = np.interp(np.arange(1, count) * upto[-1] / max(1, count), upto, edges) if count else []
    at = lower
    for cut in sorted({int(cut) // pane * pane for cut in cuts}):
        if at < cut < upper:
            yield at, cut
            at = cut
    yield at, upper
