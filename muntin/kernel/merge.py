"""Blocks to blocks. Merging is associative and commutative, so where and when is free."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from muntin.kernel.engine import run
from muntin.kernel.statements import key_group_sql, merge_sql, spec_id
from muntin.model import Shape
from muntin.windows.spec import WindowSpec

Emitted = Mapping[WindowSpec, int | None]  # the last end that has left, for every kind of window


def merge(shape: Shape, blocks: Sequence[pa.Table]) -> pa.Table:
    """One block with every key and pane of the given ones once."""
    if len(blocks) == 1:
        return blocks[0]
    tables = {"blocks": pa.concat_tables(blocks)}
    return run(merge_sql(shape), tables, f"merging {len(blocks)} blocks of {shape.stream}")


def split(shape: Shape, block: pa.Table, groups: int) -> dict[int, pa.Table]:
    """The block's rows by key group; groups without rows are absent."""
    if groups == 1 or not shape.keys:
        return {0: block}
    sql = f"SELECT {key_group_sql(shape, groups)} AS g FROM blocks"
    group = run(sql, {"blocks": block}, f"splitting a block of {shape.stream}").column("g")
    found = {}
    for g in range(groups):
        rows = block.filter(pc.equal(group, g))
        if rows.num_rows:
            found[g] = rows
    return found


def without(block: pa.Table, emitted: Emitted) -> pa.Table:
    """The block less the rows that no window still to come holds."""
    pane, kind = block.column("pane"), block.column("spec")
    needed = pc.and_(pc.equal(kind, 0), pc.greater_equal(pane, oldest_pane(emitted)))
    for spec, end in emitted.items():
        mine = pc.equal(kind, spec_id(spec))
        needed = pc.or_(needed, mine if end is None else pc.and_(mine, pc.greater(pane, end)))
    return block.filter(needed)


def oldest_pane(emitted: Emitted) -> int:
    """The first pane that a window still to come holds."""
    return min(_ANCIENT if e is None else spec.oldest_pane(e) for spec, e in emitted.items())


_ANCIENT = -(1 << 62)
