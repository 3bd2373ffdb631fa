"""Delta tables of windows: appends that happen once, and reads, with errors a user can act on.

Files that a merge has replaced stay for a while, for readers who have opened the table before. A
reader who was slower than that opens it again.
"""

from __future__ import annotations

import json
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path
from time import time
from typing import Any, Concatenate, ParamSpec, TypeVar
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
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.fs import DeltaStorageHandler
from deltalake.transaction import AddAction
from pyarrow import dataset, fs
from pyarrow.parquet import FileMetaData, ParquetFile, ParquetWriter, read_metadata

from muntin.errors import MuntinError, StateError, StorageError
from muntin.kernel.engine import literal, run
from muntin.store import disk, entries, log
from muntin.store.patience import unanswered
from muntin.store.storage import LocalFolder, Storage

# Files smaller than this are merged when there are so many. A size between small files and large
# ones means that the large are not written again and again.
_SIZES = ((1 << 20, 32), (16 << 20, 64))
_VERIFIED = dataset.ParquetFileFormat(
    default_fragment_scan_options=dataset.ParquetFragmentScanOptions(
        page_checksum_verification=True
    )
)
_WRITER = WriterProperties(compression="SNAPPY", max_row_group_size=1 << 16)
_SETTINGS = {  # how long what is replaced is kept
    "delta.deletedFileRetentionDuration": "interval 10 minutes",
    "delta.logRetentionDuration": "interval 10 minutes",
}
FOOTER = "muntin.footer"  # what a log calls the checksum of the end of a file
_FOOTER_END = 8  # bytes behind a footer: its length, and what every such file ends with
ENTRIES_PER_SUMMARY = 16  # opening a table reads the entries since the last
# Entries must not go before what sums them up is on disk, so nothing happens by itself.
_NO_MORE = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
_ATTEMPTS = 5
P = ParamSpec("P")
_MERGED = ".snappy.parquet"  # how files end that deltalake has merged, without checksums
_MOST_WHOLE = 1 << 12
_whole: dict[tuple[str, int, int], None] = {}  # files that this process has looked at
T = TypeVar("T")


def _patient(use: Callable[Concatenate[Storage, P], T]) -> Callable[Concatenate[Storage, P], T]:
    """Has what uses a table done again after faults that pass, by who knows which do."""

    @wraps(use)
    def patient(place: Storage, /, *args: P.args, **named: P.kwargs) -> T:
        return place.patiently(lambda: use(place, *args, **named))

    return patient


@dataclass(frozen=True)
class File:
    """One file of a table: between which names of windows, and between which of their ends."""

    name: str
    names: tuple[str, str] | None  # None: nobody knows
    ends: tuple[int, int] | None
    rows: int = 0
    size: int = 0

    def may_have(self, name: str) -> bool:
        return self.names is None or self.names[0] <= name <= self.names[1]

    def may_end_at(self, end: int) -> bool:
        return self.ends is None or self.ends[0] <= end <= self.ends[1]

    def may_end_after(self, end: int) -> bool:
        return self.ends is None or self.ends[1] > end


@dataclass(frozen=True)
class Snapshot:
    """A table as it was at one time."""

    place: Storage
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
        return self.place.patiently(lambda: self._queried(files, sql, beside or {}))

    def _queried(self, files: Sequence[File], sql: str, beside: Mapping[str, pa.Table]) -> pa.Table:
        with explained(self.place, "read", *(file.name for file in files)):
            if isinstance(self.place, LocalFolder):
                listed = ", ".join(literal(self.place.where(file.name)) for file in files)
                stored = f"read_parquet([{listed}], union_by_name = true)"
                return run(f"WITH stored AS (FROM {stored}) {sql}", beside, "reading results")
            tables = {**beside, "stored": self._rows(files, sql)}
            return run(sql, tables, "reading results")

    def require_whole(self, files: Sequence[File]) -> None:
        """Raises a StateError if pages of files are not as they were written.

        DuckDB does not look at their checksums. A file is looked at once by a process.
        """
        if not isinstance(self.place, LocalFolder):
            return  # who reads from there looks at them
        for path in (self.place.path(file.name) for file in files):
            with explained(self.place, "read", path.name):
                known = path.stat()
                key = str(path), known.st_mtime_ns, known.st_size
                if key not in _whole and not path.name.endswith(_MERGED):
                    with ParquetFile(path, page_checksum_verification=True) as file:
                        deque(file.iter_batches(1 << 16), maxlen=0)
                    _whole[key] = None
                    while len(_whole) > _MOST_WHOLE:
                        _whole.pop(next(iter(_whole)), None)

    def _rows(self, files: Sequence[File], sql: str) -> pa.Table:
        """Rows that DuckDB would need extensions to reach, with the columns that are asked for."""
        handler = DeltaStorageHandler(self.place.where(), self.place.options())
        names, system = [file.name for file in files], fs.PyFileSystem(handler)
        found = dataset.dataset(names, self.schema, format=_VERIFIED, filesystem=system)
        return found.to_table(None if "*" in sql else [n for n in self.schema.names if n in sql])


