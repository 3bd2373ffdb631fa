"""Aggregates in Python: `zero`, `add`, `merge`, `finish` and perhaps `remove`.

A cell is a pickled state. SQL groups what belongs together into lists, and here each list becomes
one state.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from muntin.kernel.python.code import loaded
from muntin.kernel.python.faults import (
    attempted,
    by_removing_good,
    failure,
    failure_in,
    fault_of,
    is_failure,
    or_failure,
    sparse_rows,
)
from muntin.kernel.python.faults import fault_rows as rows_of_faults
from muntin.kernel.python.keys import encode_key
from muntin.kernel.python.results import output_schema, typed
from muntin.kernel.python.rounds import CAUGHT, FailedCallError, failed, shown
from muntin.kernel.statements import FAULT, WINDOW, WINDOW_END, cells_of, row_names
from muntin.model.counts import Fault
from muntin.model.jobs import Job
from muntin.model.shapes import Cell, Code, Merge, Shape
from muntin.windows.sliding import Entry
from muntin.windows.spec import WindowSpec

METHODS = ("zero", "add", "merge", "finish")
RETURNS = "DOUBLE"  # unless the aggregate says otherwise
_Held = tuple[tuple[Any, int], ...]  # of each cell its value, and how many it is made of


def added(shape: Shape, block: pa.Table) -> pa.Table:
    """Lists of values to states."""
    return _folded(shape, block, _add)


def merged(shape: Shape, block: pa.Table) -> pa.Table:
    """Lists of states to states."""
    return _folded(shape, block, merge_states)


def finished(job: Job, windows: pa.Table) -> tuple[pa.Table, list[tuple[int, Fault]]]:
    """Windows with values in place of states, and what failed in which."""
    faults: list[tuple[int, Fault]] = []
    ends = windows.column("w").to_pylist()
    for cell in job.shape.states:
        code, kind = code_of(cell), output_schema((code_of(cell).returns,)).types[0]
        values = []
        for end, data in zip(ends, windows.column(cell.name).to_pylist(), strict=True):
            try:
                values.append(None if data is None else _finish(code, data, kind))
            except FailedCallError as error:
                values.append(None)
                mine = replace(code, job=job.name)
                faults.append((end, fault_of(mine, error, end * job.shape.pane - 1)))
        windows = _exchanged(windows, cell, pa.array(values, kind))
    return windows, faults


def fault_rows(faults: Sequence[tuple[int, Fault]], rows: pa.Table) -> pa.Table:
    """The rows, and one more for every fault."""
    rows = rows.append_column("fault", pa.nulls(rows.num_rows, pa.binary()))
    return pa.concat_tables([rows, rows_of_faults(rows.schema, faults)])


def with_faults(ordered: pa.Table, told: pa.Table) -> pa.Table:
    """Ordered rows, and the rows of faults at their end."""
    if FAULT not in ordered.column_names:
        ordered = ordered.append_column(FAULT, pa.nulls(ordered.num_rows, pa.binary()))
    places = {WINDOW: told["win"], WINDOW_END: told["w"], FAULT: told["fault"]}
    return pa.concat_tables([ordered, sparse_rows(ordered.schema, told.num_rows, places)])


def code_of(cell: Cell) -> Code:
    assert cell.code is not None
    return cell.code


def is_removable(cell: Cell) -> bool:
    return cell.code is not None and cell.code.removable


def slide(shape: Shape, panes: pa.Table, spec: WindowSpec, ends: Sequence[int]) -> pa.Table:
    """Windows by adding panes and removing them, for states and exact sums."""
    cells, names = cells_of(shape), row_names(shape)
    columns = [panes.column(name).to_pylist() for name in ("pane", *names)]
    values = [panes.column(cell.name).to_pylist() for cell in cells]
    entries: dict[bytes, list[Entry[_Held]]] = {}
    rows: dict[bytes, tuple[Any, ...]] = {}
    for number, (pane, *row) in enumerate(zip(*columns, strict=True)):
        held = tuple((v[number], int(v[number] is not None)) for v in values)
        key = encode_key(tuple(row))
        rows[key] = tuple(row)
        span = spec.first_end(pane), spec.last_end(pane)
        entries.setdefault(key, []).append(Entry(*span, held))
    windows = [
        (end, *rows[key], *(value if count else None for value, count in whole))
        for key, of_key in entries.items()
        for end, whole in by_removing_good(
            of_key,
            ends,
            lambda many: _sum(cells, many),
            lambda whole, leaving: _less(cells, whole, leaving),
            lambda whole: _failures(cells, whole),
        )
    ]
    schema = pa.schema(
        [("w", pa.int64()), *(panes.schema.field(n) for n in (*names, *(c.name for c in cells)))]
    )
    columns = [list(column) for column in zip(*windows, strict=True)] or [[] for _ in schema]
    return pa.table(columns, schema=schema)


def _sum(cells: Sequence[Cell], many: Sequence[_Held]) -> _Held:
    whole = []
    for index, cell in enumerate(cells):
        there = [held[index][0] for held in many if held[index][1]]
        count = sum(held[index][1] for held in many)
        if cell.merge is Merge.STATE:
            whole.append((merge_states(code_of(cell), there) if there else None, count))
        else:
            whole.append((sum(there), count))
    return tuple(whole)


def _less(cells: Sequence[Cell], whole: _Held, leaving: _Held) -> _Held:
    rest = []
    for cell, (value, count), (left, gone) in zip(cells, whole, leaving, strict=True):
        if not gone or count == gone:
            rest.append((value, count) if not gone else (None, 0))
        elif cell.merge is Merge.STATE:
            rest.append((_remove(code_of(cell), value, left), count - gone))
        else:
            rest.append((value - left, count - gone))
    return tuple(rest)


def _failures(cells: Sequence[Cell], whole: _Held) -> list[bytes]:
    there = zip(cells, whole, strict=True)
    states = [value for cell, (value, count) in there if cell.merge is Merge.STATE and count]
    return [state for state in states if is_failure(state)]


def _folded(shape: Shape, table: pa.Table, fold: Callable[[Code, list[Any]], bytes]) -> pa.Table:
    for cell in shape.states:
        lists = table.column(cell.name).to_pylist()
        states = [None if not group else fold(code_of(cell), group) for group in lists]
        table = _exchanged(table, cell, pa.array(states, pa.binary()))
    return table


def _exchanged(table: pa.Table, cell: Cell, column: pa.Array) -> pa.Table:
    return table.set_column(table.column_names.index(cell.name), cell.name, column)


def _add(code: Code, values: list[dict[str, Any]]) -> bytes:
    zero = attempted(f"{code.job}.zero", lambda: "nothing", lambda: [loaded(code).zero()])
    if isinstance(zero, FailedCallError):
        return failure(zero.costing(len(values)))
    given: tuple[Any, ...] = ()

    def add() -> bytes:
        nonlocal given
        aggregate, (state,) = loaded(code), zero
        for fields in values:
            given = tuple(fields.values())
            state = aggregate.add(state, *given)
        return pickle.dumps(state, 5)

    state = attempted(f"{code.job}.add", lambda: ", ".join(map(shown, given)), add)
    return failure(state.costing(len(values))) if isinstance(state, FailedCallError) else state


def merge_states(code: Code, states: Sequence[bytes]) -> bytes:
    broken = next(filter(is_failure, states), None)
    if broken is not None or len(states) == 1:
        return broken or states[0]

    def merge() -> bytes:
        whole = pickle.loads(states[0])
        for state in states[1:]:
            whole = loaded(code).merge(whole, pickle.loads(state))
        return pickle.dumps(whole, 5)

    data = or_failure(attempted(f"{code.job}.merge", lambda: "two states", merge))
    if is_failure(data) or len(data) <= code.max_state:
        return data
    return failure(_too_large(code, data))


def _remove(code: Code, whole: bytes, leaving: bytes) -> bytes:
    if is_failure(whole):
        return whole

    def remove() -> bytes:
        return pickle.dumps(loaded(code).remove(pickle.loads(whole), pickle.loads(leaving)), 5)

    return or_failure(attempted(f"{code.job}.remove", lambda: "two states", remove))


def _finish(code: Code, data: bytes, kind: pa.DataType) -> Any:
    """The value of a state, if it is of the type it should be."""
    if is_failure(data):
        raise failure_in(data)
    if len(data) > code.max_state:
        raise _too_large(code, data)
    try:
        return typed([loaded(code).finish(pickle.loads(data))], kind)[0].as_py()
    except CAUGHT as error:
        raise failed(f"{code.job}.finish", "a state", error) from error


def _too_large(code: Code, data: bytes) -> FailedCallError:
    reason = f"it takes {len(data):,} bytes, but max_state is {code.max_state:,}"
    return FailedCallError(code.job, "a state", reason)
