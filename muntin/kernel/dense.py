"""Sliding windows on a matrix of panes by rows, for cells that are numbers.

Much faster than the same in SQL where windows overlap a lot, because a running merge along the
panes is one pass over an array, and a window is then the difference of two of its columns
(exact sums: what left is removed) or the merge of two (all else: the end of one stretch of
panes and the beginning of the next). Both give what the statements of `consolidate` give.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from muntin.kernel.codes import compact, first_rows
from muntin.kernel.statements import cells_of, row_names
from muntin.model.shapes import Cell, Merge, Shape
from muntin.windows.spec import WindowSpec

Ints = NDArray[np.int64]
Array = NDArray[Any]  # of whole or of real numbers

_CELLS_AT_ONCE = 4_000_000  # of one matrix; bounds memory, not answers
_SPARSEST = 64  # cells of the matrix for each row of the block, at most
_SPARSEST_TOP = 512  # the same where few rows of the matrix are taken out of it
_STRETCHES = 64  # of a window, by which it is told what its first rows may be
_ROUNDED = 1e-9  # of a sum, more than what its rounding errors come to
_WHOLE = ("BIGINT", "INTEGER", "SMALLINT", "TINYINT", "DECIMAL(38,0)", "TIMESTAMP")
_REAL = ("DOUBLE", "FLOAT")


class NotDenseError(Exception):
    """The block is left to SQL: other types, huge numbers, or too few rows for a matrix."""


@dataclass(frozen=True)
class _Numbers:
    """One cell of every row of a block; `there` is 1 where it is not null, 0 where it is."""

    cell: Cell
    values: Array
    there: Ints | None  # None if it is null nowhere

    def at(self, rows: Ints) -> _Numbers:
        """The same of some rows."""
        there = None if self.there is None else self.there[rows]
        return _Numbers(self.cell, self.values[rows], there)

    @property
    def identity(self) -> int | float:
        if self.cell.merge is Merge.SUM:
            return 0
        if self.values.dtype == np.float64:
            return np.inf if self.cell.merge is Merge.MIN else -np.inf
        bounds = np.iinfo(np.int64)
        return bounds.max if self.cell.merge is Merge.MIN else bounds.min


@dataclass(frozen=True)
class _Grid:
    """The panes with rows, and where each window begins, is cut and ends among them."""

    panes: Ints
    first: Ints
    cut: Ints
    last: Ints
    stretches: Ints  # where stretches begin among the panes

    @classmethod
    def of(cls, panes: Ints, spec: WindowSpec, ends: Ints) -> _Grid:
        starts = ends - spec.length
        cuts = (starts // spec.length + 1) * spec.length
        numbers = panes // spec.length
        first, cut, last = (np.searchsorted(panes, at) for at in (starts, cuts, ends))
        return cls(panes, first, cut, last, np.flatnonzero(np.r_[True, np.diff(numbers) != 0]))


@dataclass(frozen=True)
class Top:
    """That only so many rows of a window are asked for, the first by one cell; ties stay."""

    cell: str
    limit: int
    largest: bool


def dense_windows(
    shape: Shape,
    blocks: pa.Table,
    spec: WindowSpec,
    ends: Sequence[int],
    exact: bool,
    top: Top | None = None,
) -> pa.Table:
    """The due windows, as (w, part, keys, sub-keys, cells). `exact` sums may be removed again.

    With `top`, rows may be left out that are not among these. Raises NotDenseError where the
    statements have to do it.
    """
    if not blocks.num_rows:
        raise NotDenseError
    numbers = [_numbers(blocks, cell) for cell in cells_of(shape)]
    codes, rows = _row_codes(blocks, row_names(shape))
    pane = blocks.column("pane").to_numpy()
    if top is not None:
        kept = _candidates(top, numbers, codes, rows.num_rows, pane, spec, ends)
        if kept is not None:
            pane, numbers = pane[kept], [number.at(kept) for number in numbers]
            chosen, codes = np.unique(codes[kept], return_inverse=True)
            rows = rows.take(pa.array(chosen))
    panes, at = np.unique(pane, return_inverse=True)
    sparsest = _SPARSEST if top is None else _SPARSEST_TOP
    if len(rows) * len(panes) > sparsest * len(codes):
        raise NotDenseError
    counts = _counts(shape, numbers)
    grid = _Grid.of(panes, spec, np.asarray(ends, np.int64))
    result = _Result(shape, rows, np.asarray(ends, np.int64), numbers)
    first = None if top is None else _First(top, len(ends))
    order = np.argsort(codes, kind="stable")
    for low, high in _chunks(len(rows), max(len(panes), len(ends))):
        inside = order[np.searchsorted(codes[order], low) : np.searchsorted(codes[order], high)]
        place = at[inside] * (high - low) + codes[inside] - low
        matrix = _Matrix(grid, (len(panes), high - low), place, exact)
        result.add(low, matrix, inside, counts, first)
    return result.table(blocks.schema)


def only_first(shape: Shape, blocks: pa.Table, top: Top) -> pa.Table:
    """The rows of keys that may be among the first of their pane, where a window is one pane."""
    (cell,) = (cell for cell in cells_of(shape) if cell.name == top.cell)
    try:
        of = _numbers(blocks, cell)
        codes, count = _codes(blocks, ["pane", *row_names(shape)])
    except NotDenseError:
        return blocks
    panes, at = np.unique(blocks.column("pane").to_numpy(), return_inverse=True)
    if count <= len(panes) * top.limit:
        return blocks
    merged = np.full(count, of.identity, of.values.dtype)
    _MERGES[cell.merge].at(merged, codes, of.values)
    good = merged.astype(np.float64) if top.largest else -merged.astype(np.float64)
    if of.there is not None:  # what is NULL is behind all others
        good[np.bincount(codes, of.there, count) == 0] = -np.inf
    pane_of = np.zeros(count, np.int64)
    pane_of[codes] = at
    order = np.argsort(pane_of, kind="stable")
    bounds = np.searchsorted(pane_of[order], np.arange(len(panes) + 1)).tolist()
    slack = _ROUNDED * float(np.abs(merged).max()) if of.values.dtype == np.float64 else 0.0
    may_be = np.ones(count, np.bool_)
    for start, stop in pairwise(bounds):
        if stop - start > top.limit:
            mine = good[order[start:stop]]
            worst = np.partition(mine, len(mine) - top.limit)[len(mine) - top.limit]
            may_be[order[start:stop]] = mine >= worst - slack
    return blocks.take(pa.array(np.flatnonzero(may_be[codes])))


def _candidates(
    top: Top,
    numbers: Sequence[_Numbers],
    codes: Ints,
    count: int,
    panes: Ints,
    spec: WindowSpec,
    ends: Sequence[int],
) -> Ints | None:
    """The partials of keys that may be among the first of some window; None: of any key.

    A sum of what is never negative grows with its window. So of windows that end next to each other
    a key has at least what lies in all of them, and at most what lies in any; those whose most is
    less than the least of as many others as are asked for are behind these. That is added up by
    stretches of panes, which are few.
    """
    (of,) = (number for number in numbers if number.cell.name == top.cell)
    size = spec.length // _STRETCHES
    if not top.largest or of.cell.merge is not Merge.SUM or size < 2 or top.limit >= count:
        return None
    values = of.values.astype(np.float64)
    first = int(panes.min()) // size
    stretches = int(panes.max()) // size - first + 1
    if stretches * count > _CELLS_AT_ONCE or (values < 0.0).any():
        return None
    place = (panes // size - first) * count + codes
    cells = np.bincount(place, values, stretches * count).reshape(stretches, count)
    sums = np.zeros((stretches + 1, count))
    np.cumsum(cells, axis=0, out=sums[1:])
    slack = float(sums[-1].max()) * _ROUNDED
    last = np.asarray(ends, np.int64)
    may_be = np.zeros(count, np.bool_)
    for some in np.split(last, np.flatnonzero(np.diff(last // size)) + 1):
        soonest, latest = int(some[0]), int(some[-1])
        low, high = -(-(latest - spec.length) // size) - first, soonest // size - first
        least = sums[_within(high, stretches)] - sums[_within(low, stretches)]
        low, high = (soonest - spec.length) // size - first, -(-latest // size) - first
        most = sums[_within(high, stretches)] - sums[_within(low, stretches)]
        worst = np.partition(least, count - top.limit)[count - top.limit]
        if worst <= slack:  # there may be fewer keys than are asked for
            return None
        may_be |= most >= worst - slack
    kept: Ints = np.flatnonzero(may_be[codes])
    return kept


def _within(place: int, count: int) -> int:
    return min(max(place, 0), count)


class _Matrix:
    """Cells of some rows in all panes, window by window."""

    def __init__(self, grid: _Grid, size: tuple[int, int], place: Ints, exact: bool) -> None:
        self._grid = grid
        self._size = size
        self._place = place
        self._exact = exact
        self._sums: dict[str, Array] = {}

    def windows(
        self,
        name: str,
        values: Array,
        merge: Merge = Merge.SUM,
        identity: int | float = 0,
        at: tuple[Ints, Ints] | None = None,
    ) -> Array:
        """What the values come to, a row for each window and a column for each row of the block.

        Or only `at` some places, told by window and row. Values of one name are the same.
        """
        if name in self._sums:
            return self._differences(self._sums[name], at)
        flat = np.full(self._size[0] * self._size[1], identity, values.dtype)
        _MERGES[merge].at(flat, self._place, values)
        cells = flat.reshape(self._size)
        if merge is Merge.SUM and (self._exact or values.dtype == np.int64):
            sums = np.zeros((self._size[0] + 1, self._size[1]), cells.dtype)
            for pane, row in enumerate(cells):  # NumPy's own sums go down columns one by one
                np.add(sums[pane], row, out=sums[pane + 1])
            self._sums[name] = sums
            return self._differences(sums, at)
        windows = self._joined(cells, _MERGES[merge], identity)
        return windows if at is None else windows[at]

    def _differences(self, sums: Array, at: tuple[Ints, Ints] | None) -> Array:
        if at is None:
            return sums[self._grid.last] - sums[self._grid.first]
        windows, rows = at
        return sums[self._grid.last[windows], rows] - sums[self._grid.first[windows], rows]

    def _joined(self, cells: Array, merge: np.ufunc, identity: int | float) -> Array:
        bounds = [*self._grid.stretches.tolist(), self._size[0]]
        forward, backward = np.empty_like(cells), np.empty_like(cells)
        for low, high in pairwise(bounds):
            stretch = cells[low:high]
            forward[low:high] = merge.accumulate(stretch, axis=0)
            backward[low:high] = merge.accumulate(stretch[::-1], axis=0)[::-1]
        grid = self._grid
        ends = np.full((len(grid.first), self._size[1]), identity, cells.dtype)
        some = grid.first < grid.cut
        ends[some] = backward[grid.first[some]]
        more = grid.last > grid.cut
        ends[more] = merge(ends[more], forward[grid.last[more] - 1])
        return ends


class _First:
    """Tells, chunk by chunk, which rows may be among the first of their window.

    By window it keeps the worst value of as many rows as are asked for, which only gets better.
    """

    def __init__(self, top: Top, windows: int) -> None:
        self.top = top
        self._best = np.full((windows, top.limit), -np.inf)  # values, the worst first

    def may_be(self, values: Array, known: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Of values that are `known`, or else are behind all others."""
        good = values.astype(np.float64) if self.top.largest else -values.astype(np.float64)
        good[~known] = -np.inf
        chosen: NDArray[np.bool_] = good >= self._best[:, :1]
        better = np.flatnonzero((good > self._best[:, :1]).any(axis=0))
        if len(better):
            limit = self.top.limit
            every = np.concatenate([self._best, good[:, better]], axis=1)
            kept = np.partition(every, every.shape[1] - limit, axis=1)[:, -limit:]
            self._best = np.sort(kept, axis=1)
            chosen &= good >= self._best[:, :1]
        return chosen


