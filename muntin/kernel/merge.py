"""Blocks to blocks. Merging is associative and commutative, so where and when is free."""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from muntin.kernel.block import Block, Sources, encode, steps_of
from muntin.kernel.engine import run
from muntin.kernel.kinds import kind_of
from muntin.kernel.statements import key_group_sql
from muntin.model.shapes import Shape

NOBODY = Sources()
_WORTH_MERGING = 1.5  # panes of all blocks, for each different one
# Key groups of texts that this process has met, by how many groups there are.
_hashed: dict[int, dict[str | None, int]] = {}
_HASHED_AT_MOST = 200_000  # texts


def merge(shape: Shape, blocks: Sequence[pa.Table]) -> pa.Table:
    """One block with every key and pane of the given ones once."""
    return kind_of(shape).merge(blocks)


def block_of(
    shape: Shape,
    table: pa.Table,
    sources: Sources = NOBODY,
    sequence: int | None = None,
    group: int = 0,
    records: int = 0,
    version: int = 0,
) -> Block:
    """The block that holds a table of a shape's rows, on the grid that the shape has now."""
    kind = kind_of(shape)
    lower, upper = kind.interval(table)
    return Block(
        shape.id,
        encode(table),
        table.num_rows,
        shape.pane,
        lower,
        upper,
        group,
        sources,
        sequence,
        records,
        version,
        steps_of(table) if kind.in_slices else (),
    )


def distinct(blocks: Sequence[Block]) -> list[Block]:
    """The blocks, of equal deliveries the first: what came twice counts once."""
    seen: set[object] = set()
    different = []
    for block in blocks:
        delivery = block.delivery
        if delivery is None or delivery not in seen:
            different.append(block)
            seen.add(delivery)
    return different


def gather(shape: Shape, blocks: Sequence[pa.Table]) -> pa.Table:
    """One block with the rows of all, merged only if that leaves clearly fewer.

    Pieces of a log that follow each other share few panes, and so have hardly a row in common.
    """
    kind = kind_of(shape)
    if len(blocks) == 1 or not kind.has_panes:
        return kind.merge(blocks)
    panes = [pc.unique(block.column("pane")) for block in blocks]
    different = len(pc.unique(pa.chunked_array(panes)))
    if sum(map(len, panes)) > _WORTH_MERGING * different:
        return kind.merge(blocks)
    return pa.concat_tables(blocks)


def place(home: str, group: int, groups: int) -> int:
    """Where a key group of shapes with a home lies, the same everywhere and in the next run.

    Shapes begin at places of their own, so that many without keys, or with few, do not all meet
    in the first.
    """
    return (group + crc32(home.encode())) % groups


def split(shape: Shape, block: pa.Table, groups: int) -> dict[int, pa.Table]:
    """The block's rows by the place of their key group; those without rows are absent."""
    if groups == 1 or not shape.answered.keys:
        return {place(shape.home, 0, groups): block}
    group = key_groups(shape.answered, block, groups)
    by_place = {}
    for g in range(groups):
        rows = block.filter(pa.array(group == g))
        if rows.num_rows:
            by_place[place(shape.home, g, groups)] = rows
    return by_place


def key_groups(shape: Shape, block: pa.Table, groups: int) -> NDArray[np.int32]:
    """The key group of every row; of keys that are one text, each is hashed once."""
    doing, sql = f"splitting a block of {shape.stream}", key_group_sql(shape, groups)
    if len(shape.keys) > 1 or not pa.types.is_string(block.schema.field("k0").type):
        told = run(f"SELECT {sql} AS g FROM blocks", {"blocks": block}, doing)
        return np.asarray(told.column("g"), np.int32)
    keys = block.column("k0").combine_chunks().dictionary_encode(null_encoding="encode")
    texts, known = keys.dictionary.to_pylist(), _hashed.setdefault(groups, {})
    new = [text for text in texts if text not in known]
    if new:
        if len(known) + len(new) > _HASHED_AT_MOST:
            known.clear()
            new = texts
        given = pa.table({"k0": pa.array(new, pa.string())})
        told = run(f"SELECT {sql} AS g FROM keys", {"keys": given}, doing).column("g")
        known.update(zip(new, told.to_pylist(), strict=True))
    of_texts = np.array([known[text] for text in texts], np.int32)
    return np.asarray(of_texts[keys.indices.to_numpy()], np.int32)
