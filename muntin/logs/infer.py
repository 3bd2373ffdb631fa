"""Columns of a stream that declares none, from a sample of its files.

A type is what most sampled values are: nine in ten, or all but one of a few. The others make bad
rows. A type has to give back what it takes: where some value looks like a number but would
not be written the same way again, as 007 or an integer too long for its type, all are texts.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import closing
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa

from muntin.errors import EngineError, InputError
from muntin.kernel.engine import column_types, literal, quote, run
from muntin.kernel.types import fields_of
from muntin.logs.chunks import LINE, LONGEST_LINE, WorkOrder, read_chunks
from muntin.logs.formats import FIXED_COLUMNS, PATTERNS, groups_sql
from muntin.logs.patterns import described, path_patterns, unmatched
from muntin.logs.regexes import groups
from muntin.logs.structures import is_most, odd_fields, without
from muntin.logs.times import time_sql
from muntin.model.records import Column
from muntin.model.streams import Stream

_FILES = 8
_ROWS = 2000
_BYTES = 1 << 20

_NUMBERS = ("BIGINT", "HUGEINT", "DOUBLE")  # the narrowest first
# How values of each type are written. An integer of more than 15 digits would not come back from
# a double.
_SHAPES = {
    "BIGINT": r"-?(0|[1-9]\d*)",
    "HUGEINT": r"-?(0|[1-9]\d*)",
    "DOUBLE": r"[+-]?((0|[1-9]\d{0,14})|(0|[1-9]\d*)?(\.\d*([eE][+-]?\d+)?|[eE][+-]?\d+)"
    r"|(?i:nan|inf|infinity))",
    "BOOLEAN": r"(?i:true|false)",
    "TIMESTAMP": r"""["'\[(]?(\d{4}[-/]\d{1,2}[-/]\d{1,2}([ Tt].*)?"""
    r"|\d{1,2}/[A-Za-z]{3}/\d{4}:.*|\d{8}T\d{6}.*|\d{1,2} [A-Za-z]{3} \d{4} .*"
    r"|[A-Za-z]{3},? (\d{1,2} [A-Za-z]{3}|[A-Za-z]{3} +\d{1,2}) .*)",
}
_WIDER = 10  # times as many fields as in the middle line are not those of a usual record
_FEW_FIELDS = 100
_LONG = 1 << 20  # bytes of a line


def infer_columns(stream: Stream) -> tuple[Column, ...]:
    """Names and types from the first rows of a few files."""
    kind = stream.format.kind
    if kind in FIXED_COLUMNS:
        return FIXED_COLUMNS[kind]
    paths = _some(_paths_with_content(stream))
    if kind == "parquet":
        return _parquet_columns(paths[-1])
    fields = _sample(stream, paths)
    if kind == "csv":
        return _narrowed(fields)
    return _json_columns(stream, fields) if kind == "json" else _regex_columns(stream, fields)


def names_in_files(stream: Stream) -> list[str]:
    """The names of fields in a sample of the files, whatever is declared; none if unknown."""
    try:
        kind, paths = stream.format.kind, _some(_paths_with_content(stream))
        if kind == "parquet":
            return [column.name for column in _parquet_columns(paths[-1])]
        fields = _sample(stream, paths)
    except InputError:
        return []
    if kind in PATTERNS or kind == "regex":
        return [name for name in groups(stream.format.pattern or PATTERNS[kind]) if name]
    if kind != "json":
        return list(fields.column_names)
    sql = f"SELECT DISTINCT unnest(TRY(json_keys({LINE}))) AS name FROM fields"
    return [
        str(name) for name in run(sql, {"fields": fields}, "looking at names")["name"].to_pylist()
    ]


def _paths_with_content(stream: Stream) -> list[Path]:
    paths = [path for pattern in path_patterns(stream.patterns) for path, _ in pattern.find()]
    filled = [path for path in paths if path.exists() and path.stat().st_size]
    if not filled:
        raise _no_content(stream)
    return filled


