"""Records as arrays: which a condition chooses, the group of each, and cells added up by group.

Columns with few values are numbers of these values, so that a condition is told by value and a
group is arithmetic. Nothing here knows of shapes; `together` says what is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from muntin.kernel.codes import Numbers, compact, first_rows
from muntin.kernel.statements import Windows
from muntin.model.records import NOWHERE

Mask = NDArray[np.bool_]
Array = NDArray[Any]

FEW = 8  # one in so many records: then their numbers are faster than a mask
_FEW_VALUES = 32  # of which the records are put together faster than all are looked at
_EXACT = 2.0**53  # whole numbers up to here are exact as real ones
_SHORT = 1 << 16  # codes below are sorted by their digits, which is several times faster


class NotSharedError(Exception):
    """A shape's numbers are not those that arrays hold exactly."""


def mask_of(column: pa.Array | pa.ChunkedArray) -> Mask:
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return np.asarray(array.to_numpy(zero_copy_only=False), np.bool_)


class Chosen:
    """The records for which a condition holds: as a mask, and by their numbers in order."""

    def __init__(self, count: int, mask: Mask | None, rows: Numbers | None, size: int) -> None:
        self.count = count
        self._mask, self._rows, self._size = mask, rows, size

    @classmethod
    def of(cls, mask: Mask) -> Chosen:
        return cls(int(np.count_nonzero(mask)), mask, None, len(mask))

    @property
    def mask(self) -> Mask:
        if self._mask is None:
            self._mask = np.zeros(self._size, np.bool_)
            self._mask[self._rows] = True
        return self._mask

    @property
    def rows(self) -> Numbers:
        if self._rows is None:
            self._rows = np.flatnonzero(self.mask)
        return self._rows


class Coded:
    """A column as the number of each record's value, and the values."""

    def __init__(self, codes: Numbers, values: pa.Array) -> None:
        self.codes, self.values = codes, values
        self._order: Numbers | None = None
        self._starts = np.zeros(0, np.int64)

    @classmethod
    def of(cls, column: pa.Array) -> Coded:
        encoded = column.dictionary_encode(null_encoding="encode")
        return cls(encoded.indices.to_numpy(), encoded.dictionary)

    @property
    def is_coded(self) -> bool:
        """Whether there are clearly fewer values than records."""
        return 2 * len(self.values) < len(self.codes)

    def chosen(self, held: Mask) -> Chosen:
        """The records whose value meets a condition, which is told by value."""
        hits = np.flatnonzero(held)
        if len(hits) > _FEW_VALUES:
            return Chosen.of(held[self.codes])
        if self._order is None:
            codes = self.codes.astype(np.uint16) if len(self.values) <= _SHORT else self.codes
            self._order = np.argsort(codes, kind="stable")
            counts = np.bincount(self.codes, minlength=len(self.values))
            self._starts = np.concatenate([[0], np.cumsum(counts)])
        count = int((self._starts[hits + 1] - self._starts[hits]).sum())
        if count * FEW >= len(self.codes):
            return Chosen(count, held[self.codes], None, len(self.codes))
        found = [self._order[self._starts[hit] : self._starts[hit + 1]] for hit in hits]
        rows = np.concatenate([np.zeros(0, np.int64), *found])
        return Chosen(count, None, rows if len(found) == 1 else np.sort(rows), len(self.codes))


class Values:
    """An argument of cells: numbers, and where there are any."""

    def __init__(self, column: pa.Array) -> None:
        self.there = None if not column.null_count else mask_of(column.is_valid())
        self._column = column
        self._numbers: Array | None = None
        self.exact = True  # whether sums of whole numbers are exact as real ones

    @property
    def numbers(self) -> Array:
        if self._numbers is None:
            self._numbers = self._read()
        return self._numbers

    def _read(self) -> Array:
        kind = self._column.type
        if pa.types.is_floating(kind):
            real: Array = np.asarray(pc.fill_null(self._column.cast(pa.float64()), 0.0))
            if not np.isfinite(real).all():  # infinities and NaN have an order of their own
                raise NotSharedError
            return real
        try:
            whole: Array = np.asarray(pc.fill_null(self._column.cast(pa.int64()), 0))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise NotSharedError from error
        total = float(np.abs(whole.astype(np.float64)).sum())
        if total >= 2.0**62:
            raise NotSharedError
        self.exact = total < _EXACT
        return whole


@dataclass(frozen=True)
class InPanes:
    """The pane of every record and, of those that are late for some windows, the mark."""

    panes: Numbers
    late: Numbers  # the records that are late for some windows, in order
    marks: Numbers | None  # in panes
    not_before: Numbers
    codes: Numbers  # a number for each pane and mark
    count: int

    @classmethod
    def of(cls, positions: Numbers, marks: Numbers | None, size: int) -> InPanes:
        panes = positions // size
        ends = None if marks is None else marks // size
        late = np.zeros(0, np.int64) if ends is None else np.flatnonzero(ends > panes)
        codes, count = _numbered(panes)
        not_before = np.full(len(panes), NOWHERE)
        if ends is not None and len(late):
            not_before[late] = ends[late]
            marked, times = _numbered(not_before)
            codes, count = compact(codes * times + marked, count * times)
        return cls(panes, late, ends, not_before, codes, count)

    def on_time(self, rows: Numbers | None, windows: Windows) -> Numbers | None:
        """The records but those that come too late for all windows, as `statements` has it."""
        if not len(self.late) or self.marks is None:
            return rows
        panes, marks = self.panes[self.late], self.marks[self.late]
        last = np.full(len(panes), NOWHERE)
        for w in windows:
            end = (panes - w.shift) // w.stride * w.stride + w.length + w.shift
            np.maximum(last, end if w.regular else panes + w.length, out=last)
        gone = self.late[last <= marks]
        if not len(gone):
            return rows
        wanted = np.ones(len(self.codes), np.bool_)
        wanted[gone] = False
        return np.flatnonzero(wanted) if rows is None else rows[wanted[rows]]


