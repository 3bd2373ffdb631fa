"""Delta tables of windows: appends that happen once, and reads, with errors a user can act on.

Files that a merge has replaced stay for a while, for readers who have opened the table before. A
reader who was slower than that opens it again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import pyarrow as pa
from deltalake import (
    CommitProperties,
    DeltaTable,
    PostCommitHookProperties,
    Schema,
    Transaction,
    WriterProperties,
)
from deltalake.transaction import AddAction
from pyarrow.parquet import FileMetaData, ParquetWriter, read_metadata

from muntin.errors import MuntinError, StateError
from muntin.kernel.engine import literal, run
from muntin.store import disk, log

# Files smaller than this are merged when there are so many. A size between small files and large
# ones means that the large are not written again and again.
_SIZES = ((1 << 20, 32), (16 << 20, 64))
_WRITER = WriterProperties(compression="SNAPPY", max_row_group_size=1 << 16)
_SETTINGS = {  # how long what is replaced is kept
    "delta.deletedFileRetentionDuration": "interval 10 minutes",
    "delta.logRetentionDuration": "interval 10 minutes",
}
_ENTRIES_PER_SUMMARY = 16  # opening a table reads the entries since the last
# Entries must not go before what sums them up is on disk, so nothing happens by itself.
_NO_MORE = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
_ATTEMPTS = 5
T = TypeVar("T")


@dataclass(frozen=True)
class File:
    """One file of a table: between which names of windows, and between which of their ends."""

    path: str
    names: tuple[str, str] | None  # None: nobody knows
    ends: tuple[int, int] | None

    def may_have(self, name: str) -> bool:
        return self.names is None or self.names[0] <= name <= self.names[1]

    def may_end_at(self, end: int) -> bool:
        return self.ends is None or self.ends[0] <= end <= self.ends[1]

    def may_end_after(self, end: int) -> bool:
        return self.ends is None or self.ends[1] > end


@dataclass(frozen=True)
class Snapshot:
    """A table as it was at one time."""

    path: Path
    schema: pa.Schema
    files: tuple[File, ...]
    settings: Mapping[str, str]

    def query(
        self, files: Sequence[File], sql: str, beside: Mapping[str, pa.Table] | None = None
    ) -> pa.Table:
        """The rows of `sql`, in which some files of the table are called `stored`.

        Tables `beside` it have their names there too.
        """
        if not files:
            return self.schema.empty_table()
        listed = ", ".join(literal(file.path) for file in files)
        stored = f"read_parquet([{listed}], union_by_name = true)"
        with _explained(self.path, "read", files):
            return run(f"WITH stored AS (FROM {stored}) {sql}", beside or {}, "reading results")


def exists(path: Path) -> bool:
    return DeltaTable.is_deltatable(str(path))


def create(path: Path, schema: pa.Schema) -> None:
    with _explained(path, "created"):
        DeltaTable.create(
            str(path), schema, configuration=_SETTINGS, post_commithook_properties=_NO_MORE
        )


def settle(path: Path, settings: Mapping[str, str]) -> None:
    """Gives a table settings, and those that all of ours have."""
    with _explained(path, "changed"):
        table = DeltaTable(str(path))
        known = table.metadata().configuration
        new = {k: v for k, v in {**_SETTINGS, **settings}.items() if known.get(k) != v}
        if new:
            table.alter.set_table_properties(
                new, raise_if_not_exists=False, post_commithook_properties=_NO_MORE
            )


def widen(path: Path, columns: Iterable[pa.Field]) -> None:
    """Adds columns to a table."""
    with _explained(path, "changed"):
        fields = Schema.from_arrow(pa.schema(columns)).fields
        DeltaTable(str(path)).alter.add_columns(fields, post_commithook_properties=_NO_MORE)


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
                    file.write_table(fitted(table, schema))
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
    with _explained(path, "written", [File(str(path / name), None, None)]):
        table = DeltaTable(str(path))
        last = table.transaction_version(writer)
        if last is None or last < batch:
            if not (path / name).exists():
                return False
            stat = (path / name).stat()
            stats = json.dumps(_stats(read_metadata(path / name)))
            changed = int(stat.st_mtime * 1000)
            add = AddAction(name, stat.st_size, {}, changed, data_change=True, stats=stats)
            table.create_write_transaction(
                [add],
                "append",
                table.schema(),
                commit_properties=_by(writer, batch),
                post_commithook_properties=_NO_MORE,
            )
            table.update_incremental()
            if table.version() % _ENTRIES_PER_SUMMARY == 0:
                table.create_checkpoint()
    return True


def last_batch(path: Path, writer: str) -> int:
    """The last batch of a writer that a table has, or -1."""
    with _explained(path, "read"):
        last = DeltaTable(str(path)).transaction_version(writer)
    return -1 if last is None else last


def _by(writer: str, batch: int) -> CommitProperties:
    return CommitProperties(app_transactions=[Transaction(writer, batch)])


def fitted(rows: pa.Table, schema: pa.Schema) -> pa.Table:
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
    for name in ("window_name", "window_start", "window_end"):
        column = names.index(name)
        groups = [file.row_group(i).column(column).statistics for i in range(file.num_row_groups)]
        try:
            first, last = min(group.min for group in groups), max(group.max for group in groups)
        except OverflowError:  # of years that are not in Python's calendar
            continue
        told["minValues"][name], told["maxValues"][name] = _told(first), _told(last)
    return told


def _told(value: int | str | datetime) -> int | str:
    if isinstance(value, int | str):
        return value
    return f"{value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec='microseconds')}Z"


def read(path: Path, use: Callable[[Snapshot], T]) -> T:
    """What `use` makes of a table, as it is now.

    It is given the table anew if a file goes meanwhile.
    """
    for attempt in range(_ATTEMPTS):
        table: Snapshot | None = None
        try:
            table = snapshot(path)
            return use(table)
        except MuntinError:
            gone = table is None or any(not Path(file.path).exists() for file in table.files)
            if not gone or attempt == _ATTEMPTS - 1 or not exists(path):
                raise
    raise AssertionError("unreachable")


def snapshot(path: Path) -> Snapshot:
    with _explained(path, "read"):
        table = DeltaTable(str(path))
        schema = pa.schema(table.schema().to_arrow())
        actions = pa.table(table.get_add_actions(flatten=True))
        return Snapshot(path, schema, tuple(_files(path, actions)), table.metadata().configuration)


def _files(path: Path, actions: pa.Table) -> Iterator[File]:
    def column(name: str) -> list[Any]:
        if name not in actions.column_names:
            return [None] * actions.num_rows
        array = actions[name]
        values: list[Any] = _as_numbers(array).to_pylist()
        return values

    names = zip(column("min.window_name"), column("max.window_name"), strict=True)
    ends = zip(column("min.window_end"), column("max.window_end"), strict=True)
    for file, name, end in zip(column("path"), names, ends, strict=True):
        yield File(str(path / file), None if None in name else name, None if None in end else end)


def _as_numbers(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Times as microseconds: years may be beyond Python's calendar."""
    if not pa.types.is_timestamp(column.type):
        return column
    return column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())


