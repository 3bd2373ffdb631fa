"""Merging and finishing slice by slice, so that memory does not grow with the length of the log.

Panes are unpacked in the order of time, some at once. Windows are finished as soon as all they
hold is unpacked, and what no later window needs is dropped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from muntin.kernel.block import decode, encode, rows_where
from muntin.kernel.due import Due, due_kinds
from muntin.kernel.finish import finish
from muntin.kernel.kinds import kind_of
from muntin.kernel.merge import gather, merge
from muntin.model import Job, Shape

ROWS_AT_ONCE = 150_000  # that are unpacked together, unless one window holds more
_STEPS = 64  # by which a block tells where its rows are
_FAR = 1 << 62


@dataclass(frozen=True)
class Packed:
    """A block as bytes, and where its rows are: so many up to a pane, more up to the next."""

    data: bytes
    rows: int
    first: int
    upto: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, block: pa.Table) -> Packed:
        panes = np.sort(block.column("pane").to_numpy())
        first, steps = int(panes[0]) if len(panes) else 0, np.array_split(panes, _STEPS)
        upto = tuple((int(step[-1]), len(step)) for step in steps if len(step))
        return cls(encode(block), len(panes), first, upto)

    @property
    def last(self) -> int:
        return self.upto[-1][0] if self.upto else 0


def finish_in_slices(
    shape: Shape, jobs: Mapping[str, Job], packed: Sequence[Packed], due: Due, name: str
) -> Iterator[dict[str, pa.Table]]:
    """What `finish` gives for all the blocks and windows at once; `name` is that of the blocks."""
    longest = max(spec.length for spec in due_kinds(jobs, due)[shape.id])
    mine = due.of(jobs, shape.id)
    left: list[pa.Table] = []
    done = -_FAR
    for upto in [*_cuts(packed, -(-longest // 2)), _FAR]:
        now = mine.between(done, upto)
        fresh = _unpacked(packed, done, upto, name)
        if longest > 1 and fresh:  # several windows are made of a row
            fresh = [gather(shape, fresh)]
        if left or fresh:
            block = pa.concat_tables([*left, *fresh])
            if now:
                yield finish(shape, jobs, block, now).rows
            left = [_between(block, upto - longest, None)]
        done = upto


def merge_in_slices(shape: Shape, packed: Sequence[Packed], name: str) -> Iterator[pa.Table]:
    """Blocks with every key and pane of the given ones once, in all of them together."""
    if not kind_of(shape).in_slices or sum(p.rows for p in packed) <= ROWS_AT_ONCE:
        yield merge(shape, [decode(p.data, name) for p in packed])
        return
    for after, upto in pairwise([-_FAR, *_cuts(packed, 1), _FAR]):
        blocks = [b for b in _unpacked(packed, after, upto, name) if b.num_rows]
        if blocks:
            yield merge(shape, blocks)


def _cuts(packed: Sequence[Packed], least: int) -> Iterator[int]:
    """Where panes end between which there are not too many rows; at `least` so many panes apart."""
    rows, before = 0, -_FAR
    for pane, more in sorted(step for p in packed for step in p.upto):
        rows += more
        if rows >= ROWS_AT_ONCE and pane + 1 - before >= least:
            yield pane + 1
            rows, before = 0, pane + 1


def _unpacked(packed: Sequence[Packed], after: int, upto: int, name: str) -> list[pa.Table]:
    """What the blocks have of panes that end in `(after, upto]`, and of windows that do."""
    wanted = [p for p in packed if p.rows and p.first <= upto and p.last >= after]
    return [_between(decode(p.data, name), after, upto) for p in wanted]


def _between(block: pa.Table, after: int, upto: int | None) -> pa.Table:
    """The rows of panes that end in `(after, upto]`, and of windows that do."""
    alone = pc.not_equal(block.column("spec"), 0)  # these are not of a pane, but of a window
    end = pc.if_else(alone, block.column("pane"), pc.add(block.column("pane"), 1))
    inside = pc.greater(end, after)
    inside = inside if upto is None else pc.and_(inside, pc.less_equal(end, upto))
    return rows_where(block, inside)
