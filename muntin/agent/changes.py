"""What has become of open panes since the last safe point: rows that came, panes that left."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from muntin.agent.buffers import Buffer, Buffers

_WORTH_COUNTING = 1 << 20  # bytes: what was added may be so much more than there is


class Changes:
    """Rows by shape, beside those that are in trees.

    Where they have become more than all that is open, as rows of the same keys do that are not
    merged, they are let go: then the next point has to be `whole`, as the first one has.
    """

    def __init__(self, buffers: Buffers) -> None:
        self.whole = True
        self._buffers = buffers
        self._added: dict[str, list[Buffer]] = {}
        self._left: dict[str, int | None] = {}

    @property
    def left(self) -> dict[str, int | None]:
        """By shape, the pane before which all have left; None: all of them."""
        return dict(self._left)

    def add(self, id_: str, rows: pa.Table, size: int) -> None:
        """Takes rows that were added to the open panes of a shape, which have this size now."""
        if self.whole:
            return
        added = self._added.setdefault(id_, [])
        added.append(self._buffers.put(rows))
        if sum(buffer.size for buffer in added) > size + _WORTH_COUNTING:
            self.drop()
            self.whole = True

    def leave(self, id_: str, before: int | None) -> None:
        """Takes that the panes of a shape before one have left, or all of them."""
        known = self._left.get(id_, before)
        self._left[id_] = None if known is None or before is None else max(known, before)

    def added(self) -> dict[str, list[pa.Table]]:
        """By shape, the rows that were added and have not left."""
        tables: dict[str, list[pa.Table]] = {}
        for id_, buffers in self._added.items():
            before = self._left.get(id_)
            if before is None and id_ in self._left:
                continue
            rows = [_since(self._buffers.read(buffer), before) for buffer in buffers]
            tables[id_] = [each for each in rows if each.num_rows]
        return {id_: rows for id_, rows in tables.items() if rows}

    def written(self) -> None:
        """Begins anew behind a safe point."""
        self.drop()
        self._left = {}
        self.whole = False

    def drop(self) -> None:
        """Lets go of all rows."""
        for buffers in self._added.values():
            self._buffers.drop(buffers)
        self._added = {}


def _since(rows: pa.Table, pane: int | None) -> pa.Table:
    return rows if pane is None else rows.filter(pc.greater_equal(rows.column("pane"), pane))
