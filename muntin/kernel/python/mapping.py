"""Records to blocks through a job's mapper, pane by pane and in log order.

A record whose mapper fails gives nothing, and a fault instead.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from types import GeneratorType
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from muntin.kernel.apart import apart
from muntin.kernel.engine import run
from muntin.kernel.python.code import loaded, new_job
from muntin.kernel.python.environment import environment, file_variables
from muntin.kernel.python.faults import attempted, fault_of
from muntin.kernel.python.keys import decode_key, encoded, group_key
from muntin.kernel.python.partials import Row, block_of, combined, first_round, packed
from muntin.kernel.python.rounds import (
    CAUGHT,
    FailedCallError,
    Method,
    Pair,
    Round,
    called,
    checked,
    failed,
    listed,
    rounds_of,
    shown,
)
from muntin.kernel.reading import File
from muntin.kernel.statements import Windows, compute_sql, selected_sql
from muntin.model.counts import Fault
from muntin.model.records import MARK, NOWHERE, POSITION, RECORDS
from muntin.model.shapes import Code, Shape

if TYPE_CHECKING:
    from muntin.kernel.kinds.kind import Given

Values = defaultdict[Any, list[Any]]


@dataclass(frozen=True)
class _Stretch:
    """The records of one pane, as the job wants them."""

    pane: int
    not_before: int | None
    rows: pa.Table
    first: int  # on the job's axis


@dataclass
class Mapped:
    """One piece's block, and what failed on the way to it."""

    block: pa.Table
    faults: list[Fault] = field(default_factory=list)


def map_pairs(shape: Shape, given: Given) -> Mapped:
    """The block of a job whose values Python merges."""
    records, file = given.records, given.file

    def mapped(code: Code, stretches: list[_Stretch]) -> Mapped:
        mapper = _Mapper(shape, code, given.source, file)
        with environment(file_variables(file.path) if file is not None else {}):
            rows = [row for stretch in stretches for row in mapper.rows(stretch)]
        return Mapped(block_of(rows), mapper.faults)

    if shape.code is not None and shape.code.files:  # each is given once, where it begins
        records = records.slice(0, 1 if file is not None and file.begins else 0)
    return _mapped(shape, given.windows, records, given.marked, mapped)


def map_cells(shape: Shape, windows: Windows, records: pa.Table, marked: bool) -> Mapped:
    """The block of a job whose values are merged as SQL's are; without columns if it is empty."""

    def mapped(code: Code, stretches: list[_Stretch]) -> Mapped:
        return _cells(shape, code, windows, stretches, marked)

    return _mapped(shape, windows, records, marked, mapped)


def _mapped(
    shape: Shape,
    windows: Windows,
    records: pa.Table,
    marked: bool,
    mapped: Callable[[Code, list[_Stretch]], Mapped],
) -> Mapped:
    assert shape.code is not None
    code = shape.code
    doing = f"selecting records for job {code.job}"
    rows = run(selected_sql(shape, windows, marked), {"records": records}, doing)
    stretches = list(_stretches(shape, rows))
    if not stretches:
        return Mapped(pa.table({}))
    made = attempted(
        "mapper", lambda: f"{rows.num_rows:,} records", lambda: mapped(code, stretches)
    )
    if isinstance(made, FailedCallError):
        error = made
        faults = [_fault(shape, code, error.costing(s.rows.num_rows), s) for s in stretches]
        return Mapped(pa.table({}), faults)
    return made


def _fault(shape: Shape, code: Code, error: FailedCallError, stretch: _Stretch) -> Fault:
    """A call that failed on records of one pane."""
    late = stretch.not_before
    fault = fault_of(code, error, stretch.pane * shape.pane)
    return replace(fault, not_before=None if late is None else late * shape.pane)


def _stretches(shape: Shape, rows: pa.Table) -> Iterator[_Stretch]:
    if not rows.num_rows:
        return
    panes = rows.column("__pane").to_numpy()
    marks = rows.column("__not_before").fill_null(NOWHERE).to_numpy()
    order = np.lexsort((marks, panes))  # stable: log order stays within a pane
    if not (order[1:] > order[:-1]).all():
        rows, panes, marks = rows.take(pa.array(order)), panes[order], marks[order]
    changes = np.flatnonzero((panes[1:] != panes[:-1]) | (marks[1:] != marks[:-1])) + 1
    bounds = [0, *changes.tolist(), len(panes)]
    for start, stop in pairwise(bounds):
        mark = None if marks[start] == NOWHERE else int(marks[start])
        first = rows.column(shape.axis.column)[start].as_py()
        yield _Stretch(int(panes[start]), mark, rows.slice(start, stop - start), first)


