"""Pairs to typed columns: JSON text of key and value, or the columns that the job names."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Sequence
from datetime import date, datetime, time
from decimal import Decimal
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

from muntin.kernel.engine import run
from muntin.kernel.python.rounds import CAUGHT, FailedCallError, Pair, shown
from muntin.model.jobs import Job

_BROKEN = float | np.floating | Decimal
_Failures = list[tuple[int, FailedCallError]]  # each with the number of its pair


def columns_of(job: Job, pairs: Sequence[Pair]) -> tuple[list[pa.Array], list[int], _Failures]:
    """The outputs' columns, the pairs they are of, and those that do not fit."""
    assert job.shape.code is not None
    named = job.shape.code.named
    rows: list[list[Any]] = []
    which: list[int] = []
    failures: _Failures = []
    for number, (key, value) in enumerate(pairs):
        try:
            pair = _flat(job, key, value) if named else [_json(job, key), _json(job, value)]
            rows.append(pair)
            which.append(number)
        except FailedCallError as failure:
            failures.append((number, failure))
    try:
        return _arrays(job, rows), which, failures
    except CAUGHT:
        return _fitting(job, rows, which, failures)


def _fitting(
    job: Job, rows: list[list[Any]], which: list[int], failures: _Failures
) -> tuple[list[pa.Array], list[int], _Failures]:
    """The same, row by row, where some row has a value of another type."""
    good, kept = [], []
    for number, row in zip(which, rows, strict=True):
        try:
            _arrays(job, [row])
            good.append(row)
            kept.append(number)
        except CAUGHT as error:  # values may say themselves how they become numbers
            wanted = ", ".join(f"{o.name} {o.type}" for o in job.outputs)
            reason = f"expected columns {wanted}: {error}"
            result = f"the result {shown(tuple(row))}"
            failures.append((number, FailedCallError(maker_of(job), result, reason)))
    return _arrays(job, good), kept, failures


def _arrays(job: Job, rows: list[list[Any]]) -> list[pa.Array]:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(job.outputs)
    types = output_schema(tuple(o.type for o in job.outputs)).types
    return [typed(list(c), t) for c, t in zip(columns, types, strict=True)]


def typed(values: list[Any], kind: pa.DataType) -> pa.Array:
    """The values as a column, whole: Arrow would cut what is behind the point of a number."""
    if pa.types.is_integer(kind) or pa.types.is_list(kind):
        for value in values:
            _require_whole(value, kind)
    return pa.array(values, type=kind)


def _require_whole(value: Any, kind: pa.DataType) -> None:
    if pa.types.is_list(kind) and value is not None:
        for each in value:
            _require_whole(each, kind.value_type)
    elif pa.types.is_integer(kind) and isinstance(value, _BROKEN) and value % 1:
        raise ValueError(f"{value} is not a whole number")


def maker_of(job: Job) -> str:
    """The method that results come from."""
    code = job.shape.code
    if code is None or code.style == "pairs":
        return "reducer"
    return "finalize" if code.style == "updates" and code.finalizes else "update"


@cache
def output_schema(types: tuple[str, ...]) -> pa.Schema:
    fields = ", ".join(f"NULL::{kind} AS x{i}" for i, kind in enumerate(types))
    return run(f"SELECT {fields} LIMIT 0", {}, "describing results").schema


def _flat(job: Job, key: Any, value: Any) -> list[Any]:
    """Tuples are laid out in order. A key that is None has no column unless there is one."""
    values = [*(key if isinstance(key, tuple) else [key])]
    values += [*(value if isinstance(value, tuple) else [value])]
    wanted = len(job.outputs)
    if key is None and len(values) == wanted + 1:
        values = values[1:]
    if len(values) != wanted:
        names = ", ".join(o.name for o in job.outputs)
        reason = f"it has {len(values)} values, but there are {wanted} columns: {names}"
        raise FailedCallError(maker_of(job), f"the result {shown((key, value))}", reason)
    return values


def _json(job: Job, value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, default=_plain)
    except CAUGHT as error:
        reason = f"it is not JSON ({error}); yield plain values, or name the job's columns"
        raise FailedCallError(maker_of(job), f"the result {shown(value)}", reason) from error


def _plain(value: Any) -> Any:
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, set | frozenset):
        return sorted(value)
    if hasattr(value, "tolist"):  # of numpy
        return value.tolist()
    raise TypeError(f"a {type(value).__name__}")
