"""Tables that jobs join: the rows of a file, read again when it has changed.

A process reads a file once, and looks whether it is another each time it needs the rows. What
cannot be read any more, or does not fit the columns any more, is told of, and the rows from before
stay.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from muntin.errors import EngineError, InputError
from muntin.kernel.engine import column_types, is_confined, literal, quote, run
from muntin.model import Column, Shape, Table

KINDS = ("csv", "parquet", "json", "delta")
_ENDINGS = {".csv": "csv", ".tsv": "csv", ".parquet": "parquet",
            ".json": "json", ".jsonl": "json", ".ndjson": "json"}  # fmt: skip
_Mark = tuple[int, ...]  # of a file: another one when it has changed
_held: dict[Table, tuple[_Mark, pa.Table]] = {}
_lock = threading.Lock()


def kind_of_file(path: str) -> str | None:
    """What a file seems to hold, by its name; a folder with a log is a Delta table."""
    if (Path(path) / "_delta_log").is_dir():
        return "delta"
    return _ENDINGS.get(Path(path.removesuffix(".gz")).suffix.lower())


def columns_of(table: Table) -> tuple[Column, ...]:
    """The columns that a file has now, of types that all of its rows fit."""
    return tuple(Column(name, kind) for name, kind in column_types(_read(table)).items())


def rows_of(table: Table) -> pa.Table:
    """The rows of a table as its file has them now."""
    if is_confined():
        raise InputError(f"table '{table.name}': an agent reads no files but its logs")
    with _lock:
        mark, rows = _held.get(table, ((), None))
        if rows is None:
            _held[table] = _mark(table), _read(table)
        elif (now := _mark(table)) != mark:
            _held[table] = now, _read_again(table, rows)
        return _held[table][1]


def joined_rows(shape: Shape) -> dict[str, pa.Table]:
    """The rows of the tables that a shape's records are joined with, by their relations."""
    return {join.relation: rows_of(join.table) for join in shape.joins}


def _read_again(table: Table, rows: pa.Table) -> pa.Table:
    try:
        return _read(table)
    except InputError as error:
        logging.getLogger("muntin").warning("%s; the rows from before stay", error)
        return rows


def _mark(table: Table) -> _Mark:
    path = Path(table.path)
    if table.kind == "delta":
        path = max((path / "_delta_log").glob("*.json"), default=path)
    try:
        stat = path.stat()
    except OSError:
        return (0,)
    return stat.st_mtime_ns, stat.st_size, stat.st_ino


def _read(table: Table) -> pa.Table:
    kinds = {c.name: c.type for c in table.columns}
    doing = f"reading table '{table.name}'"
    try:
        if table.kind == "delta":
            source, tables = "delta", {"delta": _delta(table)}
        else:
            source, tables = _file_sql(table, kinds), {}
        casts = (f"CAST({quote(name)} AS {kind}) AS {quote(name)}" for name, kind in kinds.items())
        return run(f"SELECT {', '.join(casts) or '*'} FROM {source}", tables, doing)
    except EngineError as error:
        reason = str(error.reason).partition("\n")[0]
        raise InputError(f"table '{table.name}': {table.path} cannot be read: {reason}") from error


def _file_sql(table: Table, kinds: Mapping[str, str]) -> str:
    path = literal(table.path)
    if table.kind == "csv":
        types = ", ".join(f"{literal(name)}: {literal(kind)}" for name, kind in kinds.items())
        types = f", types = {{{types}}}" if types else ""
        return f"read_csv({path}, header = true, sample_size = -1{types})"
    return f"read_parquet({path})" if table.kind == "parquet" else f"read_json({path})"


def _delta(table: Table) -> pa.Table:
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    try:
        return DeltaTable(table.path).to_pyarrow_table()
    except (DeltaError, OSError) as error:
        raise InputError(
            f"table '{table.name}': {table.path} cannot be read as a Delta table: {error}"
        ) from error
