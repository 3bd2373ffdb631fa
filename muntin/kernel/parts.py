"""Merging and finishing part by part, so that memory does not grow with the length of the log.

Panes are unpacked in the order of time, some at once. Windows are finished as soon as all they
hold is unpacked, and what no later window needs is dropped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from muntin.kernel.block import decode, encode
from muntin.kernel.finish import Due, due_kinds, finish
from muntin.kernel.merge import gather, merge
from muntin.model import Job, Shape

ROWS_AT_ONCE = 300_000  # that are unpacked together, unless one window holds more


@dataclass(frozen=True)
class Packed:
    """A block as bytes, and between which panes its rows are."""

    data: bytes
    rows: int
    first: int
    last: int

    @classmethod
    def of(cls, block: pa.Table) -> Packed:
        panes = pc.min_max(block.column("pane"))
        first, last = panes["min"].as_py(), panes["max"].as_py()
        return cls(encode(block), block.num_rows, first or 0, last or 0)


def finish_in_parts(
    shape: Shape, jobs: Mapping[str, Job], packed: Sequence[Packed], due: Due, name: str
) -> Iterator[dict[str, pa.Table]]:
    """What `finish` gives for all the blocks and windows at once; `name` is that of the blocks."""
    longest = max(spec.length for spec in due_kinds(jobs, due)[shape.id])
    mine = {n: kinds for n, kinds in due.ends.items() if jobs[n].shape == shape}
    width = max(-(-longest // 2), _panes_at_once(packed))
    left: list[pa.Table] = []
    done = min(p.first for p in packed) - 1
    for upto, part in _cut(replace(due, ends=mine), width):
        fresh = _unpacked(packed, done, upto, name)
        if longest > 1 and fresh:  # several windows are made of a row
            fresh = [gather(shape, fresh)]
        if left or fresh:
            block = pa.concat_tables([*left, *fresh])
            yield finish(shape, jobs, block, part)
            left = [_between(block, upto - longest, None)]
        done = max(done, upto)


def merge_in_parts(shape: Shape, packed: Sequence[Packed], name: str) -> Iterator[pa.Table]:
    """Blocks with every key and pane of the given ones once, in all of them together."""
    if shape.gap is not None or shape.lives_on or sum(p.rows for p in packed) <= ROWS_AT_ONCE:
        yield merge(shape, [decode(p.data, name) for p in packed])
        return
    first, width = min(p.first for p in packed) - 1, _panes_at_once(packed)
    for after in range(first, max(p.last for p in packed) + 1, width):
        blocks = [b for b in _unpacked(packed, after, after + width, name) if b.num_rows]
        if blocks:
            yield merge(shape, blocks)


def _panes_at_once(packed: Sequence[Packed]) -> int:
    panes = max(p.last for p in packed) - min(p.first for p in packed) + 1
    return max(1, ROWS_AT_ONCE * panes // max(1, sum(p.rows for p in packed)))


def _unpacked(packed: Sequence[Packed], after: int, upto: int, name: str) -> list[pa.Table]:
    """What the blocks have of panes that end in `(after, upto]`, and of windows that do."""
    wanted = [p for p in packed if p.first <= upto and p.last >= after]
    return [_between(decode(p.data, name), after, upto) for p in wanted]


def _between(block: pa.Table, after: int, upto: int | None) -> pa.Table:
    """The rows of panes that end in `(after, upto]`, and of windows that do."""
    alone = pc.not_equal(block.column("spec"), 0)  # these are not of a pane, but of a window
    end = pc.if_else(alone, block.column("pane"), pc.add(block.column("pane"), 1))
    inside = pc.greater(end, after)
    return block.filter(inside if upto is None else pc.and_(inside, pc.less_equal(end, upto)))


def _cut(due: Due, width: int) -> Iterator[tuple[int, Due]]:
    """The due windows, those that end within `width` panes together, and where they end."""
    ends = sorted({end for kinds in due.ends.values() for kind in kinds for end in kind})
    while ends:
        upto = ends[0] + width - 1
        yield upto, _within(due, ends[0], upto)
        ends = [end for end in ends if end > upto]


def _within(due: Due, first: int, last: int) -> Due:
    kinds = {
        name: [[end for end in kind if first <= end <= last] for kind in kinds]
        for name, kinds in due.ends.items()
    }
    only = {kind: only for kind, only in due.only.items() if first <= kind[2] <= last}
    return replace(due, ends={n: k for n, k in kinds.items() if any(k)}, only=only)