_MERGES: dict[Merge, np.ufunc] = {
    Merge.SUM: np.add,
    Merge.MIN: np.minimum,
    Merge.MAX: np.maximum,
}


class _Result:
    """Rows of windows, added chunk by chunk."""

    def __init__(
        self, shape: Shape, rows: pa.Table, ends: Ints, numbers: Sequence[_Numbers]
    ) -> None:
        self._rows = rows
        self._ends = ends
        self._numbers = numbers
        self._names = row_names(shape)
        self._at: list[Ints] = []
        self._windows: list[Ints] = []
        self._cells: list[list[tuple[Array, NDArray[np.bool_] | None]]] = [[] for _ in numbers]

    def add(
        self, low: int, matrix: _Matrix, inside: Ints, counts: Ints, first: _First | None
    ) -> None:
        counted = next((n.cell.name for n in self._numbers if n.values is counts), "")
        present = matrix.windows(counted, counts[inside]) > 0
        if first is not None:
            (of,) = (n for n in self._numbers if n.cell.name == first.top.cell)
            name, merge = of.cell.name, of.cell.merge
            values = matrix.windows(name, of.values[inside], merge, of.identity)
            known = present
            if of.there is not None:
                known = present & (matrix.windows(f"there {name}", of.there[inside]) > 0)
            present &= first.may_be(values, known)
        # Window by window, as they are ordered in the end.
        windows, rows = np.nonzero(present)
        places = windows, rows
        self._at.append(rows + low)
        self._windows.append(self._ends[windows])
        for number, cells in zip(self._numbers, self._cells, strict=True):
            name, merge, missing = number.cell.name, number.cell.merge, None
            values = matrix.windows(name, number.values[inside], merge, number.identity, places)
            if number.there is not None:
                there = matrix.windows(f"there {name}", number.there[inside], at=places)
                missing = there == 0
            cells.append((values, missing))

    def table(self, schema: pa.Schema) -> pa.Table:
        rows = self._rows.take(pa.array(np.concatenate(self._at)))
        columns = {"w": pa.array(np.concatenate(self._windows))}
        columns |= {name: rows.column(name) for name in self._names}
        for number, cells in zip(self._numbers, self._cells, strict=True):
            values = np.concatenate([chunk for chunk, _ in cells])
            absent = [missing for _, missing in cells if missing is not None]
            kind = schema.field(number.cell.name).type
            array = pa.array(values, mask=np.concatenate(absent) if absent else None)
            columns[number.cell.name] = array if array.type == kind else array.cast(kind)
        return pa.table(columns)


