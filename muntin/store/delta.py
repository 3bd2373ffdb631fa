"""Delta tables: appends that happen once, and reads, with errors a user can act on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, WriterProperties, write_deltalake

from muntin.errors import StateError
from muntin.kernel.engine import literal, run


def exists(path: Path) -> bool:
    return DeltaTable.is_deltatable(str(path))


def last_batch(path: Path, writer: str) -> int | None:
    """The newest batch a writer has committed to a table, or None."""
    if not exists(path):
        return None
    with _explained(path, "read"):
        return DeltaTable(str(path)).transaction_version(writer)


def schema(path: Path) -> pa.Schema:
    with _explained(path, "read"):
        return pa.schema(DeltaTable(str(path)).schema().to_arrow())


def create(path: Path, schema: pa.Schema) -> None:
    with _explained(path, "created"):
        DeltaTable.create(str(path), schema)


def write(
    path: Path,
    table: pa.Table,
    writer: str,
    batch: int,
    mode: Literal["append", "overwrite"] = "append",
    merge_schema: bool = False,
) -> None:
    """Commits rows together with who wrote them in which batch."""
    with _explained(path, "written"):
        write_deltalake(
            str(path),
            table,
            mode=mode,
            schema_mode="merge" if merge_schema else None,
            writer_properties=WriterProperties(compression="SNAPPY"),
            commit_properties=CommitProperties(app_transactions=[Transaction(writer, batch)]),
        )


def read(path: Path, sql: str) -> pa.Table:
    """The rows of `sql`, in which the table is called `stored`."""
    with _explained(path, "read"):
        files = DeltaTable(str(path)).file_uris()
    if not files:
        return schema(path).empty_table()
    listed = ", ".join(literal(file) for file in files)
    stored = f"read_parquet([{listed}], union_by_name = true, file_row_number = true)"
    return run(f"WITH stored AS (FROM {stored}) {sql}", {}, f"reading {path}")


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
