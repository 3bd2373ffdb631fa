"""The open panes of one shape: rows that wait until their panes are over."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from muntin.agent.buffers import Buffers
from muntin.agent.tree import BufferTree
from muntin.kernel.kinds import kind_of
from muntin.model.shapes import Shape


class OpenPanes:
    """Rows of one shape, in a tree. What is over is told by their panes."""

    def __init__(self, shape: Shape, buffers: Buffers) -> None:
        self._shape = shape
        self._buffers = buffers
        self._tree = self._new_tree()
        self._first: int | None = None  # the earliest pane

    def _new_tree(self) -> BufferTree:
        kind = kind_of(self._shape)
        return BufferTree(kind.merge, kind.alike, self._buffers)

    def __bool__(self) -> bool:
        """Whether there are any rows."""
        return self._first is not None

    @property
    def size(self) -> int:
        """Bytes of all rows, as tables."""
        return self._tree.size

    def add(self, rows: pa.Table) -> None:
        """Takes a block's rows."""
        if rows.num_rows:
            first = pc.min(rows.column("pane")).as_py()
            self._first = first if self._first is None else min(first, self._first)
            self._tree.insert(rows)

    def rows(self) -> pa.Table:
        """All rows, merged; there has to be one."""
        return pa.concat_tables(self._tree.flush())

    def take(self, before: int | None) -> pa.Table | None:
        """Takes away the rows of panes before one, or all; None if there is none."""
        if self._first is None or (before is not None and self._first >= before):
            return None
        taken = []
        tree, self._tree, self._first = self._tree, self._new_tree(), None
        for part in tree.flush():
            over = part
            if before is not None:
                is_over = pc.less(part.column("pane"), before)
                over = part.filter(is_over)
                self.add(part.filter(pc.invert(is_over)))
            taken.append(over)
        tree.empty()
        return pa.concat_tables(taken)

    def drop(self) -> None:
        """Lets go of all rows."""
        self._tree.empty()
        self._first = None
