"""Blocks to blocks. Merging is associative and commutative, so where and when is free."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from muntin.kernel.engine import run
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


def merge(shape: Shape, blocks: Sequence[pa.Table]) -> pa.Table:
    """One block with every key and pane of the given ones once."""
    if len(blocks) == 1:
        return blocks[0]
    tables = {"blocks": pa.concat_tables(blocks)}
    sql = merge_sql(shape) if shape.gap is None else merge_sessions_sql(shape)
    return run(sql, tables, f"merging {len(blocks)} blocks of {shape.stream}")


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


def without(shape: Shape, block: pa.Table, emitted: Emitted) -> pa.Table:
    """The block less the rows that no window still to come holds."""
    if shape.gap is not None:
        return open_sessions(shape, block, emitted.sessions)
    pane, kind = block.column("pane"), block.column("spec")
    needed = pc.and_(pc.equal(kind, 0), pc.greater_equal(pane, emitted.oldest_pane))
    for spec, end in emitted.windows.items():
        mine = pc.equal(kind, spec_id(spec))
        needed = pc.or_(needed, mine if end is None else pc.and_(mine, pc.greater(pane, end)))
    return block.filter(needed)


_ANCIENT = -(1 << 62)
