"""Delta tables: appends that happen once, and reads, with errors a user can act on."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

import pyarrow as pa
from deltalake import (
    CommitProperties,
    DeltaTable,
    Schema,
    Transaction,
    WriterProperties,
    write_deltalake,
)
from deltalake.transaction import AddAction
from pyarrow.parquet import FileMetaData, ParquetWriter, read_metadata

from muntin.errors import StateError
from muntin.kernel.engine import literal, run

_FILE_BYTES = 16 << 20
_MANY_FILES = 32
_WRITER = WriterProperties(compression="SNAPPY")
# What a reader may still be reading. Every commit lists the folder of the log.
_KEPT = "interval 1 hours"


def exists(path: Path) -> bool:
    return DeltaTable.is_deltatable(str(path))


def schema(path: Path) -> pa.Schema:
    with _explained(path, "read"):
        return pa.schema(DeltaTable(str(path)).schema().to_arrow())


def create(path: Path, schema: pa.Schema) -> None:
    kept = {"delta.deletedFileRetentionDuration": _KEPT, "delta.logRetentionDuration": _KEPT}
    with _explained(path, "created"):
        DeltaTable.create(str(path), schema, configuration=kept)


def widen(path: Path, columns: Iterable[pa.Field]) -> None:
    """Adds columns to a table."""
    with _explained(path, "changed"):
        DeltaTable(str(path)).alter.add_columns(Schema.from_arrow(pa.schema(columns)).fields)


def write(
    path: Path, table: pa.Table, writer: str, batch: int, mode: Literal["append", "overwrite"]
) -> None:
    """Commits rows together with who wrote them in which batch."""
    with _explained(path, "written"):
        write_deltalake(
            str(path),
            table,
            mode=mode,
            writer_properties=_WRITER,
            commit_properties=_by(writer, batch),
        )


def write_file(path: Path, schema: pa.Schema, batch: int, tables: Iterable[pa.Table]) -> str | None:
    """Writes rows into a file in a table's folder, which is not yet part of it.

    One table after another, so that all are never in memory at once. Without rows, no file.
    """
    name = f"part-{batch:05}-{uuid4()}.parquet"
    rows = 0
    with _explained(path, "written"):
        try:
            with ParquetWriter(path / name, schema, compression="snappy") as file:
                for table in (table for table in tables if table.num_rows):
                    rows += table.num_rows
                    file.write_table(_fitted(table, schema))
        except BaseException:
            (path / name).unlink(missing_ok=True)
            raise
        if not rows:
            (path / name).unlink()
    return name if rows else None


def add_file(path: Path, name: str, writer: str, batch: int) -> bool:
    """Makes a file part of a table, once for every batch of a writer; False if it is gone."""
    if not exists(path):
        return False
    with _explained(path, "written"):
        table = DeltaTable(str(path))
        last = table.transaction_version(writer)
        if last is None or last < batch:
            if not (path / name).exists():
                return False
            found = (path / name).stat()
            stats = json.dumps(_stats(read_metadata(path / name)))
            changed = int(found.st_mtime * 1000)
            add = AddAction(name, found.st_size, {}, changed, data_change=True, stats=stats)
            table.create_write_transaction(
                [add], "append", table.schema(), commit_properties=_by(writer, batch)
            )
    return True


def _by(writer: str, batch: int) -> CommitProperties:
    return CommitProperties(app_transactions=[Transaction(writer, batch)])


def _fitted(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The rows with all columns of a table, which may have more, and in its types."""
    columns = {
        field.name: rows[field.name].cast(field.type)
        if field.name in rows.column_names
        else pa.nulls(rows.num_rows, field.type)
        for field in schema
    }
    return pa.table(columns, schema)


def _stats(file: FileMetaData) -> dict[str, Any]:
    """What readers need to know which windows a file has."""
    told: dict[str, Any] = {"numRecords": file.num_rows, "minValues": {}, "maxValues": {}}
    names = file.schema.names
    for name in ("window_start", "window_end"):
        column = names.index(name)
        groups = [file.row_group(i).column(column).statistics for i in range(file.num_row_groups)]
        try:
            first, last = min(group.min for group in groups), max(group.max for group in groups)
        except OverflowError:  # of years that are not in Python's calendar
            continue
        told["minValues"][name], told["maxValues"][name] = _told(first), _told(last)
    return told


def _told(value: int | datetime) -> int | str:
    if isinstance(value, int):
        return value
    return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def read(path: Path, sql: str) -> pa.Table:
    """The rows of `sql`, in which the table is called `stored`."""
    with _explained(path, "read"):
        files = DeltaTable(str(path)).file_uris()
    if not files:
        return schema(path).empty_table()
    listed = ", ".join(literal(file) for file in files)
    stored = f"read_parquet([{listed}], union_by_name = true)"
    return run(f"WITH stored AS (FROM {stored}) {sql}", {}, f"reading {path}")


def compact(path: Path) -> None:
    """Merges small files into larger ones once they are many. Readers find the same rows.

    The order of rows may change. Files go when they have not been part of the table for an hour.
    """
    with _explained(path, "compacted"):
        table = DeltaTable(str(path))
        sizes = pa.table(table.get_add_actions())["size_bytes"].to_pylist()
        if sum(size < _FILE_BYTES for size in sizes) >= _MANY_FILES:
            table.optimize.compact(target_size=_FILE_BYTES, writer_properties=_WRITER)
            table.vacuum(dry_run=False, full=True)


def tidy(path: Path) -> None:
    """Removes files that an overwrite left behind, and shortens the log."""
    with _explained(path, "tidied"):
        table = DeltaTable(str(path))
        table.create_checkpoint()
        table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
        table.cleanup_metadata()


@contextmanager
def _explained(path: Path, done: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # deltalake raises plain ones too, for example from its casts
        raise StateError(f"the table {path} cannot be {done}: {error}") from error