def _no_content(stream: Stream) -> InputError:
    wanted, why = described(stream.patterns), unmatched(path_patterns(stream.patterns))
    advice = f"; start when there is one, or declare the columns: CREATE STREAM {stream.name} (…)"
    return InputError(f"stream '{stream.name}': no file with content matches {wanted}{why}{advice}")


def _some(paths: list[Path]) -> list[Path]:
    """A few files, spread evenly: neighbours are often of one server."""
    last = len(paths) - 1
    return [paths[i] for i in sorted({last * number // (_FILES - 1) for number in range(_FILES)})]


def _sample(stream: Stream, paths: list[Path]) -> pa.Table:
    """The first rows of the files that can be read; the others are told of when they are due."""
    rows: list[pa.Table] = []
    refused: list[InputError] = []
    for path in paths:
        try:
            rows.append(_first_rows(stream, path))
        except InputError as error:
            if stream.on_bad_row == "fail":
                raise
            refused.append(error)
    if not rows:
        raise refused[0]
    fields = pa.concat_tables(rows, promote_options="default")
    if not fields.column_names:
        raise _no_content(stream)
    return fields


def _first_rows(stream: Stream, path: Path) -> pa.Table:
    order = WorkOrder(stream.name, "", str(path), 0, path.stat().st_size)
    with closing(read_chunks(order, stream.format, [], _BYTES)) as chunks:
        fields = next((chunk.fields.slice(0, _ROWS) for chunk in chunks), pa.table({}))
    fields = fields.select([i for i, name in enumerate(fields.column_names) if name])
    if stream.format.kind == "csv" and "".join(fields.column_names[:1]).startswith("{"):
        raise InputError(f"{path} looks like JSON; expected csv (or write FORMAT json)")
    known = [name.lower() for name in fields.column_names]
    twice = [name for name in fields.column_names if known.count(name.lower()) > 1]
    if twice:
        raise InputError(f"{path} names two columns '{twice[-1]}' in its first line")
    return fields


def _regex_columns(stream: Stream, fields: pa.Table) -> tuple[Column, ...]:
    pattern = stream.format.pattern or ""
    shown = ", ".join(f"nullif({quote(n)}, '') AS {quote(n)}" for n in groups(pattern) if n)
    sql = f"SELECT {shown} FROM (SELECT unnest({groups_sql(pattern)}) FROM fields)"
    parsed = run(sql, {"fields": fields}, f"looking at stream '{stream.name}'")
    if all(column.null_count == len(column) for column in parsed.columns):
        raise _nothing_like(stream, "matches the regular expression", fields)
    return _narrowed(parsed)


def _nothing_like(stream: Stream, expected: str, fields: pa.Table) -> InputError:
    lines = fields[LINE].to_pylist() or ["(blank)"]
    return InputError(
        f"stream '{stream.name}': none of the first {len(lines)} lines {expected}, "
        f"for example: {lines[0][:200]}"
    )


def _narrowed(table: pa.Table, kinds: Sequence[str] = tuple(_SHAPES)) -> tuple[Column, ...]:
    """The narrowest of some types for each text column; text where there is none."""
    values = [
        pa.table({"place": pa.repeat(place, table.num_rows), "value": column.cast(pa.string())})
        for place, column in enumerate(table.columns)
    ]
    counted = ", ".join(f"count_if({kind}) AS {kind}" for kind in _SHAPES)
    fits = ", ".join(f"{_fits_sql(k) if k in kinds else 'false'} AS {k}" for k in _SHAPES)
    number = " OR ".join(_NUMBERS)
    sql = (
        f"SELECT place, count(*) AS total, {counted}, count_if({number}) AS numbers, "
        f"count_if(TRY_CAST(value AS DOUBLE) IS NOT NULL AND NOT ({number})) AS otherwise "
        f"FROM (SELECT *, {fits} FROM fields WHERE value <> '') GROUP BY place"
    )
    rows = run(sql, {"fields": pa.concat_tables(values)}, "looking at columns").to_pylist()
    found = {row["place"]: _type_of(row) for row in rows}
    return tuple(
        Column(name, found.get(place, "VARCHAR")) for place, name in enumerate(table.column_names)
    )


def _fits_sql(kind: str) -> str:
    shape = f"regexp_full_match(value, {literal(_SHAPES[kind])})"
    value = time_sql("value") if kind == "TIMESTAMP" else f"TRY_CAST(value AS {kind})"
    return f"({shape} AND {value} IS NOT NULL)"


def _type_of(counts: Mapping[str, int]) -> str:
    """The type of a column, from how many of its values fit which."""
    total = counts["total"]
    if is_most(counts["numbers"], total):
        exact = [kind for kind in _NUMBERS if counts[kind] == counts["numbers"]]
        return exact[0] if exact and not counts["otherwise"] else "VARCHAR"
    return next((k for k in ("BOOLEAN", "TIMESTAMP") if is_most(counts[k], total)), "VARCHAR")


def _json_columns(stream: Stream, fields: pa.Table) -> tuple[Column, ...]:
    """DuckDB's own inference over the lines that are objects; scalars are looked at again.

    It calls integers of both signs a HUGEINT, and long ones a DOUBLE.
    """
    doing = f"looking at stream '{stream.name}'"
    is_object = f"coalesce(TRY(json_type({LINE})) = 'OBJECT', false)"
    sql = (
        f"SELECT {LINE}, TRY(json_structure({LINE})) AS structure, strlen({LINE}) AS size, "
        f"json_array_length(json_keys({LINE})) AS width FROM fields WHERE {is_object}"
    )
    objects = run(sql, {"fields": fields}, doing)
    if not objects.num_rows:
        raise _nothing_like(stream, "is a JSON object", fields)
    usual = _usual(objects)
    if not usual.num_rows:
        raise InputError(f"stream '{stream.name}': every line is nested more than 128 levels deep")
    kinds = _json_kinds(stream, usual)
    scalars = [n for n, kind in kinds.items() if kind in (*_NUMBERS, "UBIGINT")]
    scalars += _scalar_fields(usual, [name for name, kind in kinds.items() if kind == "JSON"])
    # What DuckDB takes for a time may have a year of two digits, which is none of ours.
    texts = [name for name, kind in kinds.items() if kind in ("VARCHAR", "TIMESTAMP")]
    for names, among in ((scalars, tuple(_SHAPES)), (texts, ("TIMESTAMP",))):
        if names:
            written = literal(json.dumps(dict.fromkeys(names, "VARCHAR")))
            sql = f"SELECT unnest(from_json({LINE}, {written})) FROM fields"
            values = run(sql, {"fields": usual}, doing)
            kinds |= {column.name: column.type for column in _narrowed(values, among)}
    times = _nested_times(usual, kinds)
    return tuple(Column(name, _with_times(kind, (name,), times)) for name, kind in kinds.items())


_Path = tuple[str, ...]  # names of a field and of those that it is in


def _nested_times(objects: pa.Table, kinds: Mapping[str, str]) -> set[_Path]:
    """The fields of structs that hold texts, all of which are times."""
    paths = [path for name, kind in kinds.items() for path in _texts(kind, (name,))]
    if not paths:
        return set()
    fields = (
        f"json_extract_string({LINE}, {literal(_pointer(path))}) AS f{number}"
        for number, path in enumerate(paths)
    )
    sql = f"SELECT {', '.join(fields)} FROM fields"
    found = _narrowed(run(sql, {"fields": objects}, "looking at columns"), ("TIMESTAMP",))
    named = zip(paths, found, strict=True)
    return {path for path, column in named if column.type == "TIMESTAMP"}


def _texts(kind: str, path: _Path) -> Iterator[_Path]:
    for name, of in fields_of(kind) if kind.startswith("STRUCT(") else ():
        if of == "VARCHAR":
            yield (*path, name)
        yield from _texts(of, (*path, name))


def _with_times(kind: str, path: _Path, times: Set[_Path]) -> str:
    """The type of a field in which some texts are times."""
    if path in times:
        return "TIMESTAMP"
    if not any(time[: len(path)] == path for time in times):
        return kind
    inner = ((name, _with_times(of, (*path, name), times)) for name, of in fields_of(kind))
    return f"STRUCT({', '.join(f'{_as_in_types(name)} {of}' for name, of in inner)})"


def _as_in_types(name: str) -> str:
    return name if re.fullmatch("[a-z_][a-z0-9_]*", name) else quote(name)


def _pointer(path: Iterable[str]) -> str:
    """Where a field is in a line, as DuckDB's JSON functions take it."""
    return "".join("/" + name.replace("~", "~0").replace("/", "~1") for name in path)


def _usual(objects: pa.Table) -> pa.Table:
    """Lines as most are: not too deep or too wide, and without values of an unusual kind."""
    widths = np.asarray(objects["width"].combine_chunks())
    middle = int(np.sort(widths)[len(widths) // 2])
    usual = widths <= max(_FEW_FIELDS, _WIDER * middle)
    short = np.asarray(objects["size"].combine_chunks()) <= _LONG
    usual &= short if short.any() else True
    deep = np.asarray(objects["structure"].is_null().combine_chunks())
    kept = objects.filter(pa.array(usual & ~deep))
    odd = odd_fields(Counter(kept["structure"].to_pylist()))
    if not odd:
        return kept.select([LINE])
    lines = [
        without(line, odd[structure]) if structure in odd else line
        for line, structure in zip(*(kept[n].to_pylist() for n in (LINE, "structure")), strict=True)
    ]
    return pa.table({LINE: pa.array(lines, pa.string())})


def _json_kinds(stream: Stream, objects: pa.Table) -> dict[str, str]:
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".json") as file:
        file.writelines(f"{line}\n" for line in objects[LINE].to_pylist())
        file.flush()
        options = (
            "format='newline_delimited', records=true, map_inference_threshold=-1, "
            f"maximum_object_size={LONGEST_LINE}"
        )
        sql = f"DESCRIBE SELECT * FROM read_json({literal(file.name)}, {options})"
        try:
            with duckdb.connect() as own:  # the one of all others may open no files
                rows = own.execute(sql).fetchall()
        except duckdb.Error as error:
            raise InputError(f"stream '{stream.name}': no columns found: {error}") from error
    return {str(name): _settled(str(kind)) for name, kind, *_ in rows}


def _scalar_fields(objects: pa.Table, names: list[str]) -> list[str]:
    """Fields that hold texts and numbers in turn, but never objects."""
    if not names:
        return []
    nested = [f"bool_or({_json_type_sql(name)} IN ('OBJECT', 'ARRAY'))" for name in names]
    sql = f"SELECT unnest([{', '.join(nested)}]) AS nested FROM fields"
    flags = run(sql, {"fields": objects}, "looking at columns")["nested"].to_pylist()
    return [name for name, is_nested in zip(names, flags, strict=True) if not is_nested]


def _json_type_sql(name: str) -> str:
    return f"json_type({LINE}, {literal(_pointer([name]))})"


def _settled(kind: str) -> str:
    """Times in UTC whatever their offset, and text for what only looks special."""
    kind = re.sub(r"\bTIMESTAMP( WITH TIME ZONE|_\w+)?|\bDATE\b", "TIMESTAMP", kind)
    return re.sub(r'"NULL"|\bTIME\b|\bUUID\b', "VARCHAR", kind)


def _parquet_columns(path: Path) -> tuple[Column, ...]:
    from pyarrow.parquet import ParquetFile  # agents seldom need it

    try:
        empty = ParquetFile(path).schema_arrow.empty_table()
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path} is not a readable parquet file: {error}") from error
    try:
        return tuple(Column(name, kind) for name, kind in column_types(empty).items())
    except EngineError as error:
        raise InputError(f"{path}: {error.reason}") from error