def _numbers(blocks: pa.Table, cell: Cell) -> _Numbers:
    if cell.merge is Merge.FOLD:
        raise NotDenseError
    column = blocks.column(cell.name).combine_chunks()
    there = np.asarray(column.is_valid()).astype(np.int64) if column.null_count else None
    if cell.type in _REAL:
        values: Array = np.asarray(pc.fill_null(column.cast(pa.float64()), 0.0))
        # Infinities and NaN have an order of their own, and sums may become infinite.
        largest = float(np.abs(values).max(initial=0.0))
        if not largest * len(values) < sys.float_info.max:
            raise NotDenseError
    elif cell.type in _WHOLE:
        try:
            values = np.asarray(pc.fill_null(column.cast(pa.int64()), 0))
        except pa.ArrowInvalid as error:
            raise NotDenseError from error
        if cell.merge is Merge.SUM and np.abs(values.astype(np.float64)).sum() >= 2.0**62:
            raise NotDenseError
    else:
        raise NotDenseError
    numbers = _Numbers(cell, values, there)
    if there is None or cell.merge is Merge.SUM:
        return numbers
    return _Numbers(cell, np.where(there == 1, values, numbers.identity), there)


def _row_codes(blocks: pa.Table, names: Sequence[str]) -> tuple[Ints, pa.Table]:
    """A number for every row's keys, and one row for each number."""
    codes, count = _codes(blocks, names)
    return codes, blocks.select(list(names)).take(pa.array(first_rows(codes, count)))