class _Mapper:
    """Runs a job's mapper and combiner over stretches of records."""

    def __init__(self, shape: Shape, code: Code, source: str, file: File | None) -> None:
        self._shape = shape
        self._code = code
        self._source = source
        self._file = file
        self._first = first_round(code)
        self.faults: list[Fault] = []

    def rows(self, stretch: _Stretch) -> list[Row]:
        job = self._job()
        if self._code.style in ("updates", "states"):
            values = self._numbered(job.map, stretch)
        elif hasattr(job, "map_batches"):
            values = self._batched(job.map_batches, stretch)
        else:
            values = self._mapped(self._first, stretch)
        rows = []
        for group, of_key in values.items():
            row = self._row(group, of_key, stretch)
            if isinstance(row, FailedCallError):
                self._fail(row.costing(len(of_key)), stretch)
            else:
                rows.append(row)
        return rows

    def _row(self, group: Hashable, values: list[Any], stretch: _Stretch) -> Row | FailedCallError:
        """A key's values of a pane, as the block has them."""
        data = encoded(group)
        key = attempted("mapper", lambda: "a key", lambda: decode_key(data))
        if isinstance(key, FailedCallError):
            return key
        kept = combined(self._first, key, values) if self._first.combiner else values
        try:
            return stretch.pane, 0, stretch.not_before, data, packed(self._code, key, kept)
        except CAUGHT as error:  # whatever a value's own pickling may raise
            reason = f"its values cannot be pickled: {type(error).__name__}: {error}"
            return FailedCallError("mapper", f"key {shown(key)}", reason)

    def _job(self) -> Any:
        """A mapper that is told of an end may count between: each stretch has its own."""
        if self._first.mapper_final is None and self._first.mapper_init is None:
            return loaded(self._code)
        job = new_job(self._code)
        self._first = rounds_of(job)[0]
        return job

    def _mapped(self, round_: Round, stretch: _Stretch) -> Values:
        values: Values = defaultdict(list)
        self._once("mapper_init", round_.mapper_init, values, stretch)
        self._each(round_.mapper, stretch, values, lambda value, _: value)
        self._once("mapper_final", round_.mapper_final, values, stretch)
        return values

    def _each(
        self,
        mapper: Method | None,
        stretch: _Stretch,
        values: Values,
        kept: Callable[[Any, int], Any],
        name: str = "mapper",
    ) -> None:
        """The pairs of every record; those of a record that fails are all left out."""
        for number, record in enumerate(self._records(stretch)):
            try:
                result = [(None, record)] if mapper is None else mapper(None, record)
                if isinstance(result, GeneratorType):
                    pairs = list(result)
                else:
                    pairs = listed(name, shown(record), result)
                for pair in pairs:
                    if type(pair) is not tuple or len(pair) != 2:
                        pairs = checked(name, shown(record), pairs)
                        break
                groups = [k if type(k) is str else group_key(k) for k, _ in pairs]
            except FailedCallError as error:
                self._fail(error, stretch)
                continue
            except CAUGHT as error:
                self._fail(failed(name, shown(record), error), stretch)
                continue
            for group, (_, value) in zip(groups, pairs, strict=True):
                values[group].append(kept(value, number))

    def _numbered(self, mapper: Method, stretch: _Stretch) -> Values:
        """Each value with what puts it in order among those of other pieces and sources."""
        times = stretch.rows.column(POSITION).to_pylist()
        numbers = stretch.rows.column(RECORDS.column).to_pylist()
        values: Values = defaultdict(list)
        source = self._source
        self._each(mapper, stretch, values, lambda v, i: (times[i], source, numbers[i], v), "map")
        return values

    def _batched(self, mapper: Callable[[pa.Table], pa.Table], stretch: _Stretch) -> Values:
        values: Values = defaultdict(list)
        given = f"a batch of {stretch.rows.num_rows:,} records"

        def pairs() -> list[Pair]:
            table = batch_of(mapper, self._code.takes, stretch.rows)
            columns = table["key"].to_pylist(), table["value"].to_pylist()
            return [(group_key(key), value) for key, value in zip(*columns, strict=True)]

        self._take(attempted("map_batches", lambda: given, pairs), values, stretch)
        return values

    def _once(self, name: str, method: Method | None, values: Values, stretch: _Stretch) -> None:
        if method is None:
            return

        def pairs() -> list[Pair]:
            return [(group_key(key), value) for key, value in called(name, "no record", method)]

        self._take(attempted(name, lambda: "no record", pairs), values, stretch)

    def _take(self, pairs: list[Pair] | FailedCallError, values: Values, stretch: _Stretch) -> None:
        if isinstance(pairs, FailedCallError):
            self._fail(pairs.costing(stretch.rows.num_rows), stretch)
            return
        for group, value in pairs:
            values[group].append(value)

    def _records(self, stretch: _Stretch) -> Sequence[Any]:
        """Lines of text, or dictionaries; or the file that they are from."""
        if self._code.files:
            return [self._file]
        names = self._code.takes
        columns = [stretch.rows.column(name).to_pylist() for name in names]
        if self._code.lines:
            (lines,) = columns
            return list(lines)
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]

    def _fail(self, error: FailedCallError, stretch: _Stretch) -> None:
        """Panes are in order: no later fault of this piece can matter more."""
        if len(self.faults) <= self._code.max_errors:
            self.faults.append(_fault(self._shape, self._code, error, stretch))


