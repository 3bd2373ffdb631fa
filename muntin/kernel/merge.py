"""Blocks to blocks. Merging is associative and commutative, so where and when is free."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from muntin.fidelity.score import Only
from muntin.kernel.engine import run
from muntin.kernel.python.partials import FORGOTTEN, STATE_SPEC, merge_blocks
from muntin.kernel.python.states import merged
from muntin.kernel.sessions import merge_sessions_sql, open_sessions
from muntin.kernel.statements import key_group_sql, merge_sql, spec_id
from muntin.model import Shape
from muntin.windows.spec import WindowSpec


@dataclass(frozen=True)
class Emitted:
    """What has left: the last end of every kind of window, and where sessions are over."""

    windows: Mapping[WindowSpec, int | None]
    sessions: int | None = None

    @property
    def oldest_pane(self) -> int:
        """The first pane that a window still to come holds."""
        found = [_ANCIENT if e is None else w.oldest_pane(e) for w, e in self.windows.items()]
        return min(found, default=_ANCIENT)

    @property
    def needed_from(self) -> int | None:
        """The position before which no record is needed, or None while all are."""
        oldest = self.oldest_pane
        pane = next((spec.pane for spec in self.windows), 0)
        return oldest * pane if oldest > _ANCIENT else None


def merge(shape: Shape, blocks: Sequence[pa.Table]) -> pa.Table:
    """One block with every key and pane of the given ones once."""
    if len(blocks) == 1 and shape.gap is None:  # sessions get their bounds from all their rows
        return blocks[0]
    if shape.in_python:
        return merge_blocks(shape, blocks)
    tables = {"blocks": pa.concat_tables(blocks)}
    sql = merge_sql(shape) if shape.gap is None else merge_sessions_sql(shape)
    doing = f"merging {len(blocks)} blocks of {shape.stream}"
    return merged(shape, run(sql, tables, doing))


def gather(shape: Shape, blocks: Sequence[pa.Table]) -> pa.Table:
    """One block with the rows of all, merged only if that leaves clearly fewer.

    Pieces of a log that follow each other share few panes, and so have hardly a row in common.
    """
    if len(blocks) == 1 or shape.gap is not None:
        return merge(shape, blocks)
    panes = [pc.unique(block.column("pane")) for block in blocks]
    different = len(pc.unique(pa.chunked_array(panes)))
    if sum(map(len, panes)) > _WORTH_MERGING * different:
        return merge(shape, blocks)
    return pa.concat_tables(blocks)


def split(shape: Shape, block: pa.Table, groups: int) -> dict[int, pa.Table]:
    """The block's rows by key group; groups without rows are absent."""
    if groups == 1 or not shape.answered.keys:
        return {0: block}
    group = _key_groups(shape.answered, block, groups)
    found = {}
    for g in range(groups):
        rows = block.filter(pc.equal(group, g))
        if rows.num_rows:
            found[g] = rows
    return found


def _key_groups(shape: Shape, block: pa.Table, groups: int) -> pa.ChunkedArray:
    """The key group of every row; a key that is there once is hashed once."""
    doing, sql = f"splitting a block of {shape.stream}", key_group_sql(shape, groups)
    if len(shape.keys) > 1 or not pa.types.is_string(block.schema.field("k0").type):
        return run(f"SELECT {sql} AS g FROM blocks", {"blocks": block}, doing).column("g")
    keys = block.column("k0").combine_chunks().dictionary_encode(null_encoding="encode")
    of_keys = run(
        f"SELECT {sql} AS g FROM keys", {"keys": pa.table({"k0": keys.dictionary})}, doing
    )
    return of_keys.column("g").take(keys.indices)


def some(shape: Shape, block: pa.Table, only: Only | None) -> pa.Table:
    """The rows of the panes or sources that are asked for, and no more told apart by source."""
    if only is not None and only.panes is not None:
        block = block.filter(pc.is_in(block.column("pane"), pa.array(only.panes, pa.int64())))
    if not shape.by_source:
        return block
    origin = f"k{len(shape.keys) - 1}"
    if only is not None and only.sources is not None:
        block = block.filter(pc.is_in(block.column(origin), pa.array(only.sources, pa.string())))
    tables = {"blocks": block.drop_columns([origin])}
    doing = f"merging the sources of {shape.stream}"
    return merged(shape.answered, run(merge_sql(shape.answered), tables, doing))


def without(shape: Shape, block: pa.Table, emitted: Emitted) -> pa.Table:
    """The block less the rows that no window still to come holds."""
    if shape.gap is not None:
        return open_sessions(shape, block, emitted.sessions)
    pane, kind = block.column("pane"), block.column("spec")
    needed = pc.and_(pc.equal(kind, 0), pc.greater_equal(pane, emitted.oldest_pane))
    if shape.lives_on:
        needed = pc.or_(needed, pc.equal(kind, STATE_SPEC))
    for spec, end in emitted.windows.items():
        mine = pc.equal(kind, spec_id(spec))
        needed = pc.or_(needed, mine if end is None else pc.and_(mine, pc.greater(pane, end)))
    return block.filter(needed)


def is_over(shape: Shape, last: int, emitted: Emitted) -> bool:
    """Whether `without` leaves nothing of a block with no pane after the `last`.

    Also true of rows of a single window, whose pane is its end.
    """
    return shape.gap is None and not shape.lives_on and last < emitted.oldest_pane


def without_forgotten(shape: Shape, block: pa.Table) -> pa.Table:
    """The block less keys whose state is forgotten, if no other block has an older one of them."""
    if not shape.lives_on:
        return block
    forgotten = pc.and_(
        pc.equal(block.column("spec"), STATE_SPEC), pc.equal(block.column("c0"), FORGOTTEN)
    )
    return block.filter(pc.invert(forgotten))


_WORTH_MERGING = 1.5  # panes of all blocks, for each different one
_ANCIENT = -(1 << 62)
