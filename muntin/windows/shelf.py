"""Complete windows, and stretches of panes, that are kept because windows that are not due yet may
be made of them.

They are a cache: what is missing is merged from panes again. Their rows are those that were on
time for every window; a row of that kind that comes later, from a source that was silent for
long, makes the windows it belongs to incomplete, and they are dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from muntin.model.counts import Tally
from muntin.model.shapes import Shape
from muntin.windows.spec import WindowSpec

Rows = TypeVar("Rows")


@dataclass(frozen=True)
class Complete(Generic[Rows]):
    """Windows of one kind that left together, in one key group."""

    shape: str
    spec: WindowSpec
    last_end: int
    rows: Rows
    group: int = 0


@dataclass
class Shelf(Generic[Rows]):
    complete: list[Complete[Rows]] = field(default_factory=list)

    def put(self, windows: Iterable[Complete[Rows]]) -> None:
        """Adds windows; of a kind that overlaps, only the newest are of use."""
        new = list(windows)
        over = {(c.shape, c.spec, c.group) for c in new if not c.spec.apart}
        kept = [c for c in self.complete if (c.shape, c.spec, c.group) not in over]
        self.complete = kept + new

    def useful(self, due: Mapping[str, Sequence[WindowSpec]]) -> list[Complete[Rows]]:
        """Those that lie inside windows of a larger kind that are due, by shape.

        Of windows that cumulate, the next is made of the last.
        """
        largest = {
            shape: max(specs, key=lambda spec: spec.length) for shape, specs in due.items() if specs
        }
        return [
            c
            for c in self.complete
            if (larger := largest.get(c.shape)) is not None
            and (c.spec.length < larger.length or c.spec.cumulates)
            and c.spec.pane == larger.pane  # the grid may have changed since
        ]

    def drop_touched(self, shapes: Mapping[str, Shape], tallies: Iterable[Tally]) -> None:
        """Drops windows that hold a pane into which records on time came just now.

        So are those whose shape no job has any more.
        """
        if not self.complete:
            return
        first: dict[tuple[str, int, bool], int] = {}
        for tally in tallies:
            # Where windows are revised, late records are rows like all others.
            for revised in (True, False) if tally.not_before is None else (True,):
                grid = tally.axis, tally.size, revised
                if tally.records:
                    first[grid] = min(first.get(grid, tally.pane), tally.pane)
        self.complete = [
            c
            for c in self.complete
            if c.shape in shapes and c.last_end <= first.get(_grid(shapes[c.shape]), c.last_end)
        ]

    def drop_before(self, oldest: Mapping[str, int]) -> None:
        """Drops windows that start before all windows still to come, by shape."""
        self.complete = [
            c for c in self.complete if c.spec.start(c.last_end) >= oldest.get(c.shape, 0)
        ]


def _grid(shape: Shape) -> tuple[str, int, bool]:
    return shape.axis.column, shape.pane, shape.revise_us is not None
