"""Blocks of many shapes from one pass over records: what they have in common is worked out once.

A statement takes a millisecond or two of a piece of log, however few records pass its filter; a
hundred jobs are a hundred statements. Here DuckDB evaluates the expressions of all shapes: every
condition, key and argument once, and those over one column once for each of its values. What is
left for a shape is to pick its records and to add up numbers by group, in arrays.

Shapes qualify whose cells are counts, sums and extremes of numbers, and whose keys are texts or
whole numbers. All others, and those with numbers that arrays would not hold exactly, are left to
their own statements, which make the same blocks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from muntin.errors import BadValueError
from muntin.kernel.codes import Numbers, compact, first_rows
from muntin.kernel.engine import quote, run
from muntin.kernel.statements import Windows, bounds_sql
from muntin.model.records import MARK, NOWHERE
from muntin.model.shapes import Cell, Key, Merge, Shape

Mask = NDArray[np.bool_]
Array = NDArray[Any]

WORTH_SHARING = 4  # shapes; fewer statements take less time than the arrays
_WHOLE = ("BIGINT", "INTEGER", "SMALLINT", "TINYINT", "DECIMAL(38,0)")
_REAL = ("DOUBLE", "FLOAT")
_KEYS = ("VARCHAR", "BIGINT", "INTEGER", "SMALLINT", "TINYINT", "BOOLEAN", "DATE")
_EXACT = 2.0**53  # whole numbers up to here are exact as real ones
_FILTER = ") FILTER (WHERE "
_CALL = re.compile(r"(count|sum|min|max)\((.*)\)", re.DOTALL)
_COLUMN = re.compile(r'"((?:[^"]|"")*)"')
_GROUPS_AT_ONCE = 500_000  # of all shapes that are added up at once
_MANY = 20_000  # records of a shape, which take longer than to begin with it
_FEW = 8  # one in so many records: then their numbers are faster than a mask
# Shapes of which this process knows that an expression fails on records they may not even count.
_refusing: set[str] = set()


class NotSharedError(Exception):
    """A shape's numbers are not those that arrays hold exactly."""


@dataclass(frozen=True)
class Measure:
    """A cell taken apart: what is done with which argument, of which records."""

    cell: Cell
    function: str
    argument: str | None
    condition: str | None


_known: dict[str, tuple[Measure, ...]] = {}  # by shape
_different: dict[tuple[Measure, ...], tuple[Measure, ...]] = {}  # of equal ones, the first


def measures_of(shape: Shape) -> tuple[Measure, ...]:
    """The cells of a shape that can be computed together with others; none if it cannot."""
    if shape.id not in _known:
        measures = _measures_of(shape)
        _known[shape.id] = _different.setdefault(measures, measures)
    return _known[shape.id]


def _measures_of(shape: Shape) -> tuple[Measure, ...]:
    plain = (
        shape.code is None
        and shape.pane > 0
        and shape.axis.kind != "sequence"
        and len(shape.parts) == 1
        and not any((shape.gap, shape.spans, shape.sample, shape.apart))
        and shape.revise_us is None
        and not (shape.joins or shape.lists or shape.sets or shape.copies > 1)
        and all(key.type in _KEYS for key in shape.keys)
        and (shape.where is None or bool(shape.conditions))
    )
    if not plain:
        return ()
    measures = [_measure(cell) for cell in shape.parts[0].cells]
    return tuple(m for m in measures if m is not None) if all(measures) else ()


def _measure(cell: Cell) -> Measure | None:
    call, *conditions = cell.sql.split(_FILTER)
    found = _CALL.fullmatch(call + (")" if conditions else ""))
    if found is None or len(conditions) > 1 or cell.merge in (Merge.FOLD, Merge.STATE):
        return None
    function, argument = found.groups()
    kinds = ("BIGINT",) if function == "count" else (*_WHOLE, *_REAL)
    if cell.type not in kinds:
        return None
    condition = conditions[0].removesuffix(")") if conditions else None
    return Measure(cell, function, None if argument == "*" else argument, condition)


