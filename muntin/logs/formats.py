"""Fields to records: typed columns and a position, or a null position for a bad row.

All formats meet here. Only the columns that are wanted are looked at, so a row is bad if one
of those is wrong or if it has no time.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache

from muntin.kernel.engine import describe, literal, quote
from muntin.logs.casts import (
    Cast,
    cast_sql,
    convert_sql,
    is_text,
    json_cast_sql,
    json_structure,
    needs_written,
)
from muntin.logs.chunks import LINE
from muntin.logs.regexes import groups
from muntin.logs.times import time_sql
from muntin.model.records import MEMBER, POSITION, UNTIL, Axis, Column
from muntin.model.shapes import Shape
from muntin.model.streams import Format, Stream

_QUOTED = r'(?:[^"\\]|\\.)*'
_REQUEST = (
    rf"(?P<request>(?P<method>[A-Za-z]+) (?P<path>{_QUOTED}?)(?: (?P<protocol>HTTP/[\d.]+))?"
    rf"|{_QUOTED})"
)
_COMMON = (
    r"^(?P<host>\S+) (?P<ident>\S+) (?P<user>.+?) \[(?P<time>[^\]]+)\] "
    rf'"{_REQUEST}" (?P<status>\d{{3}}) (?P<bytes>\d+|-)'
)
_COMBINED = rf'{_COMMON} "(?P<referer>{_QUOTED})" "(?P<agent>{_QUOTED})"'
PATTERNS = {"common": _COMMON, "combined": _COMBINED}
_WEB_TIME = "%d/%b/%Y:%H:%M:%S %z"
TIMESTAMP_OF = {"common": '"time"', "combined": '"time"'}

_WEB_TYPES = {"time": "TIMESTAMP", "status": "INTEGER", "bytes": "BIGINT"}


def _web_columns(kind: str) -> tuple[Column, ...]:
    return tuple(Column(n, _WEB_TYPES.get(n, "VARCHAR")) for n in groups(PATTERNS[kind]) if n)


FIXED_COLUMNS = {
    "text": (Column(LINE, "VARCHAR"),),
    "common": _web_columns("common"),
    "combined": _web_columns("combined"),
}


@dataclass(frozen=True)
class Wanted:
    """What jobs want of records: columns, sequence numbers, and perhaps their sizes."""

    columns: tuple[str, ...]
    sequences: tuple[Axis, ...] = ()
    sizes: bool = False

    @classmethod
    def of(cls, shapes: Iterable[Shape]) -> Wanted:
        shapes = list(shapes)
        axes = {shape.axis for shape in shapes}
        return cls(
            tuple(sorted({name for shape in shapes for name in shape.uses})),
            tuple(sorted((a for a in axes if a.kind == "sequence"), key=lambda a: a.column)),
            any(axis.kind == "bytes" for axis in axes),
        )


@cache
def records_sql(stream: Stream, wanted: Wanted, present: frozenset[str], torn: bool = True) -> str:
    """Over `fields`, in their order: the wanted columns and the position.

    A record without a sequence number that a job counts by is as bad as one without a time.
    Unless lines may be `torn`, one that is no JSON is an error.
    """
    needed = needed_columns(stream, wanted)
    casts = {c.name: _cast(stream.format.kind, c, present) for c in needed}
    typed = [f"{value} AS {quote(name)}" for name, (value, _) in casts.items()]
    bad = " OR ".join(wrong for _, wrong in casts.values() if wrong) or "false"
    shown = "".join(
        f"{quote(c.name)} AS {quote(stream.column(c.name))}, "
        for c in needed
        if stream.column(c.name) in wanted.columns
    )
    shown += _beside_sql(stream, wanted)
    numbers = {axis.column: f"TRY(CAST({axis.sql} AS BIGINT))" for axis in wanted.sequences}
    shown += "".join(f"{number} AS {column}, " for column, number in numbers.items())
    there = "".join(f" AND {number} IS NOT NULL" for number in numbers.values())
    fields = _fields_sql(stream.format, needed, torn)
    # Without OFFSET, DuckDB takes a field out of its line once for each use of it.
    texts = f"WITH texts AS ({fields} OFFSET 0)\n" if fields else ""
    position = f"CASE WHEN NOT __bad{there} THEN TRY({position_sql(stream)}) END AS {POSITION}"
    rows = (
        f"SELECT {shown}{position}{_until_sql(stream)}\n"
        f"FROM (SELECT {', '.join([*typed, f'coalesce({bad}, false) AS __bad'])}\n"
        f"FROM {'texts' if fields else 'fields'})"
    )
    if stream.until is None:
        return texts + rows
    # A span that ends before it starts is bad.
    good = f"CASE WHEN {UNTIL} >= {POSITION} THEN {POSITION} END AS {POSITION}"
    return f"{texts}SELECT * REPLACE ({good})\nFROM ({rows})"


def _beside_sql(stream: Stream, wanted: Wanted) -> str:
    """Of a member: whose records these are, and what they have of the other members."""
    unknown = (c for c in stream.beside if c.name in wanted.columns)
    columns = "".join(f"CAST(NULL AS {c.type}) AS {quote(c.name)}, " for c in unknown)
    return columns + (f"{literal(stream.name)} AS {MEMBER}, " if MEMBER in wanted.columns else "")


def _until_sql(stream: Stream) -> str:
    """Where the record's span ends; a record without an end stands for a moment."""
    if stream.until is None:
        return ""
    until, start = (position_sql(replace(stream, timestamp=sql)) for sql in
                    (stream.until, stream.timestamp))  # fmt: skip
    ended = f"CASE WHEN ({stream.until}) IS NULL THEN TRY({start}) ELSE TRY({until}) END"
    return f", {ended} AS {UNTIL}"


