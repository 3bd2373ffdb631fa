"""Fields to records: typed columns and a position, or a null position for a bad row.

All formats meet here. Text is cast strictly: a value that does not fit its column's type, or
fits only by rounding, makes the row bad, never a different number.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache

from muntin.kernel.engine import describe, literal, quote
from muntin.logs.chunks import LINE
from muntin.logs.regexes import group_names
from muntin.model import POSITION, Column, Format, Stream

_INTEGERS = ("TINYINT", "SMALLINT", "INTEGER", "INT", "BIGINT", "HUGEINT",
             "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT")  # fmt: skip
_NESTED = ("STRUCT", "MAP", "JSON", "UNION")

_COMMON = (
    r"^(?P<host>\S+) (?P<ident>\S+) (?P<user>.+?) \[(?P<time>[^\]]+)\] "
    r'"(?P<request>(?:[^"\\]|\\.)*)" (?P<status>\d{3}) (?P<bytes>\d+|-)'
)
_COMBINED = _COMMON + r' "(?P<referer>(?:[^"\\]|\\.)*)" "(?P<agent>(?:[^"\\]|\\.)*)"'
PATTERNS = {"common": _COMMON, "combined": _COMBINED}
_WEB_TIME = "%d/%b/%Y:%H:%M:%S %z"
TIMESTAMP_OF = {"common": '"time"', "combined": '"time"'}

_WEB_COLUMNS = {
    "host": "VARCHAR",
    "ident": "VARCHAR",
    "user": "VARCHAR",
    "time": "TIMESTAMP",
    "request": "VARCHAR",
    "method": "VARCHAR",
    "path": "VARCHAR",
    "protocol": "VARCHAR",
    "status": "INTEGER",
    "bytes": "BIGINT",
    "referer": "VARCHAR",
    "agent": "VARCHAR",
}
FIXED_COLUMNS = {
    "text": (Column(LINE, "VARCHAR"),),
    "common": tuple(Column(n, t) for n, t in list(_WEB_COLUMNS.items())[:10]),
    "combined": tuple(Column(n, t) for n, t in _WEB_COLUMNS.items()),
}


@cache
def records_sql(stream: Stream, wanted: tuple[str, ...], present: frozenset[str]) -> str:
    """Over `fields`, in their order: the wanted columns and the position."""
    needed = needed_columns(stream, wanted)
    typed = [f"{sql} AS {quote(c.name)}" for c, sql, _ in _typed(stream, needed, present)]
    checks = [check for _, _, check in _typed(stream, needed, present) if check]
    bad = " OR ".join(checks) or "false"
    shown = "".join(f"{quote(c.name)}, " for c in needed if c.name in wanted)
    return (
        f"SELECT {shown}CASE WHEN NOT __bad THEN TRY({position_sql(stream)}) END AS {POSITION}\n"
        f"FROM (SELECT {', '.join([*typed, f'coalesce({bad}, false) AS __bad'])}\n"
        f"FROM ({_fields_sql(stream.format, needed)}))"
    )


def needed_columns(stream: Stream, wanted: Sequence[str]) -> list[Column]:
    """The columns to parse: those wanted, and those the timestamp is made of."""
    return [c for c in stream.columns if c.name in wanted or quote(c.name) in stream.timestamp]


def position_sql(stream: Stream) -> str:
    """Microseconds since the epoch. Numbers are seconds, milli-, micro- or nanoseconds by size."""
    columns = {c.name: c.type for c in stream.columns}
    ((_, kind),) = describe(f"SELECT {stream.timestamp} AS t FROM records", columns, "records")
    time = f"({stream.timestamp})"
    if kind == "VARCHAR":
        return f"epoch_us(CAST({time} AS TIMESTAMP WITH TIME ZONE))"
    if kind.startswith(("TIMESTAMP", "DATE")):
        return f"epoch_us({time})"
    exact = f"CAST({time} AS DECIMAL(38, 6))"
    scales = ((1e11, "* 1000000"), (1e14, "* 1000"), (1e17, "* 1"))
    cases = " ".join(f"WHEN abs({time}) < {limit:.0f} THEN {exact} {by}" for limit, by in scales)
    return f"CAST(floor(CASE {cases} ELSE {exact} / 1000 END) AS BIGINT)"


def _fields_sql(format_: Format, needed: list[Column]) -> str:
    if format_.kind == "json":
        structure = {c.name: _json_type(c.type) for c in needed}
        return (
            f"SELECT unnest(TRY(from_json({LINE}, {literal(json.dumps(structure))}))) FROM fields"
        )
    if format_.kind in ("regex", "combined", "common"):
        pattern = format_.pattern or PATTERNS[format_.kind]
        return f"SELECT unnest({_groups_sql(pattern)}) FROM fields"
    return "SELECT * FROM fields"


def _groups_sql(pattern: str) -> str:
    """A struct of all groups, which is all empty where the line does not match."""
    import re

    count = re.compile(pattern).groups
    names = {number: name for name, number in group_names(pattern).items()}
    listed = ", ".join(literal(names.get(i, f"__group{i}")) for i in range(1, count + 1))
    return f"regexp_extract({LINE}, {literal(pattern)}, [{listed}])"


def _json_type(kind: str) -> str:
    return kind if kind.endswith("]") or kind.startswith(_NESTED) else "VARCHAR"


def _typed(
    stream: Stream, needed: list[Column], present: frozenset[str]
) -> list[tuple[Column, str, str | None]]:
    """For each column: its value, and the condition under which the value is wrong."""
    kind = stream.format.kind
    found: list[tuple[Column, str, str | None]] = []
    for column in needed:
        if kind in ("combined", "common"):
            text = _web_field_sql(column.name)
        elif kind in ("csv", "parquet") and column.name not in present:
            text = "NULL"
        elif kind == "regex":
            text = f"nullif({quote(column.name)}, '')"
        else:
            text = quote(column.name)
        if kind == "parquet" or (kind == "json" and _json_type(column.type) != "VARCHAR"):
            found.append((column, f"CAST({text} AS {column.type})", None))
        else:
            found.append((column, *_cast_sql(text, column.type)))
    return found


def _web_field_sql(name: str) -> str:
    if name == "time":
        return f'epoch_us(try_strptime("time", {literal(_WEB_TIME)}))'
    parts = {"method": 1, "path": 2, "protocol": 3}
    if name in parts:
        return f"nullif(split_part(request, ' ', {parts[name]}), '')"
    return f"nullif(nullif({quote(name)}, '-'), '')"


def _cast_sql(text: str, kind: str) -> tuple[str, str | None]:
    if kind == "VARCHAR":
        return text, None
    if text.startswith("epoch_us("):
        return f"make_timestamp({text})", None
    if kind == "TIMESTAMP":
        value = f"make_timestamp(epoch_us(TRY_CAST({text} AS TIMESTAMP WITH TIME ZONE)))"
    else:
        value = f"TRY_CAST({text} AS {kind})"
    wrong = f"({text} IS NOT NULL AND {value} IS NULL)"
    if kind in _INTEGERS:
        rounded = f"(contains({text}, '.') AND TRY_CAST({text} AS DOUBLE) <> {value})"
        wrong = f"({wrong} OR {rounded})"
    return value, wrong
