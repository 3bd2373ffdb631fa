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
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from operator import attrgetter

import numpy as np
import pyarrow as pa

from muntin.errors import BadValueError
from muntin.kernel.arrays import (
    FEW,
    Cells,
    Chosen,
    Coded,
    Groups,
    InPanes,
    Mask,
    NotSharedError,
    Values,
    mask_of,
)
from muntin.kernel.codes import Numbers
from muntin.kernel.engine import quote, run
from muntin.kernel.statements import Windows, bounds_sql
from muntin.model.records import MARK
from muntin.model.shapes import Cell, Key, Merge, Shape

WORTH_SHARING = 4  # shapes; fewer statements take less time than the arrays
_WHOLE = ("BIGINT", "INTEGER", "SMALLINT", "TINYINT", "DECIMAL(38,0)")
_REAL = ("DOUBLE", "FLOAT")
_KEYS = ("VARCHAR", "BIGINT", "INTEGER", "SMALLINT", "TINYINT", "BOOLEAN", "DATE")
_FILTER = ") FILTER (WHERE "
_CALL = re.compile(r"(count|sum|min|max)\((.*)\)", re.DOTALL)
_COLUMN = re.compile(r'"((?:[^"]|"")*)"')
_GROUPS_AT_ONCE = 500_000  # of all shapes that are added up at once
_MANY = 20_000  # records of a selection, which take longer than to begin with it
# Shapes of which this process knows that an expression fails on records they may not even count.
_refusing: set[str] = set()


@dataclass(frozen=True)
class Measure:
    """A cell taken apart: what is done with which argument, of which records."""

    type: str
    function: str
    argument: str | None
    condition: str | None


_known: dict[str, tuple[Measure, ...]] = {}  # by shape


def measures_of(shape: Shape) -> tuple[Measure, ...]:
    """The cells of a shape that can be computed together with others; none if it cannot."""
    if shape.id not in _known:
        _known[shape.id] = _measures_of(shape)
    return _known[shape.id]


