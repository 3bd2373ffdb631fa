"""Text to values, strictly: text that does not fit its type, or fits only by rounding, is wrong.

Every function here gives two expressions: the value, and the condition under which the text
has none (None where it always has). Conditions are never true of a null: a missing field is
not a wrong one.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from muntin.kernel.engine import connection, literal
from muntin.logs.times import time_sql

if TYPE_CHECKING:
    from duckdb.sqltypes import DuckDBPyType

Cast = tuple[str, str | None]

_INTEGERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT",
             "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT")  # fmt: skip


def cast_sql(text: str, kind: str) -> Cast:
    """A value of a scalar type, from the text of a field."""
    name = str(_type(kind))
    if is_text(name):
        return text, None
    if _is_decimal(name):
        return _decimal_sql(f"TRY_CAST({text} AS {_exact_type(name)})", text, name)
    value = f"TRY_CAST({text} AS {name})"
    if name.startswith("TIMESTAMP"):  # a plain cast would drop the offset and take infinity
        utc = f"make_timestamp(epoch_us({time_sql(text)}))"
        value = utc if name == "TIMESTAMP" else f"CAST({utc} AS {name})"
    if name not in _INTEGERS:
        return value, f"({text} IS NOT NULL AND {value} IS NULL)"
    # DuckDB rounds 1.5 to 2. Nearly all integers read back as they were written, and the slow
    # question is asked of the others only.
    rounded = f"coalesce(TRY_CAST({text} AS DECIMAL(38, {_spare_digits(name)})) % 1 <> 0, true)"
    same = f"CAST({value} AS VARCHAR) = {text}"
    asked = f"CASE WHEN {same} THEN false ELSE {value} IS NULL OR {rounded} END"
    return value, f"({text} IS NOT NULL AND {asked})"


def is_text(kind: str) -> bool:
    return str(_type(kind)) == "VARCHAR"


def convert_sql(column: str, kind: str) -> Cast:
    """A value from a field that has a type already, for example of a Parquet file."""
    value = f"TRY_CAST({column} AS {kind})"
    wrong = f"({column} IS NOT NULL AND {value} IS NULL)"
    if str(_type(kind)) in _INTEGERS:
        wrong = f"({wrong} OR TRY_CAST({column} AS DOUBLE) <> {value})"
    return value, wrong


def json_structure(kind: str) -> Any:
    """What `from_json` has to give for `json_cast_sql`: the same shape with text for leaves."""
    return _structure(_type(kind))


def json_cast_sql(field: str, written: str, kind: str) -> Cast:
    """A value from a field of `json_structure`; `written` is the same field as text.

    Only decimals look at `written`: JSON numbers reach text as doubles, so decimals are taken
    exactly, and a null may then be a number that is missing or one that is wrong.
    """
    name = str(_type(kind))
    return _decimal_sql(field, written, name) if _is_decimal(name) else _shaped(field, _type(kind))


def needs_written(kind: str) -> bool:
    """Whether `json_cast_sql` looks at the field as text."""
    return _is_decimal(str(_type(kind)))


@cache
def _type(kind: str) -> DuckDBPyType:
    return connection().sqltype(kind)


def _is_decimal(name: str) -> bool:
    return name.startswith("DECIMAL") and name.endswith(")")


def _decimal_sql(exact: str, text: str, name: str) -> Cast:
    value = f"TRY_CAST({exact} AS {name})"
    return value, f"({text} IS NOT NULL AND coalesce({value} <> {exact}, true))"


def _exact_type(name: str) -> str:
    """A decimal with as many integer digits as `name` and all others behind the point."""
    width, scale = (int(digits) for digits in name[len("DECIMAL(") : -1].split(","))
    return f"DECIMAL(38, {38 - width + scale})"


def _spare_digits(name: str) -> int:
    """Digits behind the point that a decimal has left beside an integer."""
    return 9 if name.endswith("HUGEINT") else 18


def _structure(type_: DuckDBPyType) -> Any:
    name = str(type_)
    if type_.id == "struct":
        return {field: _structure(child) for field, child in _children(type_)}
    if type_.id == "list":
        return [_structure(child) for _, child in _children(type_)]
    if _is_decimal(name):
        return _exact_type(name)
    return name if type_.id in ("map", "union", "array") or name == "JSON" else "VARCHAR"


def _shaped(field: str, type_: DuckDBPyType, depth: int = 0) -> Cast:
    name = str(type_)
    if type_.id == "struct":
        return _struct_sql(field, type_, depth)
    if type_.id == "list":
        return _list_sql(field, type_, depth)
    if type_.id in ("map", "union", "array") or name == "JSON":
        return field, None
    if _is_decimal(name):
        return f"TRY_CAST({field} AS {name})", None
    return cast_sql(field, name)


def _struct_sql(field: str, type_: DuckDBPyType, depth: int) -> Cast:
    members = [
        (name, *_shaped(f"struct_extract({field}, {literal(name)})", child, depth))
        for name, child in _children(type_)
    ]
    packed = ", ".join(f"{literal(name)}: {value}" for name, value, _ in members)
    wrongs = [wrong for _, _, wrong in members if wrong]
    value = f"CASE WHEN {field} IS NOT NULL THEN {{{packed}}} END"
    return value, f"({' OR '.join(wrongs)})" if wrongs else None


def _list_sql(field: str, type_: DuckDBPyType, depth: int) -> Cast:
    ((_, child),) = _children(type_)
    element = f"e{depth}"
    value, wrong = _shaped(element, child, depth + 1)
    if value == element:
        return field, None
    values = f"list_transform({field}, lambda {element}: {value})"
    if wrong is None:
        return values, None
    wrongs = f"list_transform({field}, lambda {element}: coalesce({wrong}, false))"
    return values, f"list_bool_or({wrongs})"


def _children(type_: DuckDBPyType) -> list[tuple[str, DuckDBPyType]]:
    return [(name, child) for name, child in type_.children if not isinstance(child, int | list)]
