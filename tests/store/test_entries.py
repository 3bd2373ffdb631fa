"""Entries that are written directly are those of any Delta table."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from muntin.kernel.kinds import kind_of
from muntin.language.program import sql
from muntin.run.results import no_windows, stored_schema
from muntin.store import delta, entries
from muntin.store.storage import LocalFolder

SCHEMA = pa.schema(
    [("window_name", pa.string()), ("window_start", pa.int64()), ("window_end", pa.int64())]
)
ROWS = pa.table({"window_name": ["a", "b"], "window_start": [0, 1], "window_end": [1, 2]})


def written(path: Path, batch: int) -> str:
    name = delta.write_file(LocalFolder(path), SCHEMA, batch, [ROWS])
    assert name is not None
    return name


def test_the_library_reads_and_goes_on_with_what_was_written(tmp_path: Path) -> None:
    delta.create(LocalFolder(tmp_path / "t"), SCHEMA, {"muntin.x": "y"})
    version = 0
    for batch in range(40):  # some of which are summed up
        names = [written(tmp_path / "t", batch)]
        added = delta.add_files(LocalFolder(tmp_path / "t"), names, "w", batch, version)
        assert added == version + 1
        version = added
    table = DeltaTable(str(tmp_path / "t"))
    assert table.version() == 40
    assert table.transaction_version("w") == 39
    assert table.metadata().configuration["muntin.x"] == "y"
    assert table.to_pyarrow_table().num_rows == 80
    write_deltalake(str(tmp_path / "t"), ROWS, mode="append")
    assert DeltaTable(str(tmp_path / "t")).to_pyarrow_table().num_rows == 82
    assert delta.last_batch(LocalFolder(tmp_path / "t"), "w") == 39


def test_who_comes_second_does_not_replace_the_first(tmp_path: Path) -> None:
    delta.create(LocalFolder(tmp_path / "t"), SCHEMA, {})
    write_deltalake(str(tmp_path / "t"), ROWS, mode="append")
    names = [written(tmp_path / "t", 0)]
    assert delta.add_files(LocalFolder(tmp_path / "t"), names, "w", 0, 0) == 2
    assert DeltaTable(str(tmp_path / "t")).to_pyarrow_table().num_rows == 4
    assert not entries.add(tmp_path / "t", 7, [{}], "w", 1)  # of which six are missing
    assert not entries.create(tmp_path / "t", SCHEMA, {})
    assert not list((tmp_path / "t" / "_delta_log").glob("*.tmp"))


@pytest.mark.parametrize("kind", [pa.timestamp("us"), pa.list_(pa.timestamp("us"))])
def test_columns_that_need_a_newer_reader_are_left_to_the_library(
    tmp_path: Path, kind: pa.DataType
) -> None:
    assert not entries.create(tmp_path / "t", pa.schema([("a", kind)]), {})
    delta.create(LocalFolder(tmp_path / "t"), pa.schema([("a", kind)]), {"muntin.x": "y"})
    table = DeltaTable(str(tmp_path / "t"))
    assert table.protocol().min_reader_version == 3
    assert table.metadata().configuration["muntin.x"] == "y"


@pytest.mark.parametrize(
    "query",
    [
        "k, count(*) AS c, avg(n) AS a FROM s GROUP BY k WINDOW 4 us",
        "sum(n) AS total, max(k) AS ks FROM s WINDOW 100 RECORDS",
        "k, max(n) AS m FROM s GROUP BY k WINDOW SESSION 5 us",
    ],
)
def test_the_columns_of_results_are_known_before_there_are_any(query: str) -> None:
    stream = "CREATE STREAM s (t BIGINT, k VARCHAR, n BIGINT) FROM 'x' FORMAT json TIMESTAMP t;"
    (job,) = sql(f"{stream} CREATE JOB j AS SELECT {query};").jobs.values()
    nothing = no_windows(job)
    assert nothing.table().schema.equals(stored_schema(job))
    assert nothing.rows.column_names[: len(kind_of(job.shape).columns)] == [
        *kind_of(job.shape).columns
    ]