def is_shared(shape: Shape) -> bool:
    """Whether blocks of the shape may be made together with those of others."""
    return shape.id not in _refusing and bool(measures_of(shape))


def passes(shapes: Iterable[Shape]) -> frozenset[str]:
    """Those of one stream's shapes that are computed in one pass, by id; none if too few are."""
    shared = frozenset(shape.id for shape in shapes if is_shared(shape))
    return shared if len(shared) >= WORTH_SHARING else frozenset()


@dataclass(frozen=True)
class Asked:
    """A shape, its windows, and which of the records some of these will hold."""

    shape: Shape
    windows: Windows
    used: Mask


class Pass:
    """One pass over records for the shapes that may share it.

    Expressions that fail are found, and their shapes left to statements of their own from then on.
    """

    def __init__(self, records: pa.Table, shapes: Sequence[Shape], marked: bool) -> None:
        self._records = records
        self._marked = marked
        self._columns: dict[str, pa.Array] = {}
        self._coded: dict[str, _Coded] = {}
        self._chosen: dict[str, _Chosen] = {}
        self._selected: dict[tuple[str, ...], Numbers | None] = {}
        self._values: dict[str, _Values] = {}
        self._groups: dict[tuple[object, ...], _Groups] = {}
        self.shapes = {shape.id for shape in self._evaluated(shapes)}

    def _evaluated(self, shapes: Sequence[Shape]) -> Sequence[Shape]:
        """The shapes all of whose expressions have a value on every record."""
        try:
            self._evaluate(shapes)
        except BadValueError:
            for shape in shapes:
                try:
                    self._evaluate([shape])
                except BadValueError:
                    _refusing.add(shape.id)
            shapes = [shape for shape in shapes if is_shared(shape)]
            self._evaluate(shapes)
        return shapes

    def _evaluate(self, shapes: Sequence[Shape]) -> None:
        """Has DuckDB evaluate what the shapes ask for and is not known yet."""
        asked: dict[str, None] = {}
        conditions: dict[str, None] = {}
        for shape in shapes:
            asked |= dict.fromkeys(map(self._key_sql, shape.keys))
            conditions |= dict.fromkeys(_conditions(shape))
            for measure in measures_of(shape):
                asked |= dict.fromkeys(filter(None, [measure.argument]))
        by_column: dict[str, list[str]] = {}
        for sql in [sql for sql in conditions if sql not in self._chosen]:
            names = [n for n in _names(sql) if n in self._records.column_names]
            column = names[0] if len(names) == 1 and "__" not in sql else None
            if column is not None and self._of_column(column).is_coded:
                by_column.setdefault(column, []).append(sql)
            else:
                asked[_condition_sql(sql)] = None
        self._project([sql for sql in asked if sql not in self._columns])
        for sql in conditions:
            if (told := self._columns.get(_condition_sql(sql))) is not None:
                self._chosen[sql] = _Chosen.of(_mask(told))
        for column, some in by_column.items():
            coded = self._of_column(column)
            columns = ", ".join(f"{_condition_sql(sql)} AS x{i}" for i, sql in enumerate(some))
            values = {"records": pa.table({column: coded.values})}
            told = run(f"SELECT {columns} FROM records", values, "conditions")
            for sql, held in zip(some, told.columns, strict=True):
                self._chosen[sql] = coded.chosen(_mask(held))

    def _project(self, expressions: Sequence[str]) -> None:
        left = []
        for sql in expressions:
            plain = _COLUMN.fullmatch(sql)
            name = plain.group(1).replace('""', '"') if plain else ""
            if name in self._records.column_names:
                self._columns[sql] = self._records.column(name).combine_chunks()
            else:
                left.append(sql)
        if left:
            columns = ", ".join(f"{sql} AS x{i}" for i, sql in enumerate(left))
            told = run(f"SELECT {columns} FROM records", {"records": self._records}, "expressions")
            for sql, column in zip(left, told.columns, strict=True):
                self._columns[sql] = column.combine_chunks()

    def _of_column(self, name: str) -> _Coded:
        """The values of a column, for conditions."""
        sql = quote(name)
        if sql not in self._coded:
            self._coded[sql] = _Coded.of(self._records.column(name).combine_chunks())
        return self._coded[sql]

    def _key_sql(self, key: Key) -> str:
        """The key as blocks hold it: a column that is of that type already stays itself."""
        plain = _COLUMN.fullmatch(key.sql)
        name = plain.group(1).replace('""', '"') if plain else ""
        is_there = name in self._records.column_names
        if is_there and self._records.schema.field(name).type == _ARROW[key.type]:
            return key.sql
        return f"CAST({key.sql} AS {key.type})"

    def _of_key(self, key: Key) -> _Coded:
        sql = self._key_sql(key)
        if sql not in self._coded:
            self._coded[sql] = _Coded.of(self._columns[sql])
        return self._coded[sql]

    def blocks(self, every: Sequence[Asked]) -> dict[str, pa.Table]:
        """The blocks of shapes, as their statements make them but for the order of rows.

        Those that have to be left to their statement are absent. Shapes that differ in nothing but
        their filter are added up at once, as groups of their own.
        """
        families: dict[object, list[tuple[str, Numbers | None]]] = {}
        for asked in every:
            shape, groups = asked.shape, self._grouped(asked.shape)
            rows = self._rows(_conditions(shape, cells=False))
            if not asked.used.all():
                rows = np.flatnonzero(asked.used) if rows is None else rows[asked.used[rows]]
            rows = groups.on_time(rows, asked.windows)
            alone = shape.id if rows is None or len(rows) > _MANY else ""
            alike = id(groups), id(measures_of(shape)), alone  # equal measures are the same tuple
            families.setdefault(alike, []).append((shape.id, rows))
        by_id = {asked.shape.id: asked.shape for asked in every}
        made: dict[str, pa.Table] = {}
        for members in families.values():
            shape = by_id[members[0][0]]
            groups = self._grouped(shape)
            most = max(1, _GROUPS_AT_ONCE // max(1, groups.columns.num_rows))
            with suppress(NotSharedError):  # statements do it
                for start in range(0, len(members), most):
                    some = members[start : start + most]
                    made |= self._family(groups, measures_of(shape), some)
        return made

    def _family(
        self,
        groups: _Groups,
        measures: Sequence[Measure],
        members: Sequence[tuple[str, Numbers | None]],
    ) -> dict[str, pa.Table]:
        """Blocks of shapes by the records of each, which have all else in common."""
        cells = _Cells.of(groups, [rows for _, rows in members])
        made = [cells.array(m, self._argument(m), self._held(m)) for m in measures]
        size = len(cells.present)
        columns = groups.columns.take(pa.array(cells.present % groups.columns.num_rows))
        spec, part = pa.array(np.zeros(size, np.int32)), pa.array(np.zeros(size, np.int8))
        pane, not_before, *keys = columns.columns
        names = ["pane", "spec", "not_before", "part", *(f"k{i}" for i in range(len(keys)))]
        names += [measure.cell.name for measure in measures]
        table = pa.table([pane, spec, not_before, part, *keys, *made], names)
        ends = np.arange(len(members) + 1) * groups.columns.num_rows
        bounds = np.searchsorted(cells.present, ends).tolist()
        return {
            id_: table.slice(start, stop - start)
            for (id_, _), (start, stop) in zip(members, pairwise(bounds), strict=True)
        }

    def _rows(self, conditions: tuple[str, ...]) -> Numbers | None:
        """The records for which all conditions hold, in order; None: all records."""
        if not conditions:
            return None
        if conditions not in self._selected:
            first, *others = sorted((self._chosen[sql] for sql in conditions), key=_count)
            if first.count * _FEW < self._records.num_rows:
                rows = first.rows
                for other in others:
                    rows = rows[other.mask[rows]]
            else:
                rows = np.flatnonzero(np.logical_and.reduce([c.mask for c in (first, *others)]))
            self._selected[conditions] = rows
        return self._selected[conditions]

    def _argument(self, measure: Measure) -> _Values | None:
        sql = measure.argument
        if sql is None:
            return None
        if sql not in self._values:
            self._values[sql] = _Values(self._columns[sql])
        return self._values[sql]

    def _held(self, measure: Measure) -> Mask | None:
        return None if measure.condition is None else self._chosen[measure.condition].mask

    def _grouped(self, shape: Shape) -> _Groups:
        marked = self._marked and shape.axis.is_time
        asked = (*shape.keys, shape.axis, shape.pane)
        if asked not in self._groups:
            positions = self._records.column(shape.axis.column).to_numpy()
            marks = self._records.column(MARK).to_numpy() if marked else None
            keys = [self._of_key(key) for key in shape.keys]
            self._groups[asked] = _Groups.of(positions, marks, shape.pane, keys)
        return self._groups[asked]


def _conditions(shape: Shape, cells: bool = True) -> tuple[str, ...]:
    """What records have to meet for the shape, and some of its cells."""
    own = dict.fromkeys((*shape.conditions, *bounds_sql(shape)))
    if cells:
        own |= dict.fromkeys(m.condition for m in measures_of(shape) if m.condition is not None)
    return tuple(own)


def _condition_sql(sql: str) -> str:
    return f"coalesce(CAST(({sql}) AS BOOLEAN), false)"


@cache
def _names(sql: str) -> tuple[str, ...]:
    """The columns that an expression may look at: they are quoted wherever they stand."""
    return tuple(dict.fromkeys(name.replace('""', '"') for name in _COLUMN.findall(sql)))


def _mask(column: pa.Array | pa.ChunkedArray) -> Mask:
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return np.asarray(array.to_numpy(zero_copy_only=False), np.bool_)


class _Chosen:
    """The records for which a condition holds: as a mask, and by their numbers in order."""

    def __init__(self, count: int, mask: Mask | None, rows: Numbers | None, size: int) -> None:
        self.count = count
        self._mask, self._rows, self._size = mask, rows, size

    @classmethod
    def of(cls, mask: Mask) -> _Chosen:
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


def _count(chosen: _Chosen) -> int:
    return chosen.count


class _Coded:
    """A column as the number of each record's value, and the values."""

    def __init__(self, codes: Numbers, values: pa.Array) -> None:
        self.codes, self.values = codes, values
        self._order: Numbers | None = None
        self._starts = np.zeros(0, np.int64)

    @classmethod
    def of(cls, column: pa.Array) -> _Coded:
        encoded = column.dictionary_encode(null_encoding="encode")
        return cls(encoded.indices.to_numpy(), encoded.dictionary)

    @property
    def is_coded(self) -> bool:
        """Whether there are clearly fewer values than records."""
        return 2 * len(self.values) < len(self.codes)

    def chosen(self, held: Mask) -> _Chosen:
        """The records whose value meets a condition, which is told by value."""
        if self._order is None:
            self._order = np.argsort(self.codes, kind="stable")
            counts = np.bincount(self.codes, minlength=len(self.values))
            self._starts = np.concatenate([[0], np.cumsum(counts)])
        hits = np.flatnonzero(held)
        count = int((self._starts[hits + 1] - self._starts[hits]).sum())
        if count * _FEW >= len(self.codes):
            return _Chosen(count, held[self.codes], None, len(self.codes))
        found = [self._order[self._starts[hit] : self._starts[hit + 1]] for hit in hits]
        rows = np.concatenate([np.zeros(0, np.int64), *found])
        return _Chosen(count, None, rows if len(found) == 1 else np.sort(rows), len(self.codes))


class _Values:
    """An argument of cells: numbers, and where there are any."""

    def __init__(self, column: pa.Array) -> None:
        self.there = None if not column.null_count else _mask(column.is_valid())
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


@dataclass
class _Groups:
    """The group of every record, by pane and keys, and the columns of groups."""

    codes: Numbers
    columns: pa.Table
    late: Numbers  # the records that are late for some windows, in order
    panes: Numbers
    marks: Numbers | None  # in panes

    @classmethod
    def of(
        cls, positions: Numbers, marks: Numbers | None, size: int, keys: Sequence[_Coded]
    ) -> _Groups:
        panes = positions // size
        ends = None if marks is None else marks // size
        late = np.zeros(0, np.int64) if ends is None else np.flatnonzero(ends > panes)
        codes, count = _numbered(panes)
        not_before = np.full(len(panes), NOWHERE)
        if ends is not None and len(late):
            not_before[late] = ends[late]
            marked, times = _numbered(not_before)
            codes, count = compact(codes * times + marked, count * times)
        for key in keys:
            wide = codes * len(key.values) + key.codes
            codes, count = compact(wide, count * len(key.values))
        first = first_rows(codes, count)
        told = not_before[first]
        columns = [pa.array(panes[first]), pa.array(told, mask=told == NOWHERE)]
        columns += [key.values.take(pa.array(key.codes[first])) for key in keys]
        names = ["pane", "not_before", *(f"k{i}" for i in range(len(keys)))]
        return cls(codes, pa.table(columns, names), late, panes, ends)

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


class _Cells:
    """Cells of one shape, or of several: numbers of records, by the groups that have any.

    Groups of the second shape follow all those of the first.
    """

    def __init__(self, rows: Numbers | None, codes: Numbers, size: int) -> None:
        self._rows, self._codes, self._size = rows, codes, size
        self._counts = np.bincount(codes, minlength=size)
        self.present = np.flatnonzero(self._counts)

    @classmethod
    def of(cls, groups: _Groups, members: Sequence[Numbers | None]) -> _Cells:
        """By the records of each shape; None, of one that is alone: all records."""
        size = groups.columns.num_rows
        some = [rows for rows in members if rows is not None]
        if not some:
            return cls(None, groups.codes, size)
        rows = np.concatenate(some)
        numbers = np.repeat(np.arange(len(some)), [len(mine) for mine in some])
        return cls(rows, groups.codes[rows] + numbers * size, size * len(some))

    def array(self, measure: Measure, values: _Values | None, held: Mask | None) -> pa.Array:
        """One cell of every group that is present, as its column in a block."""
        rows, codes, counts = self._rows, self._codes, self._counts
        there = None if values is None else values.there
        for mask in (held, there):
            if mask is not None:
                inside = mask if rows is None else mask[rows]
                rows = np.flatnonzero(inside) if rows is None else rows[inside]
                codes = codes[inside]
        if codes is not self._codes:
            counts = np.bincount(codes, minlength=self._size)
        counts = counts[self.present]
        if measure.function == "count":
            return pa.array(counts)
        assert values is not None
        numbers = values.numbers if rows is None else values.numbers[rows]
        made = self._merged(measure.function, codes, numbers, values.exact)[self.present]
        missing = None if codes is self._codes else counts == 0
        if missing is not None:
            made[missing] = 0
        return pa.array(made, mask=missing).cast(_ARROW[measure.cell.type])

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


_ARROW: dict[str, pa.DataType] = {
    "VARCHAR": pa.string(),
    "BOOLEAN": pa.bool_(),
    "DATE": pa.date32(),
    "BIGINT": pa.int64(),
    "INTEGER": pa.int32(),
    "SMALLINT": pa.int16(),
    "TINYINT": pa.int8(),
    "DECIMAL(38,0)": pa.decimal128(38, 0),
    "DOUBLE": pa.float64(),
    "FLOAT": pa.float32(),
}
