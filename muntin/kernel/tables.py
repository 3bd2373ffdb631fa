"""Tables that jobs join: the rows of a file, in versions that follow each other.

A run reads a file when it has changed, keeps what it has read, and says from which position on that
is joined: so all records of a pane, and all tasks, see the same rows. Without a run there is the
file as it is now.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa

from muntin.errors import EngineError, InputError, StateError
from muntin.kernel.engine import column_types, is_confined, literal, quote, run
from muntin.model.jobs import Job
from muntin.model.records import NOWHERE, TIME, Axis, Column
from muntin.model.shapes import Shape
from muntin.model.tables import OF_JOB, Table, TableVersion

KINDS = ("csv", "parquet", "json", "delta")
_ENDINGS = {".csv": "csv", ".tsv": "csv", ".parquet": "parquet",
            ".json": "json", ".jsonl": "json", ".ndjson": "json"}  # fmt: skip
_MOST_HELD = 32  # versions of tables in one process
_held: dict[object, pa.Table] = {}  # versions that this process was given
_read_again: dict[str, pa.Table] = {}  # and others, by the file they are in
_lock = threading.Lock()
_LAST = (1 << 63) - 1


def kind_of_file(path: str) -> str | None:
    """What a file seems to hold, by its name; a folder with a log is a Delta table."""
    if (Path(path) / "_delta_log").is_dir():
        return "delta"
    return _ENDINGS.get(Path(path.removesuffix(".gz")).suffix.lower())


def columns_of(table: Table) -> tuple[Column, ...]:
    """The columns that a file has now, of types that all of its rows fit."""
    return tuple(Column(name, kind) for name, kind in column_types(_read(table)).items())


def read_table(table: Table) -> pa.Table:
    """The rows of a table as its file has them now; of a job there are none before a result."""
    if is_confined():
        raise InputError(f"table '{table.name}': an agent reads no files but its logs")
    return _read(table)


def mark_of(table: Table) -> tuple[int, ...]:
    """Tells the file of a table from one that has taken its place; nothing if there is none."""
    if table.kind == OF_JOB:
        return ()
    path = Path(table.path)
    if table.kind == "delta":
        path = max((path / "_delta_log").glob("*.json"), default=path)
    try:
        stat = path.stat()
    except OSError:
        return ()
    return stat.st_mtime_ns, stat.st_size, stat.st_ino


def read_with(read: Callable[[str], pa.Table]) -> None:
    """Says how rows are read that a run has kept, by their place: they may be anywhere.

    A StateError tells which file is damaged or gone.
    """
    global _read_kept
    _read_kept = read


def _not_told(place: str) -> pa.Table:
    raise AssertionError(f"nobody has said how to read {place}")


_read_kept: Callable[[str], pa.Table] = _not_told


def hold(table: Table, version: TableVersion, rows: pa.Table) -> None:
    """Keeps the rows of a version in this process."""
    with _lock:
        _held[_place(table, version)] = rows


def let_go(table: Table, version: TableVersion) -> None:
    """Forgets rows that this process has kept."""
    with _lock:
        _held.pop(_place(table, version), None)


def _place(table: Table, version: TableVersion) -> object:
    return version.path or (table.path, table.kind, table.columns, version.number, version.mark)


def rows_of(table: Table, position: int = _LAST, axis: Axis = TIME, pane: int = 0) -> pa.Table:
    """The rows of a table that are joined with what is at a position."""
    begun = [v for v in table.versions if v.begins(axis, pane) <= position]
    if not table.versions:
        return read_table(table)
    return version_rows(table, (begun or table.versions)[-1 if begun else 0])


def results_between(job: Job, start: int, end: int) -> list[tuple[Table, TableVersion]]:
    """The results of jobs that a window of a job is made with, of positions `[start, end)`.

    Records are joined with those in force at their positions, groups with the last.
    """
    axis, pane, found = job.shape.axis, job.shape.pane, []
    for number, table in enumerate(job.tables):
        begins = [version.begins(axis, pane) for version in table.versions]
        first = start if number < len(job.shape.joins) else end - 1
        for version, lower, upper in zip(table.versions, begins, [*begins[1:], _LAST], strict=True):
            if version.result is not None and lower < end and upper > first:
                found.append((table, version))
    return found


def version_rows(table: Table, version: TableVersion) -> pa.Table:
    """The rows of one version."""
    place, path = _place(table, version), version.path
    with _lock:
        if place in _held:
            return _held[place]
        assert path is not None, f"the rows of {table.name} are in another process"
        if is_confined():
            raise InputError(f"table '{table.name}': an agent reads no files but its logs")
        if path not in _read_again:
            if len(_read_again) >= _MOST_HELD:
                _read_again.pop(next(iter(_read_again)))
            try:
                _read_again[path] = _read_kept(path)
            except StateError as error:
                told = f"the rows of table '{table.name}' cannot be read as the run has kept them"
                raise StateError(
                    f"{told}: {error}; put back a copy of that file, or remove the checkpoints of "
                    "its stream to read the logs again: windows that are stored are not stored "
                    "twice"
                ) from error
        return _read_again[path]


def joined_rows(shape: Shape, position: int = _LAST) -> dict[str, pa.Table]:
    """The rows of the tables that records at a position are joined with, by their relations."""
    return {
        join.relation: rows_of(join.table, position, shape.axis, shape.pane) for join in shape.joins
    }


def by_version(shape: Shape, records: pa.Table) -> Iterator[tuple[pa.Table, dict[str, pa.Table]]]:
    """Records with the rows that they are joined with, where these change in several parts."""
    begins = {
        version.begins(shape.axis, shape.pane)
        for join in shape.joins
        for version in join.table.versions
    }
    bounds = [NOWHERE, *sorted(begins - {NOWHERE}), _LAST]
    if len(bounds) == 2:
        yield records, joined_rows(shape)
        return
    positions = records.column(shape.axis.column).to_numpy()
    for lower, upper in pairwise(bounds):
        inside = (positions >= lower) & (positions < upper)
        if inside.all():
            yield records, joined_rows(shape, lower)
            return
        if inside.any():
            yield records.filter(pa.array(np.asarray(inside))), joined_rows(shape, lower)


def _read(table: Table) -> pa.Table:
    kinds = {c.name: c.type for c in table.columns}
    if table.kind == OF_JOB:
        nothing = ", ".join(f"NULL::{kind} AS {quote(name)}" for name, kind in kinds.items())
        return run(f"SELECT {nothing} LIMIT 0", {}, f"describing {table.path}")
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
