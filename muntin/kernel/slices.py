"""Merging and finishing slice by slice, so that memory does not grow with the length of the log.

Panes are unpacked in the order of time, some at once. Windows are finished as soon as all they
hold is unpacked, and what no later window needs is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc

from muntin.kernel.block import Block, Sources, rows_where
from muntin.kernel.due import Due, due_kinds
from muntin.kernel.finish import finish
from muntin.kernel.forms import LARGE, merge_all
from muntin.kernel.kinds import kind_of
from muntin.kernel.merge import block_of, distinct, gather, merge
from muntin.model.jobs import Job
from muntin.model.shapes import Shape

ROWS_AT_ONCE = 150_000  # that are unpacked together, unless one window holds more
_FAR = 1 << 62
Needed = Callable[[pa.Table], pa.Table]  # the rows that somebody needs on


def finish_in_slices(
    shape: Shape, jobs: Mapping[str, Job], blocks: Sequence[Block], due: Due
) -> Iterator[dict[str, pa.Table]]:
    """The rows that `finish` gives for all the blocks and windows at once."""
    mine = due.of(jobs, shape.id)
    longest = max(spec.length for spec in due_kinds(jobs, mine)[shape.id])
    blocks = [_on_grid(shape, block) for block in distinct(blocks)]
    left: list[pa.Table] = []
    done = -_FAR
    for upto in [*_cuts(blocks, -(-longest // 2)), _FAR]:
        now = mine.between(done, upto)
        fresh = _unpacked(blocks, done, upto)
        if longest > 1 and fresh:  # several windows are made of a row
            fresh = [gather(shape, fresh)]
        if left or fresh:
            block = pa.concat_tables([*left, *fresh])
            if now:
                yield finish(shape, jobs, block, now).rows
            left = [_between(block, upto - longest, None)]
        done = upto


def merge_all_in_slices(
    shapes: Mapping[str, Shape],
    blocks: Mapping[str, Sequence[Block]],
    group: int,
    needed: Mapping[str, Needed],
) -> dict[str, list[Block]]:
    """What `merge_in_slices` gives for each shape; small blocks of one form are merged at once."""
    different = {id_: distinct(some) for id_, some in blocks.items()}
    few = {
        id_: [block.table(shapes[id_].pane) for block in some]
        for id_, some in different.items()
        if len(some) > 1 and sum(block.rows for block in some) <= LARGE
    }
    merged = merge_all(shapes, few)
    return {
        id_: _packed(shapes[id_], some, [merged[id_]], group, needed.get(id_))
        if id_ in merged
        else merge_in_slices(shapes[id_], some, group, needed.get(id_))
        for id_, some in different.items()
    }


def merge_in_slices(
    shape: Shape, blocks: Sequence[Block], group: int = 0, needed: Needed | None = None
) -> list[Block]:
    """Blocks with every key and pane of the given ones once, in all of them together.

    Of equal deliveries one counts. Only rows that are `needed` stay; blocks without any do not.
    """
    different = distinct(blocks)
    if needed is None and len(different) == 1 and _is_merged(shape, different[0]):
        return [replace(different[0], group=group)]
    return _packed(shape, different, _merged(shape, different), group, needed)


def _packed(
    shape: Shape,
    different: Sequence[Block],
    merged: Iterable[pa.Table],
    group: int,
    needed: Needed | None,
) -> list[Block]:
    """Blocks of what different ones were merged to."""
    tables = [needed(table) if needed else table for table in merged]
    tables = [table for table in tables if table.num_rows]
    one = len(different) == len(tables) == 1
    sources = Sources.merged(block.sources for block in different)
    sequence = different[0].sequence if one else None
    version = max(block.version for block in different)
    made, records = [], sum(block.records for block in different)
    for table in tables:
        made.append(block_of(shape, table, sources, sequence, group, records, version))
        records = 0  # all are counted with the first, so that sums stay right
    return made


def _is_merged(shape: Shape, block: Block) -> bool:
    on_grid = kind_of(shape).has_panes and block.pane == shape.pane
    return on_grid and 0 < block.rows <= ROWS_AT_ONCE


def _merged(shape: Shape, blocks: Sequence[Block]) -> Iterator[pa.Table]:
    if not kind_of(shape).in_slices or sum(block.rows for block in blocks) <= ROWS_AT_ONCE:
        yield merge(shape, [block.table(shape.pane) for block in blocks])
        return
    blocks = [_on_grid(shape, block) for block in blocks]
    for after, upto in pairwise([-_FAR, *_cuts(blocks, 1), _FAR]):
        tables = [table for table in _unpacked(blocks, after, upto) if table.num_rows]
        if tables:
            yield merge(shape, tables)


def _on_grid(shape: Shape, block: Block) -> Block:
    """The block on the grid that its shape has now."""
    if block.pane == shape.pane:
        return block
    rows = block.table(shape.pane)
    return block_of(
        shape, rows, block.sources, block.sequence, block.group, block.records, block.version
    )


def _cuts(blocks: Sequence[Block], least: int) -> Iterator[int]:
    """Where panes end between which there are not too many rows; at `least` so many panes apart."""
    rows, before = 0, -_FAR
    for pane, more in sorted(step for block in blocks for step in block.steps):
        rows += more
        if rows >= ROWS_AT_ONCE and pane + 1 - before >= least:
            yield pane + 1
            rows, before = 0, pane + 1


def _unpacked(blocks: Sequence[Block], after: int, upto: int) -> list[pa.Table]:
    """What the blocks have of panes that end in `(after, upto]`, and of windows that do."""
    wanted = [b for b in blocks if b.rows and b.lower < upto and b.upper > after]
    return [_between(block.table(), after, upto) for block in wanted]


def _between(block: pa.Table, after: int, upto: int | None) -> pa.Table:
    """The rows of panes that end in `(after, upto]`, and of windows that do."""
    alone = pc.not_equal(block.column("spec"), 0)  # these are not of a pane, but of a window
    end = pc.if_else(alone, block.column("pane"), pc.add(block.column("pane"), 1))
    inside = pc.greater(end, after)
    inside = inside if upto is None else pc.and_(inside, pc.less_equal(end, upto))
    return rows_where(block, inside)
