"""A compressed buffer tree: aggregates of many keys in little memory, merged when it pays.

    insert ─► root ──full──► merged ─► cut by hash ─► children, compressed ──full──► …

Every node has a buffer of rows, and children have ranges of its hashes. Rows are added to the root,
and nothing is done with them before its buffer is full. Then they are merged. Where that leaves
few, they stay; otherwise they are cut by hash and added to the buffers of the children. A leaf that
is full gives way to several. So rows of one key meet at the latest in a leaf, none of which is
large. A tree of few rows is a list of tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pyarrow as pa

from muntin.agent.buffers import Buffer, Buffers
from muntin.kernel.engine import run

Merge = Callable[[Sequence[pa.Table]], pa.Table]

FULL = 16 << 20  # bytes of a node's rows, as tables, that are worth merging
CHILDREN = 128  # of a node, at first; they become up to four times as many
_MANY = 16  # tables that are worth merging, however small
_LARGE = 1 << 20  # bytes that are worth compressing even in the root
_SPLIT = 4  # leaves in the place of one that is full
_HASHES = 1 << 64


@dataclass(eq=False)
class _Node:
    """Rows with hashes in `[lower, upper)`. What has children passes its rows on to them."""

    full: int  # bytes, as tables
    lower: int = 0
    upper: int = _HASHES
    parent: _Node | None = None
    buffers: list[Buffer] = field(default_factory=list)
    children: list[_Node] = field(default_factory=list)

    @property
    def size(self) -> int:
        return sum(buffer.size for buffer in self.buffers)


class BufferTree:
    """Rows that `merge` makes fewer. Those that it may make one are equal in the columns `by`."""

    def __init__(
        self,
        merge: Merge,
        by: Sequence[str],
        buffers: Buffers,
        full: int = FULL,
        children: int = CHILDREN,
    ) -> None:
        self._merge = merge
        self._by = by
        self._buffers = buffers
        self._full = full
        self._children = children
        self._most = children * _SPLIT
        self._root = _Node(full)

    @property
    def size(self) -> int:
        """Bytes of all rows, as tables."""
        nodes, size = [self._root], 0
        while nodes:
            node = nodes.pop()
            size += node.size
            nodes += node.children
        return size

    def insert(self, table: pa.Table) -> None:
        """Adds a table in which no two rows are to be merged."""
        if not table.num_rows:
            return
        root = self._root
        root.buffers.append(self._buffers.put(table))
        if root.size >= root.full:
            self._overflow(root)
        elif len(root.buffers) > _MANY:
            self._merge_small(root)

    def flush(self) -> Iterator[pa.Table]:
        """The aggregate, in tables that have no key in common. It stays in the tree.

        Nothing may be inserted before the last of them was taken.
        """
        return self._flushed(self._root)

    def empty(self) -> None:
        """Lets go of all rows."""
        self._empty(self._root)
        self._root = _Node(self._full)

    def _overflow(self, node: _Node) -> None:
        """Merges the rows of a node; passes them on if they are still many."""
        rows = self._taken(node)
        if rows.nbytes <= node.full // 2:
            self._keep(node, rows)
        elif node.children:
            self._pass_on(rows, node.children)
        elif self._by and node.upper - node.lower > self._most:
            self._pass_on(rows, self._split(node))
        else:
            self._keep(node, rows)
            node.full = 2 * node.size

    def _keep(self, node: _Node, rows: pa.Table) -> None:
        packed = node is not self._root or rows.nbytes >= _LARGE
        node.buffers.append(self._buffers.put(rows, packed))

    def _split(self, leaf: _Node) -> list[_Node]:
        """The leaves that take the place of a full one, or are below it if its parent has many."""
        parent, at, count = leaf, slice(0, 0), self._children
        if leaf.parent is not None and len(leaf.parent.children) < self._most:
            parent, count = leaf.parent, _SPLIT
            index = parent.children.index(leaf)
            at = slice(index, index + 1)
        bounds = [leaf.lower + (leaf.upper - leaf.lower) * i // count for i in range(count + 1)]
        leaves = [_Node(self._full, *between, parent) for between in pairwise(bounds)]
        parent.children[at] = leaves
        return leaves

    def _pass_on(self, rows: pa.Table, nodes: Sequence[_Node]) -> None:
        """Adds rows to the nodes that have their hashes."""
        hashes = run(
            f"SELECT hash({', '.join(self._by)}) AS hash FROM blocks",
            {"blocks": rows.select(self._by)},
            "parting open panes",
        ).column("hash")
        starts = np.array([node.lower for node in nodes[1:]], np.uint64)
        which = np.searchsorted(starts, hashes.to_numpy(), "right").astype(np.uint16)
        rows = rows.combine_chunks().take(pa.array(np.argsort(which, kind="stable")))
        end = 0
        for node, count in zip(tuple(nodes), np.bincount(which, minlength=len(nodes)), strict=True):
            start, end = end, end + int(count)
            if count:
                part = rows.slice(start, end - start)
                node.buffers.append(self._buffers.put(part, packed=True))
                if node.size >= node.full:
                    self._overflow(node)

    def _merge_small(self, node: _Node) -> None:
        """Merges the last buffers, from the first that is no larger than all behind it.

        So rows that are many are not merged again for the sake of few.
        """
        sizes = np.array([buffer.size for buffer in node.buffers])
        behind = sizes.sum() - np.cumsum(sizes)
        first = int(np.argmax(sizes <= behind))
        if sizes[first] <= behind[first]:
            last = node.buffers[first:]
            merged = self._merge([self._buffers.read(buffer) for buffer in last])
            self._buffers.drop(last)
            node.buffers[first:] = [self._buffers.put(merged)]

    def _taken(self, node: _Node) -> pa.Table:
        """A node's own rows, merged; its buffer is empty then."""
        tables = [self._buffers.read(buffer) for buffer in node.buffers]
        self._buffers.drop(node.buffers)
        node.buffers = []
        return tables[0] if len(tables) == 1 else self._merge(tables)

    def _flushed(self, node: _Node) -> Iterator[pa.Table]:
        if node.children:
            if node.buffers:
                self._pass_on(self._taken(node), node.children)
            for child in node.children:
                yield from self._flushed(child)
        elif len(node.buffers) == 1:
            yield self._buffers.read(node.buffers[0])
        elif node.buffers:
            rows = self._taken(node)
            self._keep(node, rows)
            yield rows

    def _empty(self, node: _Node) -> None:
        self._buffers.drop(node.buffers)
        for child in node.children:
            self._empty(child)