def compact(path: Path) -> None:
    """Merges small files into larger ones once they are many. Readers find the same rows.

    The order of rows may change. Files go when they have not been part of the table for a while,
    and when what is in their place is on disk.
    """
    with _explained(path, "compacted"):
        table = DeltaTable(str(path))
        before = log.version(path)
        for size, many in _SIZES:
            sizes = pa.table(table.get_add_actions())["size_bytes"].to_pylist()
            if sum(each < size for each in sizes) >= many:
                table.optimize.compact(
                    target_size=size, writer_properties=_WRITER, post_commithook_properties=_NO_MORE
                )
        disk.sync([*log.parts_since(path, before), path])
        disk.sync([*log.files_since(path, before), log.folder_of(path)])
        table.vacuum(dry_run=False, full=True, post_commithook_properties=_NO_MORE)
        table.create_checkpoint()
        disk.sync([*log.files_since(path, before), log.folder_of(path)])
        table.cleanup_metadata()


@contextmanager
def _explained(path: Path, done: str, files: Sequence[File] = ()) -> Iterator[None]:
    """Says which table was to be used, and which of its files is to blame if one is."""
    try:
        yield
    except Exception as error:  # deltalake raises plain ones too, for example from its casts
        begin = f"the table {path} cannot be {done}"
        file = log.damaged(path, (Path(each.path) for each in files))
        if file is None:
            raise StateError(f"{begin}: {_first_line(error)}") from error
        raise StateError(
            f"{begin}: {file} is damaged or gone; put back a copy of it, or move {path} away, with "
            "the results up to now, and a new table begins"
        ) from error


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
