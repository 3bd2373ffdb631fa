"""Columns of a stream that declares none, from a sample of its files."""

from __future__ import annotations

import gzip
import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet

from muntin.errors import InputError
from muntin.kernel.engine import connection, literal, quote
from muntin.logs import formats
from muntin.logs.chunks import csv_names, is_gzip, split_csv
from muntin.logs.patterns import PathPattern
from muntin.logs.regexes import group_names
from muntin.model import Column, Stream

_FILES = 8
_LINES = 2000
_CANDIDATES = ("BIGINT", "DOUBLE", "BOOLEAN", "TIMESTAMP")


def infer_columns(stream: Stream) -> tuple[Column, ...]:
    """Names and types from the first lines of the first files."""
    kind = stream.format.kind
    if kind in formats.FIXED_COLUMNS:
        return formats.FIXED_COLUMNS[kind]
    paths = [path for text in stream.patterns for path, _ in PathPattern(text).find()]
    paths = [path for path in paths if path.stat().st_size]
    if not paths:
        raise InputError(
            f"stream '{stream.name}': no file with content matches {' or '.join(stream.patterns)}; "
            f"start when there is one, or declare the columns: CREATE STREAM {stream.name} (…)"
        )
    if kind == "parquet":
        return _parquet_columns(paths[0])
    if kind == "csv":
        return _csv_columns(stream, paths[0])
    lines = list(_sample(paths))
    if kind == "json":
        return _json_columns(stream, lines)
    return _regex_columns(stream, lines)


def _sample(paths: list[Path]) -> Iterator[bytes]:
    for path in paths[:_FILES]:
        try:
            with gzip.open(path, "rb") if is_gzip(path) else path.open("rb") as file:
                yield from islice(file, _LINES)
        except (OSError, EOFError, gzip.zlib.error) as error:
            raise InputError(f"{path} cannot be read: {error}") from error


def _json_columns(stream: Stream, lines: list[bytes]) -> tuple[Column, ...]:
    con = connection()
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        file.writelines(lines)
        file.flush()
        options = "format='newline_delimited', ignore_errors=true, map_inference_threshold=-1"
        sql = f"DESCRIBE SELECT * FROM read_json({literal(file.name)}, {options})"
        try:
            rows = con.execute(sql).fetchall()
        except duckdb.Error as error:
            raise InputError(f"stream '{stream.name}': no JSON objects found: {error}") from error
    return tuple(Column(str(name), _json_inferred(str(kind))) for name, kind, *_ in rows)


def _json_inferred(kind: str) -> str:
    if kind in ("BIGINT", "DOUBLE", "BOOLEAN", "TIMESTAMP") or kind.endswith(("]", ")")):
        return kind
    if kind.startswith("TIMESTAMP") or kind == "DATE":
        return "TIMESTAMP"
    return {"JSON": "JSON", "UBIGINT": "UBIGINT", "HUGEINT": "HUGEINT"}.get(kind, "VARCHAR")


def _csv_columns(stream: Stream, path: Path) -> tuple[Column, ...]:
    lines = list(_sample([path]))
    names = csv_names(lines[:2], stream.format)
    body = b"".join(lines[1:] if stream.format.header else lines)
    table, _ = split_csv(body.replace(b"\r\n", b"\n"), names, stream.format.delimiter)
    return _narrowed(table)


def _regex_columns(stream: Stream, lines: list[bytes]) -> tuple[Column, ...]:
    pattern = stream.format.pattern or ""
    names = list(group_names(pattern))
    table = pa.table({"line": [line.decode("utf-8", "replace").rstrip("\r\n") for line in lines]})
    con = connection()
    con.register("fields", table)
    try:
        struct = f"SELECT unnest({formats._groups_sql(pattern)}) FROM fields"
        shown = ", ".join(f"nullif({quote(n)}, '') AS {quote(n)}" for n in names)
        parsed = con.sql(f"SELECT {shown} FROM ({struct})").to_arrow_table()
    except duckdb.Error as error:
        raise InputError(f"stream '{stream.name}': {error}") from error
    finally:
        con.unregister("fields")
    if all(column.null_count == len(column) for column in parsed.columns):
        raise InputError(
            f"stream '{stream.name}': the regular expression matches none of the first "
            f"{len(lines)} lines, for example: {lines[0][:200].decode('utf-8', 'replace').strip()}"
        )
    return _narrowed(parsed)


def _narrowed(table: pa.Table) -> tuple[Column, ...]:
    """The narrowest type that holds every sampled value of each text column."""
    con = connection()
    con.register("fields", table)
    try:
        return tuple(Column(n, _narrowest(con, n)) for n in table.column_names)
    finally:
        con.unregister("fields")


def _narrowest(con: duckdb.DuckDBPyConnection, name: str) -> str:
    for kind in _CANDIDATES:
        _, wrong = formats._cast_sql(quote(name), kind)
        sql = f"SELECT count({quote(name)}), count(*) FILTER (WHERE {wrong}) FROM fields"
        row = con.execute(sql).fetchone()
        if row is not None and row[0] and not row[1]:
            return kind
    return "VARCHAR"


def _parquet_columns(path: Path) -> tuple[Column, ...]:
    try:
        empty = pyarrow.parquet.ParquetFile(path).schema_arrow.empty_table()
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path} is not a readable parquet file: {error}") from error
    con = connection()
    con.register("fields", empty)
    try:
        rows = con.execute("DESCRIBE SELECT * FROM fields").fetchall()
    finally:
        con.unregister("fields")
    return tuple(Column(str(name), str(kind)) for name, kind, *_ in rows)
