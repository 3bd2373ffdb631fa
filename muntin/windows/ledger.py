"""What has been read into which pane, kept until every window that holds the pane is out."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from muntin.model import Counts, Tally
from muntin.windows.spec import WindowSpec


@dataclass
class _Pane:
    """The tallies of one pane by source and mark, and what they come to."""

    tallies: dict[tuple[str, int | None], Tally] = field(default_factory=dict)
    read: int = 0
    bad: int = 0
    marked: dict[int, int] = field(default_factory=dict)  # not_before -> records

    def add(self, tally: Tally) -> None:
        key = tally.source, tally.not_before
        known = self.tallies.get(key)
        self.tallies[key] = tally if known is None else _sum(known, tally)
        self.read += tally.records
        self.bad += tally.bad
        if tally.not_before is not None:
            earlier = self.marked.get(tally.not_before, 0)
            self.marked[tally.not_before] = earlier + tally.records


@dataclass(frozen=True)
class _Sums:
    """Running totals over the panes of one size, so that a window costs two look-ups."""

    panes: list[int]
    read: list[int]
    bad: list[int]
    late_panes: list[int]
    late: NDArray[np.int64]  # rows of not_before and records, one for each of late_panes

    def counts(self, start: int, end: int) -> Counts:
        low, high = bisect_left(self.panes, start), bisect_left(self.panes, end)
        read, bad = self.read[high] - self.read[low], self.bad[high] - self.bad[low]
        low, high = bisect_left(self.late_panes, start), bisect_left(self.late_panes, end)
        if low == high:
            return Counts(read, bad, 0)
        marked = self.late[low:high]
        return Counts(read, bad, int(marked[marked[:, 0] >= end, 1].sum()))


Grid = tuple[str, int]  # an axis and the size of panes on it


class Ledger:
    """Tallies by grid, pane, source and mark; equal ones are added up."""

    def __init__(self, tallies: Iterable[Tally] = ()) -> None:
        self._panes: dict[Grid, dict[int, _Pane]] = {}
        self._sums: dict[Grid, _Sums] = {}
        self._read: dict[Grid, list[int]] = {}  # panes with records, in order
        self.add(tallies)

    def add(self, tallies: Iterable[Tally]) -> None:
        changed = set()
        for tally in tallies:
            grid = tally.axis, tally.size
            panes = self._panes.setdefault(grid, {})
            if tally.pane not in panes:
                panes[tally.pane] = _Pane()
            panes[tally.pane].add(tally)
            changed.add(grid)
        for grid in changed:
            self._changed(grid)

    def panes(self, grid: Grid) -> list[int]:
        """Panes with records, in order."""
        if grid not in self._read:
            panes = self._panes.get(grid, {}).items()
            self._read[grid] = sorted(number for number, pane in panes if pane.read)
        return self._read[grid]

    def counts(self, axis: str, spec: WindowSpec, end: int) -> Counts:
        """Records read, bad and late within one window."""
        grid = axis, spec.pane
        if grid not in self._sums:
            self._sums[grid] = _sums(self._panes.get(grid, {}))
        return self._sums[grid].counts(end - spec.length, end)

    def counts_of(
        self, axis: str, spec: WindowSpec, end: int, names: Sequence[str], inside: NDArray[np.bool_]
    ) -> Counts:
        """The same of some sources, by name, and panes: a row and a column of `inside`."""
        rows = {name: row for row, name in enumerate(names)}
        panes, first = self._panes.get((axis, spec.pane), {}), end - spec.length
        read = bad = late = 0
        for number in range(first, end):
            for tally in panes[number].tallies.values() if number in panes else ():
                row = rows.get(tally.source)
                if row is not None and inside[row, number - first]:
                    read += tally.records
                    bad += tally.bad
                    if tally.not_before is not None and tally.not_before >= end:
                        late += tally.records
        return Counts(read, bad, late)

    def read_since(self, grid: Grid, pane: int | None) -> int:
        """Records read into this pane or later ones; into all where it is None."""
        panes = self._panes.get(grid, {}).items()
        return sum(found.read for number, found in panes if pane is None or number >= pane)

    def forget(self, grid: Grid, before: int) -> None:
        panes = self._panes.get(grid, {})
        for pane in [p for p in panes if p < before]:
            del panes[pane]
        self._changed(grid)

    def regrid(self, known: Grid, wanted: Grid) -> None:
        """Gives a grid what another one of its axis has of panes before all of its own.

        Where panes become smaller, what was read into one counts in the first that lies in it.
        """
        size = wanted[1]
        first = min(self._panes.get(wanted, ()), default=None)
        tallies = []
        for pane in self._panes.get(known, {}).values():
            for tally in pane.tallies.values():
                place = tally.pane * known[1] // size
                mark = None if tally.not_before is None else tally.not_before * known[1] // size
                if first is None or place < first:
                    tallies.append(tally._replace(size=size, pane=place, not_before=mark))
        self.add(tallies)

    def _changed(self, grid: Grid) -> None:
        self._sums.pop(grid, None)
        self._read.pop(grid, None)

    def __iter__(self) -> Iterator[Tally]:
        for panes in self._panes.values():
            for pane in panes.values():
                yield from pane.tallies.values()


def _sums(panes: dict[int, _Pane]) -> _Sums:
    inside = sorted(panes.items())
    marked = [(number, mark) for number, pane in inside for mark in pane.marked.items()]
    return _Sums(
        panes=[number for number, _ in inside],
        read=list(accumulate((pane.read for _, pane in inside), initial=0)),
        bad=list(accumulate((pane.bad for _, pane in inside), initial=0)),
        late_panes=[number for number, _ in marked],
        late=np.array([mark for _, mark in marked], np.int64).reshape(-1, 2),
    )


def _sum(a: Tally, b: Tally) -> Tally:
    return a._replace(
        records=a.records + b.records,
        bad=a.bad + b.bad,
        reached=max(a.reached, b.reached),
    )
