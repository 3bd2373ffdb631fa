"""Files of a job's rows: tasks write them, and whoever needs rows again reads them, piece by piece.

A file is in the folder of its table before the table knows it. Rows are numbered, because a table
has no order of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.parquet import ParquetFile

from muntin.run.many import Part
from muntin.store import delta
from muntin.store.storage import Storage

NUMBER = pa.field("row_number", pa.int64())
_ROWS_AT_ONCE = 1 << 16  # that are read


class Numbered:
    """Tables with the number of each row, and what they have had so far."""

    def __init__(self, tables: Iterable[tuple[int, pa.Table]]) -> None:
        """Each table comes with the number of its first row."""
        self._tables = tables
        self.rows = 0
        self.first: int | None = None
        self.names: set[str] = set()  # of windows

    def __iter__(self) -> Iterator[pa.Table]:
        for first, table in self._tables:
            self.names.update(table["window_name"].unique().to_pylist())
            self.rows += table.num_rows
            self.first = first if self.first is None else min(first, self.first)
            yield table.append_column(NUMBER, pa.array(np.arange(first, first + table.num_rows)))


def in_order(tables: Iterable[pa.Table], first: int = 0) -> Iterator[tuple[int, pa.Table]]:
    """Tables of which each follows on the one before, with the numbers of their first rows."""
    for table in tables:
        yield first, table
        first += table.num_rows


@dataclass(frozen=True)
class PartWriter:
    """Writes files of one batch into the folder of a table, from whatever process."""

    place: Storage
    schema: pa.Schema
    batch: int

    def write(self, numbered: Iterable[tuple[int, pa.Table]]) -> Part | None:
        """Stores rows in a file that is on disk then; without rows there is none."""
        tables = Numbered(numbered)
        name = delta.write_file(self.place, self.schema, self.batch, tables)
        if name is None:
            return None
        self.place.sync([name])
        size = self.place.size(name) or 0
        return Part(name, tables.rows, size, tables.first or 0, tuple(sorted(tables.names)))


@dataclass(frozen=True)
class FileParts:
    """Files of stored rows in the order of their numbers."""

    place: Storage
    names: tuple[str, ...]

    def tables(self, window: tuple[str, int, int] | None = None) -> Iterator[pa.Table]:
        """The rows as they are stored, some at a time; of one window, if it is given."""
        for name in self.names:
            with _opened(self.place, name) as file:
                for batch in file.iter_batches(_ROWS_AT_ONCE):
                    table = pa.Table.from_batches([batch]).drop_columns([NUMBER.name])
                    table = table if window is None else _of(table, *window)
                    if table.num_rows:
                        yield table


def rows_of(
    place: Storage, schema: pa.Schema, name: str, after: datetime | None = None
) -> Iterator[pa.Table]:
    """Some columns of a file of a table, some rows at a time; one that it has not got is NULL.

    Rows of which it is known that they left no later than `after` a time may be left out.
    """
    with _opened(place, name) as file:
        groups = [n for n in range(file.num_row_groups) if _may_have(file, n, after)]
        there = [field.name for field in schema if field.name in file.schema_arrow.names]
        for batch in file.iter_batches(_ROWS_AT_ONCE, groups, there):
            yield delta.fitted(pa.Table.from_batches([batch]), schema)


@contextmanager
def _opened(place: Storage, name: str) -> Iterator[ParquetFile]:
    with (
        delta.explained(place, "read", name),
        place.open(name) as source,
        ParquetFile(source, page_checksum_verification=True) as file,
    ):
        yield file


def _may_have(file: ParquetFile, group: int, after: datetime | None) -> bool:
    """Whether a group of rows may have some that left after a time."""
    told = file.metadata.row_group(group)
    for number in range(told.num_columns if after is not None else 0):
        column = told.column(number)
        if column.path_in_schema == "emitted_at" and column.is_stats_set:
            return bool(column.statistics.max > after)
    return True


def _of(table: pa.Table, name: str, start: int, end: int) -> pa.Table:
    """The rows of one window."""
    same = pc.equal(table["window_name"], name)
    for column, position in (("window_start", start), ("window_end", end)):
        same = pc.and_(same, pc.equal(table[column].cast(pa.int64()), position))
    return table.filter(same)