def batch_of(
    mapper: Callable[[pa.Table], pa.Table], takes: Sequence[str], rows: pa.Table
) -> pa.Table:
    """What `map_batches` makes of records: a table with a key and a value in each row."""
    given = f"a batch of {rows.num_rows:,} records"
    try:
        mapped = mapper(rows.select(list(takes)))
    except CAUGHT as error:
        raise failed("map_batches", given, error) from error
    if not isinstance(mapped, pa.Table) or not {"key", "value"} <= set(mapped.column_names):
        what = (
            f"a table with {mapped.column_names}" if isinstance(mapped, pa.Table) else shown(mapped)
        )
        reason = f"it returned {what}; expected a pyarrow.Table with the columns key and value"
        raise FailedCallError("map_batches", given, reason)
    return mapped.select(["key", "value"])


def _cells(
    shape: Shape, code: Code, windows: Windows, stretches: list[_Stretch], marked: bool
) -> Mapped:
    """The block of a job whose values are merged as SQL's are."""
    mapper = loaded(code).map_batches
    wanted = batch_of(mapper, code.takes, stretches[0].rows.slice(0, 0)).schema
    faults, tables = [], []
    for stretch in stretches:
        try:
            typed = _typed(batch_of(mapper, code.takes, stretch.rows), wanted)
            tables.append(_placed(shape, stretch, typed, marked))
        except FailedCallError as error:
            faults.append(_fault(shape, code, error.costing(stretch.rows.num_rows), stretch))
    if not tables:
        return Mapped(pa.table({}), faults)
    mapped = pa.concat_tables(tables, promote_options="permissive")
    sql = compute_sql(shape, windows, marked)

    def block(part: range) -> pa.Table:
        rows = mapped.slice(part.start, len(part))
        return run(sql, {"records": rows}, f"computing blocks of job {code.job}")

    # Values that SQL takes one by one may be too large together: then they stay apart.
    made, refused = apart(mapped.num_rows, block)
    for number, bad in refused:
        position = mapped.column(shape.axis.column)[number].as_py()
        failure = FailedCallError("map_batches", "a value", bad.reason)
        faults.append(fault_of(code, failure, position // shape.pane * shape.pane))
    return Mapped(pa.concat_tables(made) if made else block(range(0)), faults)


def _typed(table: pa.Table, wanted: pa.Schema) -> pa.Table:
    """Keys and values of the types that no records have: what the job was created with."""
    for number, field_ in enumerate(wanted):
        column = table.column(number)
        if column.type == field_.type or pa.types.is_null(field_.type):
            continue
        try:
            table = table.set_column(number, field_.name, column.cast(field_.type))
        except pa.ArrowException as error:
            told = f"its {field_.name} is {column.type}; expected {field_.type}, as without records"
            given = f"a batch that gave {table.num_rows:,} rows"
            raise FailedCallError("map_batches", given, f"{told}: {error}") from error
    return table


def _placed(shape: Shape, stretch: _Stretch, table: pa.Table, marked: bool) -> pa.Table:
    """Mapped rows where their records were: all of a stretch are in the same windows."""
    count = table.num_rows
    placed = table.append_column(shape.axis.column, pa.repeat(stretch.first, count))
    if not marked:
        return placed
    late = stretch.not_before
    mark = pa.scalar(None if late is None else late * shape.pane, pa.int64())
    return placed.append_column(MARK, pa.repeat(mark, count))