@_patient
def exists(place: Storage) -> bool:
    with explained(place, "found"):
        return DeltaTable.is_deltatable(place.where(), place.options())


def _opened(place: Storage) -> DeltaTable:
    if isinstance(place, LocalFolder):
        log.require_entries(place.path())
    return DeltaTable(place.where(), storage_options=place.options())


@_patient
def create(place: Storage, schema: pa.Schema, settings: Mapping[str, str]) -> None:
    """Makes an empty table, with these settings beside those that all of ours have."""
    with explained(place, "created"):
        is_here, every = isinstance(place, LocalFolder), {**_SETTINGS, **settings}
        if not is_here or not entries.create(Path(place.where()), schema, every):
            try:
                DeltaTable.create(
                    place.where(),
                    schema,
                    configuration=_SETTINGS,
                    storage_options=place.options(),
                    post_commithook_properties=_NO_MORE,
                )
            except DeltaError:  # perhaps by itself: a storage has lost its answer
                if is_here or not exists(place):
                    raise
            settle(place, settings)  # of which creating takes none that are not Delta's


@_patient
def settle(place: Storage, settings: Mapping[str, str]) -> None:
    """Gives a table settings, and those that all of ours have."""
    with explained(place, "changed"):
        for left in reversed(range(_ATTEMPTS)):
            table = _opened(place)
            known = table.metadata().configuration
            new = {k: v for k, v in {**_SETTINGS, **settings}.items() if known.get(k) != v}
            if not new:
                return
            try:
                table.alter.set_table_properties(
                    new, raise_if_not_exists=False, post_commithook_properties=_NO_MORE
                )
                return
            except CommitFailedError:  # perhaps by itself: a storage has lost its answer
                if not left:
                    raise


@_patient
def widen(place: Storage, columns: Iterable[pa.Field]) -> None:
    """Adds columns to a table."""
    wanted = pa.schema(columns)
    with explained(place, "changed"):
        for left in reversed(range(_ATTEMPTS)):
            table = _opened(place)
            known = {field.name for field in table.schema().fields}
            new = pa.schema(field for field in wanted if field.name not in known)
            if not new:
                return
            try:
                fields = Schema.from_arrow(new).fields
                table.alter.add_columns(fields, post_commithook_properties=_NO_MORE)
                return
            except CommitFailedError:  # as above
                if not left:
                    raise


def write_file(
    place: Storage, schema: pa.Schema, batch: int, tables: Iterable[pa.Table]
) -> str | None:
    """Writes rows into a file in a table's folder, which is not yet part of it.

    One table after another, so that all are never in memory at once. Without rows, no file.
    """
    name = f"part-{batch:05}-{uuid4()}.parquet"
    rows = 0
    with explained(place, "written"), place.output(name) as path:
        with ParquetWriter(path, schema, compression="snappy", write_page_checksum=True) as file:
            for table in (table for table in tables if table.num_rows):
                rows += table.num_rows
                file.write_table(fitted(table, schema))
        if not rows:
            path.unlink()
    return name if rows else None


@_patient
def add_files(
    place: Storage, names: Sequence[str], writer: str, batch: int, version: int | None = None
) -> int | None:
    """Makes files part of a table, once for every batch of a writer; None if one is gone.

    Returns the version that the table has then. Who knows the `version` that it had, and that it
    does not have the batch, says so: then it need not be opened, unless others have changed it, and
    who says so sums up entries when there is time.
    """
    with explained(place, "written", *names):
        are_there = all(place.size(name) is not None for name in names)
        if are_there and version is not None and isinstance(place, LocalFolder):
            told = [_file(place, name) for name in names]
            if entries.add(place.path(), version + 1, told, writer, batch):
                return version + 1
        if not exists(place):
            return None
        for left in reversed(range(_ATTEMPTS)):
            table = _opened(place)
            last = table.transaction_version(writer)
            if last is not None and last >= batch:
                break
            if not are_there:
                return None
            try:
                table.create_write_transaction(
                    [_added(place, name) for name in names],
                    "append",
                    table.schema(),
                    commit_properties=_by(writer, batch),
                    post_commithook_properties=_NO_MORE,
                )
            except CommitFailedError:  # perhaps by itself: a storage has lost its answer
                if not left:
                    raise
                continue
            table.update_incremental()
            if table.version() % ENTRIES_PER_SUMMARY == 0:
                table.create_checkpoint()
            break
        return table.version()


@_patient
def sum_up(place: Storage) -> None:
    """Sums up the entries of a table's log, so that it is opened as fast as when there were few."""
    with explained(place, "summed up"):
        _opened(place).create_checkpoint()


def _added(place: Storage, name: str) -> AddAction:
    file = _file(place, name)
    return AddAction(
        name, file["size"], {}, file["modificationTime"], data_change=True, stats=file["stats"]
    )