def _measures_of(shape: Shape) -> tuple[Measure, ...]:
    plain = (
        shape.code is None
        and shape.pane > 0
        and shape.axis.kind != "sequence"
        and len(shape.parts) == 1
        and not any((shape.gap, shape.spans, shape.sample, shape.apart))
        and shape.revise_us is None
        and not (shape.joins or shape.lists or shape.lookups or shape.sets)
        and shape.copies == 1
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
    return Measure(cell.type, function, None if argument == "*" else argument, condition)


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
        self._coded: dict[str, Coded] = {}
        self._chosen: dict[str, Chosen] = {}
        self._selected: dict[tuple[str, ...], Numbers | None] = {}
        self._values: dict[str, Values] = {}
        self._pickings: dict[tuple[object, ...], Numbers | None] = {}
        self._places: dict[tuple[object, ...], InPanes] = {}
        self._groups: dict[tuple[object, ...], Groups] = {}
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
                self._chosen[sql] = Chosen.of(mask_of(told))
        for column, some in by_column.items():
            coded = self._of_column(column)
            columns = ", ".join(f"{_condition_sql(sql)} AS x{i}" for i, sql in enumerate(some))
            values = {"records": pa.table({column: coded.values})}
            told = run(f"SELECT {columns} FROM records", values, "conditions")
            for sql, held in zip(some, told.columns, strict=True):
                self._chosen[sql] = coded.chosen(mask_of(held))

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

    def _of_column(self, name: str) -> Coded:
        """The values of a column, for conditions."""
        sql = quote(name)
        if sql not in self._coded:
            self._coded[sql] = Coded.of(self._records.column(name).combine_chunks())
        return self._coded[sql]

    def _key_sql(self, key: Key) -> str:
        """The key as blocks hold it: a column that is of that type already stays itself."""
        plain = _COLUMN.fullmatch(key.sql)
        name = plain.group(1).replace('""', '"') if plain else ""
        is_there = name in self._records.column_names
        if is_there and self._records.schema.field(name).type == _ARROW[key.type]:
            return key.sql
        return f"CAST({key.sql} AS {key.type})"

    def _of_key(self, key: Key) -> Coded:
        sql = self._key_sql(key)
        if sql not in self._coded:
            self._coded[sql] = Coded.of(self._columns[sql])
        return self._coded[sql]

    def blocks(self, every: Sequence[Asked]) -> dict[str, pa.Table]:
        """The blocks of shapes, as their statements make them but for the order of rows.

        Those that have to be left to their statement are absent. Shapes that choose the same
        records have their cells in common, and those that choose few are added up at once, as
        groups of their own.
        """
        grouped: dict[int, tuple[Groups, dict[int, _Selection]]] = {}
        for asked in every:
            groups, rows = self._grouped(asked.shape), self._picked(asked)
            _, selections = grouped.setdefault(id(groups), (groups, {}))
            selections.setdefault(id(rows), _Selection(rows)).shapes.append(asked.shape)
        made: dict[str, pa.Table] = {}
        for groups, selections in grouped.values():
            for some in _at_once(selections.values(), len(groups)):
                made |= self._added_up(groups, some)
        return made

    def _added_up(self, groups: Groups, selections: Sequence[_Selection]) -> dict[str, pa.Table]:
        """Blocks of shapes that have all but the records they choose in common."""
        cells = Cells(groups, [selection.rows for selection in selections])
        asked: dict[Measure, list[int]] = {}
        for number, selection in enumerate(selections):
            for measure in selection.measures:
                asked.setdefault(measure, []).append(number)
        arrays: dict[Measure, pa.Array] = {}
        for measure, which in asked.items():
            try:
                values, held = self._argument(measure), self._held(measure)
                array = cells.array(measure.function, values, held, which)
            except NotSharedError:  # statements do it
                continue
            arrays[measure] = array.cast(_ARROW[measure.type])
        columns = cells.columns()
        size = columns.num_rows
        spec, part = pa.array(np.zeros(size, np.int32)), pa.array(np.zeros(size, np.int8))
        pane, not_before, *keys = columns.columns
        base = [pane, spec, not_before, part, *keys]
        names = ["pane", "spec", "not_before", "part", *(f"k{i}" for i in range(len(keys)))]
        made = {}
        for selection, (start, stop) in zip(selections, pairwise(cells.bounds), strict=True):
            mine = [column.slice(start, stop - start) for column in base]
            for shape in selection.shapes:
                measures = measures_of(shape)
                if all(measure in arrays for measure in measures):
                    told = [arrays[measure].slice(start, stop - start) for measure in measures]
                    called = [cell.name for cell in shape.parts[0].cells]
                    made[shape.id] = pa.table([*mine, *told], [*names, *called])
        return made

    def _picked(self, asked: Asked) -> Numbers | None:
        """The records that a shape counts, in order; the same array where they are the same."""
        conditions, places = _conditions(asked.shape, cells=False), self._in_panes(asked.shape)
        late = (id(places), asked.windows) if len(places.late) else ()
        known = (conditions, id(asked.used), *late)
        if known not in self._pickings:
            rows = self._rows(conditions)
            if not asked.used.all():
                rows = np.flatnonzero(asked.used) if rows is None else rows[asked.used[rows]]
            self._pickings[known] = places.on_time(rows, asked.windows)
        return self._pickings[known]

    def _rows(self, conditions: tuple[str, ...]) -> Numbers | None:
        """The records for which all conditions hold, in order; None: all records."""
        if not conditions:
            return None
        if conditions not in self._selected:
            chosen = sorted((self._chosen[sql] for sql in conditions), key=attrgetter("count"))
            first, *others = chosen
            if first.count * FEW < self._records.num_rows:
                rows = first.rows
                for other in others:
                    rows = rows[other.mask[rows]]
            else:
                rows = np.flatnonzero(np.logical_and.reduce([each.mask for each in chosen]))
            self._selected[conditions] = rows
        return self._selected[conditions]

    def _argument(self, measure: Measure) -> Values | None:
        sql = measure.argument
        if sql is None:
            return None
        if sql not in self._values:
            self._values[sql] = Values(self._columns[sql])
        return self._values[sql]

    def _held(self, measure: Measure) -> Mask | None:
        return None if measure.condition is None else self._chosen[measure.condition].mask

    def _in_panes(self, shape: Shape) -> InPanes:
        asked = shape.axis, shape.pane
        if asked not in self._places:
            marked = self._marked and shape.axis.is_time
            positions = self._records.column(shape.axis.column).to_numpy()
            marks = self._records.column(MARK).to_numpy() if marked else None
            self._places[asked] = InPanes.of(positions, marks, shape.pane)
        return self._places[asked]

    def _grouped(self, shape: Shape) -> Groups:
        asked = (*shape.keys, shape.axis, shape.pane)
        if asked not in self._groups:
            keys = [self._of_key(key) for key in shape.keys]
            self._groups[asked] = Groups.of(self._in_panes(shape), keys)
        return self._groups[asked]


@dataclass(frozen=True)
class _Selection:
    """Records, by their numbers in order, and the shapes that count them; None: all records."""

    rows: Numbers | None
    shapes: list[Shape] = field(default_factory=list)

    @property
    def measures(self) -> Iterator[Measure]:
        """What is asked of these records, each once."""
        yield from dict.fromkeys(measure for shape in self.shapes for measure in measures_of(shape))

    @property
    def is_many(self) -> bool:
        return self.rows is None or len(self.rows) > _MANY


def _at_once(selections: Iterable[_Selection], groups: int) -> Iterator[list[_Selection]]:
    """Selections that are added up together: those of many records are so by themselves."""
    few = []
    for selection in selections:
        if selection.is_many:
            yield [selection]
        else:
            few.append(selection)
    most = max(1, _GROUPS_AT_ONCE // max(1, groups))
    for start in range(0, len(few), most):
        yield few[start : start + most]


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
