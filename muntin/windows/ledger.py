"""What has been read into which pane, kept until every window that holds the pane is out.

Adding, forgetting and counting take time in proportion to what has changed, not to what is held:
sums are made anew only from the first pane that has changed. Panes that have come to rest are
packed into arrays of the smallest types that hold them, and unpacked when something is added.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from muntin.model.counts import Counts, Tally
from muntin.model.records import NOWHERE
from muntin.model.shapes import Shape
from muntin.windows.spec import WindowSpec

Grid = tuple[str, int]  # an axis and the size of panes on it
Names = tuple[str, ...]
Rows = NDArray[np.integer]
_WORTH_PACKING = 8  # tallies of a pane


def grids_of(shapes: Mapping[str, Shape]) -> dict[str, Grid]:
    """The axis and the size of panes of each shape that has panes."""
    return {id_: (shape.axis.column, shape.pane) for id_, shape in shapes.items() if shape.pane}


def on_panes_of(size: int, tally: Tally) -> Tally:
    """A tally on panes of another size: those in which its own pane and its mark start."""
    mark = None if tally.not_before is None else tally.not_before * tally.size // size
    return tally._replace(size=size, pane=tally.pane * tally.size // size, not_before=mark)


def on_grids(
    tallies: Iterable[Tally], before: Mapping[str, Grid], now: Mapping[str, Grid]
) -> Iterator[Tally]:
    """Tallies that were counted on the grids that shapes had before, on those that they have now.

    Records are counted once on each grid. So what one of before has is moved only to a grid that
    was not among them. Of several that shapes had, the finest is moved; what is on a grid that
    nobody has any more is left out.
    """
    old, new = {*before.values()}, {*now.values()}
    moves: dict[Grid, int] = {}  # by new grid, the size of panes on the old one
    for id_, (_, size) in before.items():
        if id_ in now and now[id_] not in old:
            moves[now[id_]] = min(size, moves.get(now[id_], size))
    for tally in tallies:
        grid = tally.axis, tally.size
        if grid in new or grid not in old:
            yield tally
        for (axis, size), from_size in moves.items():
            if grid == (axis, from_size):
                yield on_panes_of(size, tally)


@dataclass(frozen=True)
class Changes:
    """What became of a ledger: tallies that were added, then panes that were forgotten.

    If `whole`, the tallies are all that it holds, and what was told before is void.
    """

    tallies: Sequence[Tally]
    forgotten: dict[Grid, int]
    whole: bool


@dataclass(frozen=True, slots=True)
class _Packed:
    """Tallies of a pane as columns; the sources are those of other panes, if they are the same."""

    sources: Names
    marks: Rows | None  # None where no tally has one
    records: Rows
    bad: Rows
    reached: Rows

    @classmethod
    def of(cls, tallies: Iterable[Tally], like: Names) -> _Packed:
        ordered = sorted(tallies, key=itemgetter(0))
        sources, _, _, _, marks, records, bad, reached = zip(*ordered, strict=True)
        marked = any(mark is not None for mark in marks)
        return cls(
            like if sources == like else sources,
            np.array([NOWHERE if m is None else m for m in marks]) if marked else None,
            _smallest(records),
            _smallest(bad),
            np.array(reached),
        )

    def tallies(self, grid: Grid, pane: int) -> Iterator[Tally]:
        marks: Sequence[int | None] = [None] * len(self.sources)
        if self.marks is not None:
            marks = [None if mark == NOWHERE else mark for mark in self.marks.tolist()]
        columns = (self.records.tolist(), self.bad.tolist(), self.reached.tolist())
        for source, mark, *counts in zip(self.sources, marks, *columns, strict=True):
            yield Tally(source, *grid, pane, mark, *counts)


def _smallest(values: Sequence[int]) -> Rows:
    return np.array(values, np.min_scalar_type(max(values)))


class _Pane:
    """The tallies of one pane by source and mark, loose or packed, and what they come to."""

    __slots__ = ("bad", "loose", "marked", "packed", "read")

    def __init__(self) -> None:
        self.read = 0
        self.bad = 0
        self.marked: dict[int, int] = {}  # not_before -> records
        self.loose: dict[tuple[str, int | None], Tally] = {}
        self.packed: _Packed | None = None

    def __len__(self) -> int:
        return len(self.loose) if self.packed is None else len(self.packed.sources)

    def add(self, tally: Tally) -> bool:
        """Whether there was none of its source and mark."""
        if self.packed is not None:
            self._unpack(tally)
        key = tally.source, tally.not_before
        known = self.loose.get(key)
        self.loose[key] = tally if known is None else known.plus(tally)
        self.read += tally.records
        self.bad += tally.bad
        if tally.not_before is not None:
            earlier = self.marked.get(tally.not_before, 0)
            self.marked[tally.not_before] = earlier + tally.records
        return known is None

    def pack(self, like: Names) -> Names:
        """Packs what is loose; returns the sources, for the next pane to be like."""
        if self.packed is None and len(self.loose) >= _WORTH_PACKING:
            self.packed = _Packed.of(self.loose.values(), like)
            self.loose = {}
        return like if self.packed is None else self.packed.sources

    def _unpack(self, tally: Tally) -> None:
        assert self.packed is not None
        tallies = self.packed.tallies((tally.axis, tally.size), tally.pane)
        self.loose = {(t.source, t.not_before): t for t in tallies}
        self.packed = None

    def records(self) -> Iterable[tuple[str, int]]:
        """How many there are of each source, in parts."""
        if self.packed is not None:
            return zip(self.packed.sources, self.packed.records.tolist(), strict=True)
        return [(source, tally.records) for (source, _), tally in self.loose.items()]

    def tallies(self, grid: Grid, pane: int) -> Iterable[Tally]:
        return self.loose.values() if self.packed is None else self.packed.tallies(grid, pane)


class _Panes:
    """The panes of one grid, and running sums over them, so that a window costs two look-ups."""

    def __init__(self) -> None:
        self.held: dict[int, _Pane] = {}
        self.size = 0  # tallies
        self._new: set[int] = set()  # panes that are not in the sums yet
        self._changed: int | None = None  # the first pane of which the sums are not true
        self._warm: set[int] = set()  # panes added to since the last rest
        self._cooling: set[int] = set()  # panes added to before it
        self._like: Names = ()
        self._numbers: list[int] = []
        self._with_records: list[int] = []
        self._read, self._bad = [0], [0]
        self.late: dict[str, dict[int, int]] = {}  # source -> pane -> the last mark
        self._late_panes: list[int] = []
        self._late = np.empty((0, 2), np.int64)  # not_before and records of each of them

    def add(self, tallies: Sequence[Tally]) -> None:
        held = self.held
        for tally in tallies:
            number = tally.pane
            pane = held.get(number)
            if pane is None:
                pane = held[number] = _Pane()
                self._new.add(number)
            self.size += pane.add(tally)
            if tally.not_before is not None and tally.records:
                panes = self.late.setdefault(tally.source, {})
                panes[number] = max(tally.not_before, panes.get(number, tally.not_before))
        numbers = {tally.pane for tally in tallies}
        self._warm |= numbers
        lowest = min(numbers)
        if self._changed is None or lowest < self._changed:
            self._changed = lowest

    def bad(self, start: int, end: int) -> dict[int, int]:
        self._refresh()
        low, high = bisect_left(self._numbers, start), bisect_left(self._numbers, end)
        found = ((number, self.held[number].bad) for number in self._numbers[low:high])
        return {number: bad for number, bad in found if bad}

    def with_records(self) -> list[int]:
        self._refresh()
        return self._with_records

    def counts(self, start: int, end: int) -> Counts:
        self._refresh()
        low, high = bisect_left(self._numbers, start), bisect_left(self._numbers, end)
        read, bad = self._read[high] - self._read[low], self._bad[high] - self._bad[low]
        low, high = bisect_left(self._late_panes, start), bisect_left(self._late_panes, end)
        if low == high:
            return Counts(read, bad, 0)
        marked = self._late[low:high]
        return Counts(read, bad, int(marked[marked[:, 0] >= end, 1].sum()))

    def counts_of(
        self, start: int, end: int, names: Sequence[str], inside: NDArray[np.bool_]
    ) -> Counts:
        self._refresh()
        rows = {name: row for row, name in enumerate(names)}
        known: dict[int, tuple[Names, Rows]] = {}  # sources, and rows of each or the one after all
        chosen = np.vstack([inside, np.zeros((1, inside.shape[1]), np.bool_)])
        read = bad = late = 0
        low, high = bisect_left(self._numbers, start), bisect_left(self._numbers, end)
        for number in self._numbers[low:high]:
            packed = self.held[number].packed or _Packed.of(self.held[number].loose.values(), ())
            sources = packed.sources
            if id(sources) not in known:
                places = np.array([rows.get(name, len(names)) for name in sources])
                known[id(sources)] = sources, places
            taken = chosen[known[id(sources)][1], number - start]
            read += int(packed.records[taken].sum(dtype=np.int64))
            bad += int(packed.bad[taken].sum(dtype=np.int64))
            if packed.marks is not None:
                taken &= packed.marks >= end
                late += int(packed.records[taken].sum(dtype=np.int64))
        return Counts(read, bad, late)

    def records_of(self, start: int, end: int, names: Sequence[str]) -> list[list[int]]:
        self._refresh()
        rows = {name: row for row, name in enumerate(names)}
        found = [[0] * (end - start) for _ in (*names, "")]  # the last is of all other sources
        low, high = bisect_left(self._numbers, start), bisect_left(self._numbers, end)
        for number in self._numbers[low:high]:
            for source, records in self.held[number].records():
                found[rows.get(source, -1)][number - start] += records
        return found[:-1]

    def read_since(self, pane: int | None) -> int:
        self._refresh()
        low = 0 if pane is None else bisect_left(self._numbers, pane)
        return self._read[-1] - self._read[low]

    def forget(self, before: int) -> None:
        """Drops panes, and packs those that were not added to since this was last done."""
        self._refresh()
        gone = bisect_left(self._numbers, before)
        for number in self._numbers[:gone]:
            self.size -= len(self.held.pop(number))
        for column in (self._numbers, self._read, self._bad):
            del column[:gone]
        del self._with_records[: bisect_left(self._with_records, before)]
        late = bisect_left(self._late_panes, before)
        if late:
            del self._late_panes[:late]
            self._late = self._late[late:].copy()
            for source, panes in list(self.late.items()):
                kept = {pane: mark for pane, mark in panes.items() if pane >= before}
                self.late[source] = kept
                if not kept:
                    del self.late[source]
        for number in self._cooling - self._warm:
            if number in self.held:
                self._like = self.held[number].pack(self._like)
        self._cooling, self._warm = self._warm, set()

    def _refresh(self) -> None:
        """Makes the sums anew from the first pane that has changed."""
        if self._changed is None:
            return
        at = bisect_left(self._numbers, self._changed)
        numbers = self._numbers[at:]
        numbers = sorted([*numbers, *self._new]) if self._new else numbers
        panes = [self.held[number] for number in numbers]
        self._numbers[at:] = numbers
        self._read[at:] = accumulate((p.read for p in panes), initial=self._read[at])
        self._bad[at:] = accumulate((p.bad for p in panes), initial=self._bad[at])
        at = bisect_left(self._with_records, self._changed)
        self._with_records[at:] = [n for n, p in zip(numbers, panes, strict=True) if p.read]
        at = bisect_left(self._late_panes, self._changed)
        late = [(n, m) for n, p in zip(numbers, panes, strict=True) for m in p.marked.items()]
        if late or at < len(self._late_panes):
            self._late_panes[at:] = [number for number, _ in late]
            marks = np.array([mark for _, mark in late], np.int64).reshape(-1, 2)
            self._late = np.concatenate([self._late[:at], marks])
        self._new.clear()
        self._changed = None


class Ledger:
    """Tallies by grid, pane, source and mark; equal ones are added up."""

    def __init__(self, tallies: Iterable[Tally] = ()) -> None:
        self._grids: dict[Grid, _Panes] = {}
        self._added: list[Tally] | None = None  # since changes were asked for; None: unwatched
        self._forgotten: dict[Grid, int] = {}
        self.version = 0
        """Another number whenever something has changed."""
        self.add(tallies)

    def add(self, tallies: Iterable[Tally]) -> None:
        self.version += 1
        by_grid: dict[Grid, list[Tally]] = {}
        for tally in tallies:
            by_grid.setdefault((tally.axis, tally.size), []).append(tally)
        for grid, mine in by_grid.items():
            if grid not in self._grids:
                self._grids[grid] = _Panes()
            self._grids[grid].add(mine)
            if self._added is not None:
                self._added += mine

    def panes(self, grid: Grid) -> list[int]:
        """Panes with records, in order; it changes with the ledger."""
        return self._grids[grid].with_records() if grid in self._grids else []

    def bad(self, grid: Grid, start: int, end: int) -> dict[int, int]:
        """How many bad records there are in panes `[start, end)` that have some."""
        return self._grids[grid].bad(start, end) if grid in self._grids else {}

    def counts(self, axis: str, spec: WindowSpec, end: int) -> Counts:
        """Records read, bad and late within one window."""
        panes = self._grids.get((axis, spec.pane))
        return Counts() if panes is None else panes.counts(spec.start(end), end)

    def counts_of(
        self, axis: str, spec: WindowSpec, end: int, names: Sequence[str], inside: NDArray[np.bool_]
    ) -> Counts:
        """The same of some sources, by name, and panes: a row and a column of `inside`."""
        panes = self._grids.get((axis, spec.pane))
        start = spec.start(end)
        return Counts() if panes is None else panes.counts_of(start, end, names, inside)

    def records_of(
        self, axis: str, spec: WindowSpec, end: int, names: Sequence[str]
    ) -> list[list[int]]:
        """Records of each source, by name, read into each pane of one window."""
        panes = self._grids.get((axis, spec.pane)) or _Panes()
        return panes.records_of(spec.start(end), end, names)

    def late(self, grid: Grid) -> dict[str, dict[int, int]]:
        """By source and pane: the last end of windows that leave out late records of it."""
        if grid not in self._grids:
            return {}
        return {source: dict(panes) for source, panes in self._grids[grid].late.items()}

    def read_since(self, grid: Grid, pane: int | None) -> int:
        """Records read into this pane or later ones; into all where it is None."""
        return self._grids[grid].read_since(pane) if grid in self._grids else 0

    def forget(self, grid: Grid, before: int) -> None:
        """Drops what lies before a pane."""
        if grid in self._grids:
            self.version += 1
            self._grids[grid].forget(before)
            if self._added is not None:
                self._forgotten[grid] = max(before, self._forgotten.get(grid, before))

    def regrid(self, grid: Grid, wanted: Grid) -> None:
        """Gives a grid what another one of its axis has of panes before all of its own.

        What was read into a pane counts in the one of the other grid in which it starts, and so do
        marks: windows that start and end on both grids have the same counts from either.
        """
        if grid not in self._grids or grid == wanted:
            return
        size, before = wanted[1], grid[1]
        there = self._grids[wanted].held if wanted in self._grids else {}
        first = min(there, default=None)
        moved = []
        for number, pane in self._grids[grid].held.items():
            place, end = number * before // size, -(-(number + 1) * before // size)
            if first is not None and place >= first:
                continue
            known: dict[str, Counter[str]] = {}  # what the other grid has of this pane already
            for inside in (n for n in range(first or end, end) if n in there):
                for t in there[inside].tallies(wanted, inside):
                    if t.not_before is None:
                        counts = known.setdefault(t.source, Counter())
                        counts.update(records=t.records, bad=t.bad)
            for t in pane.tallies(grid, number):
                less = known.get(t.source, Counter()) if t.not_before is None else Counter()
                records, bad = t.records - less["records"], t.bad - less["bad"]
                if not less or records > 0 or bad > 0:
                    left = t._replace(records=max(0, records), bad=max(0, bad))
                    moved.append(on_panes_of(size, left))
        self.add(moved)
        self._added = None  # some lie before panes that were forgotten there

    def keep(self, grids: Collection[Grid]) -> None:
        """Drops all other grids."""
        gone = [grid for grid in self._grids if grid not in grids]
        self.version += 1
        for grid in gone:
            del self._grids[grid]
        if gone:
            self._added = None

    def watch(self) -> None:
        """Remembers changes from here on, until somebody asks for them."""
        self._added, self._forgotten = [], {}

    def changes(self, whole: bool = False) -> Changes:
        """What has changed since this was last asked; all that is held, if nobody has watched."""
        whole |= self._added is None
        told = Changes(list(self) if whole else self._added or [], self._forgotten, whole)
        self.watch()
        return told

    def apply(self, changes: Changes) -> None:
        """Makes the changes of another ledger here."""
        if changes.whole:
            self._grids.clear()
        self.add(changes.tallies)
        for grid, before in changes.forgotten.items():
            self.forget(grid, before)

    def __len__(self) -> int:
        """How many tallies there are."""
        return sum(panes.size for panes in self._grids.values())

    def __iter__(self) -> Iterator[Tally]:
        for grid, panes in self._grids.items():
            for number, pane in panes.held.items():
                yield from pane.tallies(grid, number)
