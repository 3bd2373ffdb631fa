"""Blocks to blocks. Merging is associative and commutative, so where and when is free."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from muntin.kernel.engine import run
from muntin.kernel.statements import key_group_sql, merge_sql
from muntin.model import Job


def merge(job: Job, blocks: Sequence[pa.Table]) -> pa.Table:
    """One block with every key and pane of the given ones once."""
    if len(blocks) == 1:
        return blocks[0]
    tables = {"blocks": pa.concat_tables(blocks)}
    return run(merge_sql(job), tables, f"merging {len(blocks)} blocks of job {job.name}")


def split(job: Job, block: pa.Table, groups: int) -> dict[int, pa.Table]:
    """The block's rows by key group; groups without rows are absent."""
    if groups == 1 or not job.keys:
        return {0: block}
    sql = f"SELECT {key_group_sql(job, groups)} AS g FROM blocks"
    group = run(sql, {"blocks": block}, f"splitting job {job.name}").column("g")
    found = {}
    for g in range(groups):
        rows = block.filter(pc.equal(group, g))
        if rows.num_rows:
            found[g] = rows
    return found


def without(job: Job, block: pa.Table, emitted: int) -> pa.Table:
    """The block less the panes that no window after `emitted` holds."""
    oldest = job.window.oldest_pane(emitted)
    return block.filter(pc.greater_equal(block.column("pane"), oldest))