def wrong_columns_sql(stream: Stream, wanted: Wanted, present: frozenset[str]) -> str:
    """Over one row of `fields`: a row of words for each column that does not fit its type."""
    needed = needed_columns(stream, wanted)
    casts = {c: _cast(stream.format.kind, c, present) for c in needed}
    words = [
        f"CASE WHEN coalesce({wrong}, false) THEN {literal(_unfit(column))} END"
        for column, (_, wrong) in casts.items()
        if wrong
    ]
    there = "".join(
        f", CASE WHEN ({axis.sql}) IS NULL THEN {literal(f'{axis.sql} is missing')} END"
        for axis in wanted.sequences
    )
    typed = ", ".join(f"{value} AS {quote(c.name)}" for c, (value, _) in casts.items())
    fields = _fields_sql(stream.format, needed, torn=True) or "FROM fields"
    checked = f"SELECT [{', '.join(words) or 'NULL'}] AS __wrong, {typed} FROM ({fields})"
    listed = f"SELECT unnest(__wrong || [NULL{there}]) AS wrong FROM ({checked})"
    return f"SELECT CAST(wrong AS VARCHAR) AS wrong FROM ({listed}) WHERE wrong IS NOT NULL"


def _unfit(column: Column) -> str:
    return f"column {quote(column.name)} is not {column.type}"


def text_sql(stream: Stream, column: Column, present: frozenset[str]) -> str:
    """Over `fields`: one column as it is written."""
    if stream.format.kind in ("csv", "parquet") and column.name not in present:
        return "SELECT NULL AS text FROM fields"
    written = Column(column.name, "VARCHAR")
    fields = _fields_sql(stream.format, [written], torn=True) or "FROM fields"
    return f"SELECT CAST({quote(column.name)} AS VARCHAR) AS text FROM ({fields})"


def time_text_sql(stream: Stream, present: frozenset[str]) -> str | None:
    """Over `fields`: the text that the time of a record is read from, where it is made of some."""
    if _time_type(stream) != "VARCHAR":
        return None
    needed = [c for c in stream.columns if quote(c.name) in stream.timestamp]
    casts = ((c.name, _cast(stream.format.kind, c, present)[0]) for c in needed)
    typed = ", ".join(f"{value} AS {quote(name)}" for name, value in casts)
    fields = _fields_sql(stream.format, needed, torn=True) or "FROM fields"
    return f"SELECT {stream.timestamp} AS text FROM (SELECT {typed} FROM ({fields}))"


def needed_columns(stream: Stream, wanted: Wanted) -> list[Column]:
    """The columns to parse: those wanted, and those that positions are made of."""
    made_of = " ".join(
        [stream.timestamp, stream.until or "", *(axis.sql or "" for axis in wanted.sequences)]
    )
    return [
        c
        for c in stream.columns
        if stream.column(c.name) in wanted.columns or quote(c.name) in made_of
    ]


def sizes_sql(format_: Format, present: Sequence[str]) -> str:
    """Over `fields`: the bytes of each record as text, its end of line included."""
    if format_.kind == "csv":
        return " + ".join(f"coalesce(strlen({quote(name)}), 0) + 1" for name in present)
    return f"strlen({LINE}) + 1"


