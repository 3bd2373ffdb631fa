"""Tables of files: what they hold, and when they are read again."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from muntin.errors import InputError
from muntin.kernel import engine
from muntin.kernel.tables import columns_of, hold, kind_of_file, let_go, mark_of, rows_of
from muntin.model.records import TIME, Column
from muntin.model.tables import Table, TableVersion

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


def touched(path: Path) -> None:
    """A clock may be too coarse to tell two writes apart."""
    later = path.stat().st_mtime_ns + 1_000_000_000
    os.utime(path, ns=(later, later))


def test_a_file_that_has_changed_has_another_mark(tmp_path: Path) -> None:
    table = written(tmp_path, "csv")
    before = mark_of(table)
    assert before == mark_of(table)
    Path(table.path).write_text("id,w\nc,3\n")
    touched(Path(table.path))
    assert mark_of(table) != before
    assert rows_of(table).to_pylist() == [{"id": "c", "w": 3}]
    Path(table.path).unlink()
    assert mark_of(table) == ()


def test_a_delta_table_that_has_changed_has_another_mark(tmp_path: Path) -> None:
    table = written(tmp_path, "delta")
    before = mark_of(table)
    write_deltalake(table.path, ROWS, mode="append")
    assert mark_of(table) != before
    assert rows_of(table).num_rows == 4


def test_versions_are_joined_from_a_pane_on(tmp_path: Path) -> None:
    table = written(tmp_path, "csv")
    first, second = TableVersion(0, (1,)), TableVersion(1, (2,), ((TIME.column, 15),))
    hold(table, first, ROWS)
    hold(table, second, ROWS.slice(1))
    table = replace(table, versions=(first, second))
    assert [rows_of(table, at, TIME, 10).num_rows for at in (-5, 15, 19, 20)] == [2, 2, 2, 1]
    assert [rows_of(table, at).num_rows for at in (14, 15)] == [2, 1]
    let_go(table, first)
    with pytest.raises(AssertionError):
        rows_of(table, 0)


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
