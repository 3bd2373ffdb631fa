"""Sliding windows on a matrix of rows by panes, for cells that are numbers.

Much faster than the same in SQL where windows overlap a lot, because a running merge along the
panes is one pass over an array, and a window is then the difference of two of its columns
(exact sums: what left is removed) or the merge of two (all else: the end of one stretch of
panes and the beginning of the next). Both give what the statements of `consolidate` give.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from muntin.kernel.statements import cells_of, row_names
from muntin.model import Cell, Merge, Shape
from muntin.windows.spec import WindowSpec

Ints = NDArray[np.int64]
Array = NDArray[Any]  # of whole or of real numbers

_CELLS_AT_ONCE = 4_000_000  # of one matrix; bounds memory, not answers
_SPARSEST = 64  # cells of the matrix for each row of the block, at most
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


def dense_windows(
    shape: Shape, blocks: pa.Table, spec: WindowSpec, ends: Sequence[int], exact: bool
) -> pa.Table:
    """The due windows, as (w, part, keys, sub-keys, cells). `exact` sums may be removed again.

    Raises NotDenseError where the statements have to do it.
    """
    if not blocks.num_rows:
        raise NotDenseError
    numbers = [_numbers(blocks, cell) for cell in cells_of(shape)]
    codes, rows = _row_codes(blocks, row_names(shape))
    panes, at = np.unique(blocks.column("pane").to_numpy(), return_inverse=True)
    if len(rows) * len(panes) > _SPARSEST * len(codes):
        raise NotDenseError
    counts = _counts(shape, numbers)
    grid = _Grid.of(panes, spec, np.asarray(ends, np.int64))
    result = _Result(shape, rows, np.asarray(ends, np.int64), numbers)
    order = np.argsort(codes, kind="stable")
    for low, high in _chunks(len(rows), max(len(panes), len(ends))):
        inside = order[np.searchsorted(codes[order], low) : np.searchsorted(codes[order], high)]
        place = (codes[inside] - low) * len(panes) + at[inside]
        matrix = _Matrix(grid, (high - low, len(panes)), place, exact)
        result.add(low, matrix, inside, counts)
    return result.table(blocks.schema)


class _Matrix:
    """Cells of some rows in all panes, window by window."""

    def __init__(self, grid: _Grid, size: tuple[int, int], place: Ints, exact: bool) -> None:
        self._grid = grid
        self._size = size
        self._place = place
        self._exact = exact

    def windows(self, values: Array, merge: Merge, identity: int | float) -> Array:
        """What the values come to, a row for each row and a column for each window."""
        flat = np.full(self._size[0] * self._size[1], identity, values.dtype)
        _MERGES[merge].at(flat, self._place, values)
        cells = flat.reshape(self._size)
        if merge is Merge.SUM and (self._exact or values.dtype == np.int64):
            return self._differences(cells)
        return self._joined(cells, _MERGES[merge], identity)

    def _differences(self, cells: Array) -> Array:
        sums = np.zeros((self._size[0], self._size[1] + 1), cells.dtype)
        np.cumsum(cells, axis=1, out=sums[:, 1:])
        return sums[:, self._grid.last] - sums[:, self._grid.first]

    def _joined(self, cells: Array, merge: np.ufunc, identity: int | float) -> Array:
        bounds = [*self._grid.stretches.tolist(), self._size[1]]
        forward, backward = np.empty_like(cells), np.empty_like(cells)
        for low, high in pairwise(bounds):
            stretch = cells[:, low:high]
            forward[:, low:high] = merge.accumulate(stretch, axis=1)
            backward[:, low:high] = merge.accumulate(stretch[:, ::-1], axis=1)[:, ::-1]
        grid = self._grid
        ends = np.full((self._size[0], len(grid.first)), identity, cells.dtype)
        some = grid.first < grid.cut
        ends[:, some] = backward[:, grid.first[some]]
        more = grid.last > grid.cut
        ends[:, more] = merge(ends[:, more], forward[:, grid.last[more] - 1])
        return ends


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

    def add(self, low: int, matrix: _Matrix, inside: Ints, counts: Ints) -> None:
        present = matrix.windows(counts[inside], Merge.SUM, 0) > 0
        # Window by window, as they are ordered in the end.
        windows, rows = np.nonzero(present.T)
        self._at.append(rows + low)
        self._windows.append(self._ends[windows])
        for number, cells in zip(self._numbers, self._cells, strict=True):
            values = matrix.windows(number.values[inside], number.cell.merge, number.identity)
            there = number.there
            missing = None
            if there is not None:
                missing = matrix.windows(there[inside], Merge.SUM, 0)[rows, windows] == 0
            cells.append((values[rows, windows], missing))

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
        if not np.isfinite(values).all():  # infinities and NaN have an order of their own
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
    codes = np.zeros(blocks.num_rows, np.int64)
    for name in names:
        column = blocks.column(name).combine_chunks()
        if pa.types.is_floating(column.type):
            column = pc.add(column, 0.0)  # zero and minus zero are one key
        try:
            encoded = pc.dictionary_encode(column, null_encoding="encode")
        except pa.ArrowNotImplementedError as error:
            raise NotDenseError from error
        if len(encoded.dictionary) > 1:
            codes = codes * len(encoded.dictionary) + encoded.indices.to_numpy()
            _, codes = np.unique(codes, return_inverse=True)
    _, first, codes = np.unique(codes, return_index=True, return_inverse=True)
    return codes, blocks.select(list(names)).take(pa.array(first))


def _counts(shape: Shape, numbers: Sequence[_Numbers]) -> Ints:
    """The count cell of each row's part: zero when nothing is left of the row."""
    cells = [cell for part in shape.parts for cell in part.cells if cell.sql == "count(*)"]
    wanted = {cell.name for cell in cells}
    if len(wanted) < len(shape.parts):  # a sketch's registers are not counted
        raise NotDenseError
    total: Ints = np.sum(
        [n.values for n in numbers if n.cell.name in wanted], axis=0, dtype=np.int64
    )
    return total


def _chunks(rows: int, width: int) -> Iterator[tuple[int, int]]:
    size = max(1, _CELLS_AT_ONCE // max(1, width))
    for low in range(0, rows, size):
        yield low, min(rows, low + size)