def position_sql(stream: Stream) -> str:
    """Microseconds since the epoch. Numbers are seconds, milli-, micro- or nanoseconds by size."""
    kind, time = _time_type(stream), f"({stream.timestamp})"
    if kind == "VARCHAR":
        return f"epoch_us({time_sql(time)})"
    if kind == "TIMESTAMP_NS":  # epoch_us would round up, perhaps into the next window
        return f"floor_div(epoch_ns({time}), 1000)"
    if kind.startswith(("TIMESTAMP", "DATE")):
        return f"epoch_us({time})"
    whole = kind in ("BIGINT", "INTEGER", "UBIGINT", "UINTEGER")
    number = f"CAST({time} AS {'BIGINT' if whole else 'DECIMAL(38, 6)'})"
    scales = ((1e11, "* 1000000"), (1e14, "* 1000"), (1e17, "* 1"))
    cases = " ".join(f"WHEN abs({number}) < {limit:.0f} THEN {number} {by}" for limit, by in scales)
    if whole:
        return f"CASE {cases} ELSE floor_div({number}, 1000) END"
    return f"CAST(floor(CASE {cases} ELSE {number} / 1000 END) AS BIGINT)"


def _time_type(stream: Stream) -> str:
    """The type of what TIMESTAMP says, as DuckDB has it."""
    columns = {c.name: c.type for c in stream.columns}
    ((_, kind),) = describe(f"SELECT {stream.timestamp} AS t FROM records", columns, "records")
    return kind


def groups_sql(pattern: str) -> str:
    """A struct of all groups of a line, which are all empty where the line does not match."""
    named = [name or f"__group{number}" for number, name in enumerate(groups(pattern), start=1)]
    return f"regexp_extract({LINE}, {literal(pattern)}, [{', '.join(map(literal, named))}])"


def _fields_sql(format_: Format, needed: list[Column], torn: bool) -> str | None:
    """Fields out of lines, for formats in which they are not columns already."""
    if format_.kind == "json":
        return _json_fields_sql(needed, torn)
    if format_.kind in ("regex", "combined", "common"):
        return f"SELECT unnest({groups_sql(format_.pattern or PATTERNS[format_.kind])}) FROM fields"
    return None


def _json_fields_sql(needed: list[Column], torn: bool) -> str:
    tried = "TRY" if torn else ""
    shaped = {c.name: json_structure(c.type) for c in needed}
    if all(structure == "VARCHAR" for structure in shaped.values()):
        # Faster than from_json, which is left to nested fields and decimals.
        pointers = ", ".join(literal(_pointer(c.name)) for c in needed)
        columns = ", ".join(f"l[{i}] AS {quote(c.name)}" for i, c in enumerate(needed, start=1))
        texts = f"SELECT {tried}(json_extract_string({LINE}, [{pointers}])) AS l FROM fields"
        return f"SELECT {columns} FROM ({texts})"
    written = {c.name: "VARCHAR" for c in needed if needs_written(c.type)}
    both = f", {tried}({_from_json_sql(written)}) AS __written" if written else ""
    return f"SELECT unnest({tried}({_from_json_sql(shaped)})){both} FROM fields"


def _pointer(name: str) -> str:
    """A JSON pointer (RFC 6901) to a field of the outermost object."""
    return "/" + name.replace("~", "~0").replace("/", "~1")


def _from_json_sql(structure: dict[str, str]) -> str:
    return f"from_json({LINE}, {literal(json.dumps(structure))})"


def _cast(format_: str, column: Column, present: frozenset[str]) -> Cast:
    """The column's value, and the condition under which the field is wrong."""
    name = quote(column.name)
    if format_ == "json":
        return json_cast_sql(name, f"__written.{name}", column.type)
    if format_ in ("csv", "parquet") and column.name not in present:
        return f"CAST(NULL AS {column.type})", None
    if format_ == "parquet":
        return convert_sql(name, column.type)
    if format_ in ("combined", "common"):
        if column.name == "time":
            return f"make_timestamp(epoch_us(try_strptime({name}, {literal(_WEB_TIME)})))", None
        return cast_sql(f"nullif(nullif({name}, '-'), '')", column.type)
    if format_ == "regex" or (format_ == "csv" and not is_text(column.type)):
        return cast_sql(f"nullif({name}, '')", column.type)
    return cast_sql(name, column.type)