def _codes(blocks: pa.Table, names: Sequence[str]) -> tuple[Ints, int]:
    """A number for every row's keys, and how many there are."""
    codes, count = np.zeros(blocks.num_rows, np.int64), 1
    for name in names:
        column = blocks.column(name).combine_chunks()
        if pa.types.is_floating(column.type):
            column = pc.add(column, 0.0)  # zero and minus zero are one key
        try:
            encoded = pc.dictionary_encode(column, null_encoding="encode")
        except pa.ArrowNotImplementedError as error:
            raise NotDenseError from error
        if len(encoded.dictionary) > 1:
            wide = codes * len(encoded.dictionary) + encoded.indices.to_numpy()
            codes, count = compact(wide, count * len(encoded.dictionary))
    return codes, count


def _counts(shape: Shape, numbers: Sequence[_Numbers]) -> Ints:
    """The count cell of each row's part: zero when nothing is left of the row."""
    cells = [cell for part in shape.parts for cell in part.cells if cell.sql == "count(*)"]
    wanted = {cell.name for cell in cells}
    if len(wanted) < len(shape.parts):  # a sketch's registers are not counted
        raise NotDenseError
    counts = [n.values for n in numbers if n.cell.name in wanted]
    total: Ints = counts[0] if len(counts) == 1 else np.sum(counts, axis=0, dtype=np.int64)
    return total


def _chunks(rows: int, width: int) -> Iterator[tuple[int, int]]:
    size = max(1, _CELLS_AT_ONCE // max(1, width))
    for low in range(0, rows, size):
        yield low, min(rows, low + size)
