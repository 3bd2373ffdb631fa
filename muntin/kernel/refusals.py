"""Records that a job's SQL refuses: found, told of, and left out of its blocks.

What no record alone is to blame for, as a sum that becomes too large, stays in rows that have not
been merged: the window in which they meet tells of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from muntin.errors import BadValueError, EngineError
from muntin.kernel.apart import ROW, apart, values_text
from muntin.kernel.engine import quote, run
from muntin.kernel.kinds.kind import Given, Kind, Outcome
from muntin.kernel.statements import bounds_sql, records_sql, selected_sql
from muntin.kernel.tables import joined_rows
from muntin.model.records import MARK, MEMBER
from muntin.model.shapes import Shape

_VERIFIED = 128  # records that are tried by themselves before the rest is believed
_DESCRIBED = 100  # records of one piece that are looked at again to say what is wrong with them


@dataclass(frozen=True)
class Refused:
    """A record by its number among those given; what failed on it, on which values, and why."""

    row: int
    expression: str = "an expression"
    given: str = "one more record"
    reason: str = ""


def compute_apart(kind: Kind, given: Given, most: int) -> tuple[Outcome, list[Refused]]:
    """The block of all records but those that the job's SQL refuses.

    When `most` of them have been met in the order in which windows would have, nobody needs what
    lies behind.
    """
    shape = kind.shape
    rows = _in_question(kind, given)

    def compute(records: pa.Table) -> Outcome:
        return kind.compute(replace(given, records=records))

    def attempt(records: pa.Table) -> pa.Table:
        if shape.code is None:
            return compute(records).block
        # Python is given records once, when it is known which.
        sql = selected_sql(shape, given.windows, given.marked)
        run(sql, {"records": records}, "trying records")
        return records

    plain = rows.drop_columns([ROW])
    blamed = _verified(dict(sorted(_tried(shape, rows).items())[:most]), plain, attempt)
    known = np.array(list(blamed), np.int64)
    upto = int(known[-1]) if len(known) == most else rows.num_rows
    left = np.setdiff1d(np.arange(upto), known)
    good = plain.take(pa.array(left))

    def enough(refused: int, start: int) -> bool:
        return refused + int(np.searchsorted(known, left[start])) >= most

    made, refused = apart(
        good.num_rows, lambda part: attempt(good.slice(part.start, len(part))), enough
    )
    blamed |= {int(left[number]): "" for number, _ in refused}
    outcome = Outcome(pa.concat_tables(made) if made else pa.table({}))
    if shape.code is not None and made:
        outcome = compute(outcome.block)
    return outcome, list(_described(shape, rows, blamed, attempt))


def _in_question(kind: Kind, given: Given) -> pa.Table:
    """The records that some window holds, numbered, in the order in which windows meet them.

    A late record is met by windows that end behind its mark, whatever its position.
    """
    rows = given.records.append_column(ROW, pa.array(np.arange(given.records.num_rows)))
    wanted = [*bounds_sql(kind.shape), *kind.on_time_sql(given.windows, given.marked)]
    if wanted:
        conditions = " AND ".join(f"({condition})" for condition in wanted)
        sql = f"SELECT * FROM records WHERE {conditions}"
        rows = run(sql, {"records": rows}, "looking for records that SQL refuses")
    positions = rows.column(kind.shape.axis.column).to_numpy()
    met = np.maximum(positions, rows.column(MARK).to_numpy()) if given.marked else positions
    order = np.lexsort((positions, met))
    return rows.take(pa.array(order)).combine_chunks()


def _tried(shape: Shape, rows: pa.Table) -> dict[int, str]:
    """The rows on which an expression fails, and which one: the filter, or if they pass another.

    An expression that cannot be tried is left out.
    """
    blamed: dict[int, str] = {}
    where = shape.code.where if shape.code is not None else shape.where
    if where is not None:
        tried = _try(where, rows)
        if tried is None:
            return {}
        blamed |= dict.fromkeys(np.flatnonzero(tried.is_null()).tolist(), where)
        passed = pc.fill_null(pc.struct_field(tried, "v").cast(pa.bool_()), False)
    else:
        passed = pa.array(np.ones(rows.num_rows, bool))
    numbers, rows = np.flatnonzero(passed), rows.filter(passed)
    for sql in shape.scalars:
        tried = _try(sql, rows)
        for number in [] if tried is None else numbers[np.flatnonzero(tried.is_null())].tolist():
            blamed.setdefault(number, sql)
    return blamed


def _verified(
    blamed: Mapping[int, str], rows: pa.Table, attempt: Callable[[pa.Table], object]
) -> dict[int, str]:
    """The rows that the statement itself refuses too: it may be cleverer than an expression.

    Where it refuses all of many, it is taken to refuse the rest of them.
    """
    looked = list(blamed)[:_VERIFIED]
    refused = [number for number in looked if _is_refused(rows.slice(number, 1), attempt)]
    known = blamed if len(refused) == len(looked) else refused
    return {number: blamed[number] for number in known}


def _is_refused(row: pa.Table, attempt: Callable[[pa.Table], object]) -> bool:
    try:
        attempt(row)
    except BadValueError:
        return True
    return False


def _try(sql: str, rows: pa.Table) -> pa.Array | None:
    """A struct with the value for every row, or nothing where there is an error in its place."""
    select = f"SELECT TRY({{'v': ({sql})}}) AS tried FROM records"
    try:
        tried = run(select, {"records": rows}, "trying an expression")["tried"]
    except EngineError:
        return None
    return tried.combine_chunks()


def _described(
    shape: Shape,
    rows: pa.Table,
    blamed: Mapping[int, str],
    attempt: Callable[[pa.Table], object],
) -> Iterator[Refused]:
    """What was refused, in the order in which it was met; of very many, the first ones with why."""
    for count, number in enumerate(sorted(blamed)):
        row = rows.slice(number, 1)
        place = row.column(ROW)[0].as_py()
        described = Refused(place)
        if count < _DESCRIBED:
            described = _refused(shape, row, place, blamed[number])
        if count < _DESCRIBED and not described.reason:
            described = replace(described, reason=_why(row.drop_columns([ROW]), attempt))
        yield described


def _why(row: pa.Table, attempt: Callable[[pa.Table], object]) -> str:
    """What the statement itself says of a record that no expression by itself is to blame for."""
    try:
        attempt(row)
    except BadValueError as error:
        return error.reason
    return ""


def _refused(shape: Shape, row: pa.Table, place: int, expression: str) -> Refused:
    where = shape.code.where if shape.code is not None else shape.where
    conditions = [join.on for join in shape.joins] + [each.sql for each in shape.lists]
    plain: list[tuple[str, str, dict[str, pa.Table]]] = [(c, "records", {}) for c in conditions]
    at = row.column(shape.axis.column)[0].as_py()
    beside = records_sql(shape), joined_rows(shape, at)
    plain += [(each.sql, "records", beside[1]) for each in shape.lookups]
    every = [expression] if expression else filter(None, (where, *shape.scalars))
    for sql, records, tables in [*plain, *((sql, *beside) for sql in every)]:
        try:
            select = f"SELECT ({sql}) AS v FROM {records}"
            run(select, {"records": row, **tables}, "looking at a record")
        except BadValueError as error:
            uses = [name for name in shape.uses if quote(name) in sql] or shape.uses
            given = values_text(row, {name: name for name in uses})
            return Refused(place, _as_said(shape, sql), given or "a record", error.reason)
        except EngineError:  # of several cores, it is no expression over a record alone
            continue
    used = [name for name in shape.uses if name != MEMBER]
    if shape.members:  # of the other streams it has nothing
        used = [name for name in used if name.startswith(f"{row[MEMBER][0].as_py()}.")]
    return Refused(place, given=values_text(row, {name: name for name in used}) or "a record")


def _as_said(shape: Shape, sql: str) -> str:
    """An expression with what users call the columns of tables and elements of lists."""
    for each in shape.lists:
        sql = sql.replace(quote(each.column), quote(each.words))
    for lookup in shape.lookups:
        sql = lookup.words if sql == lookup.sql else sql.replace(quote(lookup.column), lookup.words)
    return re.sub(r'"__j\d+_', '"', sql)