def _numbered(numbers: Numbers) -> tuple[Numbers, int]:
    """A number from zero on for each that is there, and how many there are."""
    if not len(numbers):
        return numbers, 0
    low, high = int(numbers.min()), int(numbers.max())
    if high - low < 4 * len(numbers) + 1024:
        return compact(numbers - low, high - low + 1)
    values, codes = np.unique(numbers, return_inverse=True)
    return codes, len(values)


@dataclass(frozen=True)
class Groups:
    """The group of every record, by pane and keys, and the columns of groups."""

    places: InPanes
    codes: Numbers
    columns: pa.Table

    @classmethod
    def of(cls, places: InPanes, keys: Sequence[Coded]) -> Groups:
        codes, count = places.codes, places.count
        for key in keys:
            wide = codes * len(key.values) + key.codes
            codes, count = compact(wide, count * len(key.values))
        first = first_rows(codes, count)
        told = places.not_before[first]
        columns = [pa.array(places.panes[first]), pa.array(told, mask=told == NOWHERE)]
        columns += [key.values.take(pa.array(key.codes[first])) for key in keys]
        names = ["pane", "not_before", *(f"k{i}" for i in range(len(keys)))]
        return cls(places, codes, pa.table(columns, names))

    def __len__(self) -> int:
        return int(self.columns.num_rows)


class Cells:
    """Cells of selections of records, by the groups in which these have any.

    Groups of the second selection follow all those of the first.
    """

    def __init__(self, groups: Groups, selections: Sequence[Numbers | None]) -> None:
        """By the records of each; None, of one that is alone: all records."""
        some = [rows for rows in selections if rows is not None]
        self._groups, self._size = groups, len(groups) * len(selections)
        self._rows = np.concatenate(some) if some else None
        self._codes = groups.codes
        if self._rows is not None:
            numbers = np.repeat(np.arange(len(some)) * len(groups), [len(rows) for rows in some])
            self._codes = groups.codes[self._rows] + numbers
        self._starts = [0, *np.cumsum([len(rows) for rows in some]).tolist()]
        self._counts = np.bincount(self._codes, minlength=self._size)
        self._present = np.flatnonzero(self._counts)
        ends = np.arange(len(selections) + 1) * len(groups)
        self.bounds: list[int] = np.searchsorted(self._present, ends).tolist()

    def columns(self) -> pa.Table:
        """The columns of the groups of every selection, one after another."""
        return self._groups.columns.take(pa.array(self._present % len(self._groups)))

    def array(
        self, function: str, values: Values | None, held: Mask | None, which: Sequence[int]
    ) -> pa.Array:
        """One cell of every group that is there, of selections by number; others have any value.

        It is made of the records for which the condition is `held`.
        """
        everybody = len(which) == len(self.bounds) - 1
        rows, codes = (self._rows, self._codes) if everybody else self._of(which)
        there = None if values is None else values.there
        for mask in (held, there):
            if mask is not None:
                inside = mask if rows is None else mask[rows]
                rows = np.flatnonzero(inside) if rows is None else rows[inside]
                codes = codes[inside]
        counts = self._counts
        if held is not None or there is not None:
            counts = np.bincount(codes, minlength=self._size)
        counts = counts[self._present]
        if function == "count":
            return pa.array(counts)
        assert values is not None
        numbers = values.numbers if rows is None else values.numbers[rows]
        made = self._merged(function, codes, numbers, values.exact)[self._present]
        if not everybody:
            asked = np.zeros(len(made), np.bool_)
            for number in which:
                asked[self.bounds[number] : self.bounds[number + 1]] = True
            made[~asked] = 0
        missing = None
        if held is not None or there is not None:
            missing = counts == 0
            made[missing] = 0
        return pa.array(made, mask=missing)

    def _of(self, which: Sequence[int]) -> tuple[Numbers | None, Numbers]:
        """The records of some selections, and their groups."""
        assert self._rows is not None
        parts = [slice(self._starts[number], self._starts[number + 1]) for number in which]
        rows = np.concatenate([self._rows[part] for part in parts])
        return rows, np.concatenate([self._codes[part] for part in parts])

    def _merged(self, function: str, codes: Numbers, numbers: Array, exact: bool) -> Array:
        whole = numbers.dtype == np.int64
        if function == "sum":
            if exact or not whole:
                sums: Array = np.bincount(codes, weights=numbers, minlength=self._size)
                return sums.astype(np.int64) if whole else sums
            merged: Array = np.zeros(self._size, np.int64)
            np.add.at(merged, codes, numbers)
            return merged
        bounds: Mapping[str, float | int] = {"max": -np.inf, "min": np.inf}
        if whole:
            bounds = {"max": np.iinfo(np.int64).min, "min": np.iinfo(np.int64).max}
        merged = np.full(self._size, bounds[function], numbers.dtype)
        (np.maximum if function == "max" else np.minimum).at(merged, codes, numbers)
        return merged