def _file(place: Storage, name: str) -> dict[str, Any]:
    """What an entry says of a file."""
    with place.open(name) as file:
        size, stats = file.size(), _stats(read_metadata(file))
        # Among statistics, as the library takes nothing else: readers skip what they do not know.
        told = json.dumps(stats | {FOOTER: footer_checksum(file)})
    return {"path": name, "size": size, "modificationTime": int(1000 * time()), "stats": told}


def footer_checksum(file: pa.NativeFile) -> str:
    """That of the end of a Parquet file, where columns are described; pages have their own."""
    file.seek(max(0, file.size() - _FOOTER_END))
    length = int.from_bytes(file.read(4), "little")
    file.seek(max(0, file.size() - _FOOTER_END - length))
    return f"{zlib.crc32(file.read()):08x}"


@_patient
def last_batch(place: Storage, writer: str) -> int:
    """The last batch of a writer that a table has, or -1."""
    with explained(place, "read"):
        last = _opened(place).transaction_version(writer)
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


def read(place: Storage, use: Callable[[Snapshot], T]) -> T:
    """What `use` makes of a table, as it is now.

    It is given the table anew if a file goes meanwhile.
    """
    for attempt in range(_ATTEMPTS):
        table: Snapshot | None = None
        try:
            table = snapshot(place)
            return use(table)
        except MuntinError:
            gone = table is None or any(place.size(file.name) is None for file in table.files)
            if not gone or attempt == _ATTEMPTS - 1 or not exists(place):
                raise
    raise AssertionError("unreachable")


@_patient
def snapshot(place: Storage) -> Snapshot:
    with explained(place, "read"):
        if isinstance(place, LocalFolder):
            log.require_summary(place.path())
        table = _opened(place)
        schema = pa.schema(table.schema().to_arrow())
        actions = pa.table(table.get_add_actions(flatten=True))
        return Snapshot(place, schema, tuple(_files(actions)), table.metadata().configuration)


def _files(actions: pa.Table) -> Iterator[File]:
    def column(name: str) -> list[Any]:
        if name not in actions.column_names:
            return [None] * actions.num_rows
        array = actions[name]
        values: list[Any] = _as_numbers(array).to_pylist()
        return values

    names = zip(column("min.window_name"), column("max.window_name"), strict=True)
    ends = zip(column("min.window_end"), column("max.window_end"), strict=True)
    sizes = zip(column("num_records"), column("size_bytes"), strict=True)
    for file, name, end, (rows, size) in zip(column("path"), names, ends, sizes, strict=True):
        known = None if None in name else name, None if None in end else end
        yield File(file, *known, rows or 0, size or 0)


def _as_numbers(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Times as microseconds: years may be beyond Python's calendar."""
    if not pa.types.is_timestamp(column.type):
        return column
    return column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())


@_patient
def compact(place: Storage) -> None:
    """Merges small files into larger ones once they are many. Readers find the same rows.

    The order of rows may change. Files go when they have not been part of the table for a while,
    and when what is in their place is on disk. What is overtaken is left to the next time.
    """
    with explained(place, "compacted"), suppress(CommitFailedError):
        table = _opened(place)
        path = place.path() if isinstance(place, LocalFolder) else None
        before = -1 if path is None else log.version(path)
        for size, many in _SIZES:
            sizes = pa.table(table.get_add_actions())["size_bytes"].to_pylist()
            if sum(each < size for each in sizes) >= many:
                table.optimize.compact(
                    target_size=size, writer_properties=_WRITER, post_commithook_properties=_NO_MORE
                )
        if path is not None:
            disk.sync([*log.parts_since(path, before), path])
            disk.sync([*log.files_since(path, before), log.folder_of(path)])
        table.vacuum(dry_run=False, full=True, post_commithook_properties=_NO_MORE)
        table.create_checkpoint()
        if path is not None:
            disk.sync([*log.files_since(path, before), log.folder_of(path)])
        table.cleanup_metadata()


@contextmanager
def explained(place: Storage, done: str, *names: str) -> Iterator[None]:
    """Says which table was to be used, and which of its files is to blame if one is."""
    try:
        yield
    except StorageError:
        raise
    except BaseException as error:
        # deltalake raises plain ones too, for example from its casts; and where it panics, one that
        # is no Exception.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        begin = f"the table {place} cannot be {done}"
        file = None
        if isinstance(place, LocalFolder):
            file = log.damaged(place.path(), map(place.path, names))
        if file is None:
            said = str(error)
            away = "error sending request" in said  # as the library calls any such failure
            raise StateError(
                f"{begin}: {unanswered(said) if away else _first_line(error)}"
            ) from error
        raise StateError(
            f"{begin}: {file} is damaged or gone; put back a copy of it, or move {place} away, "
            "with the results up to now, and a new table begins"
        ) from error


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
