"""Tables of files: what they hold, and when they are read again."""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from muntin.errors import InputError
from muntin.kernel import engine
from muntin.kernel.tables import columns_of, kind_of_file, rows_of
from muntin.model import Column, Table

ROWS = pa.table({"id": ["a", "b"], "w": [1, 2]})


def written(folder: Path, kind: str) -> Table:
    path = folder / f"t.{kind}"
    if kind == "csv":
        path.write_text("id,w\na,1\nb,2\n")
    elif kind == "parquet":
        pq.write_table(ROWS, path)
    elif kind == "json":
        path.write_text('{"id": "a", "w": 1}\n{"id": "b", "w": 2}\n')
    else:
        write_deltalake(str(path), ROWS)
    table = Table("t", str(path), kind)
    return replace(table, columns=columns_of(table))


@pytest.mark.parametrize("kind", ["csv", "parquet", "json", "delta"])
def test_rows_of_every_kind(tmp_path: Path, kind: str) -> None:
    table = written(tmp_path, kind)
    assert table.columns == (Column("id", "VARCHAR"), Column("w", "BIGINT"))
    assert rows_of(table).to_pylist() == ROWS.to_pylist()
    assert kind_of_file(table.path) == kind
    assert rows_of(table) is rows_of(table)


def touched(path: Path) -> None:
    """A clock may be too coarse to tell two writes apart."""
    later = path.stat().st_mtime_ns + 1_000_000_000
    os.utime(path, ns=(later, later))


def test_a_file_that_has_changed_is_read_again(tmp_path: Path) -> None:
    table = written(tmp_path, "csv")
    assert rows_of(table).num_rows == 2
    Path(table.path).write_text("id,w\nc,3\n")
    touched(Path(table.path))
    assert rows_of(table).to_pylist() == [{"id": "c", "w": 3}]


def test_a_delta_table_that_has_changed_is_read_again(tmp_path: Path) -> None:
    table = written(tmp_path, "delta")
    assert rows_of(table).num_rows == 2
    write_deltalake(table.path, ROWS, mode="append")
    assert rows_of(table).num_rows == 4


@pytest.mark.parametrize("text", ["id,w\nc,many\n", "id\nc\n", None])
def test_what_cannot_be_read_any_more_is_told_of_and_the_rows_stay(
    tmp_path: Path, text: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    table = written(tmp_path, "csv")
    before = rows_of(table)
    if text is None:
        Path(table.path).unlink()
    else:
        Path(table.path).write_text(text)
        touched(Path(table.path))
    with caplog.at_level(logging.WARNING):
        assert rows_of(table) is before
        assert rows_of(table) is before
    (record,) = caplog.records
    assert record.message.startswith(f"table 't': {table.path} cannot be read: ")
    assert record.message.endswith("; the rows from before stay")


def test_declared_types_are_those_of_the_text(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("id\n007\n")
    table = Table("t", str(tmp_path / "t.csv"), "csv", (Column("id", "VARCHAR"),))
    assert rows_of(table).to_pylist() == [{"id": "007"}]


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot be read: .*No files found"):
        columns_of(Table("t", str(tmp_path / "none.csv"), "csv"))
    with pytest.raises(InputError, match="cannot be read as a Delta table"):
        columns_of(Table("t", str(tmp_path / "none"), "delta"))


def test_an_agent_reads_no_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = written(tmp_path, "delta")
    monkeypatch.setattr(engine, "_memory", 1 << 30)
    with pytest.raises(InputError, match="an agent reads no files but its logs"):
        rows_of(table)
