"""Values of results as text for programs, with every digit: JSON, and CSV."""

from __future__ import annotations

import json
from base64 import b64encode
from datetime import UTC, date, datetime
from decimal import Decimal
from math import isfinite
from typing import Any

import numpy as np
import pyarrow as pa

from muntin.kernel.engine import run


def values_of(column: pa.ChunkedArray) -> list[Any]:
    """A column's values as Python has them; dates out of its calendar as text."""
    try:
        return list(column.to_pylist())
    except (OverflowError, ValueError):
        return [_value(scalar) for scalar in column]


def _value(scalar: pa.Scalar) -> Any:
    try:
        return scalar.as_py()
    except (OverflowError, ValueError):
        if pa.types.is_timestamp(scalar.type):
            return f"{np.datetime64(scalar.value, scalar.type.unit)}Z"
        if pa.types.is_date(scalar.type):
            return str(np.datetime64(scalar.value, "D"))
        column = {"v": pa.array([scalar], scalar.type)}
        sql = "SELECT CAST(v AS VARCHAR) AS v FROM told"
        return run(sql, {"told": pa.table(column)}, "showing a value")["v"][0].as_py()


def text(value: Any, kind: pa.DataType) -> str:
    """A value as CSV has it; nothing for NULL."""
    if value is None:
        return ""
    if isinstance(value, datetime):
        return _iso(value)
    if isinstance(value, str):
        return value
    return json_text(value, kind).strip('"')


def json_text(value: Any, kind: pa.DataType) -> str:
    """A value as JSON, with all its digits. What JSON has no number for is told by its name."""
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, float):
        return repr(value) if isfinite(value) else f'"{_name(value)}"'
    if isinstance(value, datetime):
        return f'"{_iso(value)}"'
    if isinstance(value, date):
        return f'"{value.isoformat()}"'
    if isinstance(value, bytes):
        return json.dumps(b64encode(value).decode())
    if pa.types.is_map(kind) and value is not None:
        pairs = ((text(k, kind.key_type), json_text(v, kind.item_type)) for k, v in value)
        return "{" + ", ".join(f"{json.dumps(k, ensure_ascii=False)}: {v}" for k, v in pairs) + "}"
    if isinstance(value, dict):
        pairs = ((k, json_text(v, kind.field(k).type)) for k, v in value.items())
        return "{" + ", ".join(f"{json.dumps(k, ensure_ascii=False)}: {v}" for k, v in pairs) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(json_text(v, kind.value_type) for v in value) + "]"
    return json.dumps(value, ensure_ascii=False)


def _name(value: float) -> str:
    """NaN, Infinity or -Infinity, as Python, Java and JavaScript read it."""
    return json.dumps(value)


def _iso(time: datetime) -> str:
    utc = time if time.tzinfo is None else time.astimezone(UTC)
    return utc.replace(tzinfo=None).isoformat() + "Z"
