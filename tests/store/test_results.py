"""Stored rows come back in the order in which they were emitted."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import muntin as mt
from muntin.errors import InputError, StateError
from muntin.store.delta import File, Snapshot
from muntin.store.results import Results

START = datetime(2026, 1, 1, tzinfo=UTC)


def publish(store: Results, stream: str, batch: int, table: pa.Table) -> None:
    store.prepare({"top": table.schema})
    store.publish(stream, batch, store.write(batch, {"top": [table]}))


def rows(windows: range, size: int) -> pa.Table:
    """Windows of descending numbers, as a top n would be."""
    ends = [START + timedelta(minutes=w) for w in windows for _ in range(size)]
    return pa.table(
        {
            "window_name": ["1 minute"] * len(ends),
            "window_end": pa.array(ends, pa.timestamp("us", "UTC")),
            "window_start": pa.array(ends, pa.timestamp("us", "UTC")),
            "n": [size - i for _ in windows for i in range(size)],
            "revision": [0] * len(ends),
            "c2": [1.0] * len(ends),
            "emitted_at": pa.array(ends, pa.timestamp("us", "UTC")),
        }
    )


def test_order_survives_many_batches_and_large_windows(tmp_path: Path) -> None:
    store = Results(tmp_path)
    for batch in range(4):
        publish(store, "s", batch, rows(range(batch * 2, batch * 2 + 2), 150))
    found = store.read("top").to_pylist()
    assert [r["n"] for r in found] == list(range(150, 0, -1)) * 8
    assert [r["n"] for r in store.read("top", latest=True).to_pylist()] == list(range(150, 0, -1))
    assert store.read("top", after=START + timedelta(minutes=5)).num_rows == 300


def test_what_is_no_number_is_stored_as_it_is(tmp_path: Path) -> None:
    store, values = Results(tmp_path), [float("nan"), float("inf"), float("-inf"), 1.5, None]
    table = rows(range(5), 1)
    publish(store, "s", 0, table.append_column("x", pa.array(values, pa.float64())))
    found = store.read("top")["x"].to_pylist()
    assert [str(value) for value in found] == ["nan", "inf", "-inf", "1.5", "None"]
    outside = DeltaTable(tmp_path / "results" / "top").to_pyarrow_table()["x"].to_pylist()
    assert sorted(map(str, outside)) == sorted(map(str, values))


def test_many_batches_become_few_files(tmp_path: Path) -> None:
    store, folder = Results(tmp_path), tmp_path / "results" / "top"
    for batch in range(40):
        publish(store, "s", batch, rows(range(batch * 2, batch * 2 + 2), 15))
        if batch == 30:
            assert list(store.compact(["top"])) == []  # there are not enough of them
    before, old = store.read("top"), DeltaTable(folder)
    assert len(old.file_uris()) == 40
    left_by_a_crash, fresh = folder / "part-0.parquet", folder / "part-1.parquet"
    for path in (left_by_a_crash, fresh):
        path.write_bytes(b"never part of the table")
    os.utime(left_by_a_crash, (0, 0))
    assert list(store.compact(["top", "dropped"])) == []
    assert len(DeltaTable(folder).file_uris()) == 1
    assert store.read("top").equals(before)
    assert old.count() == len(before)  # by one who has opened it before
    assert (left_by_a_crash.exists(), fresh.exists()) == (False, True)
    publish(store, "s", 39, rows(range(1), 1))  # which it has
    assert store.read("top").equals(before)


def test_batches_count_once_for_each_stream(tmp_path: Path) -> None:
    store = Results(tmp_path)
    for _ in range(2):
        publish(store, "s", 500, rows(range(1), 2))
    publish(store, "renamed", 0, rows(range(1, 2), 2))
    assert store.read("top").num_rows == 4


def test_other_readers_are_told_which_windows_a_file_has(tmp_path: Path) -> None:
    store, far = Results(tmp_path), pa.array([2**61], pa.timestamp("us", "UTC"))
    publish(store, "s", 0, rows(range(3), 2))
    beyond = rows(range(1), 1)
    publish(store, "s", 1, beyond.set_column(1, "window_end", far))
    table = DeltaTable(tmp_path / "results" / "top")
    assert table.count() == 7
    told = pa.table(table.get_add_actions(flatten=True)).sort_by("num_records").to_pylist()
    assert [row["max.window_end"] for row in told] == [None, START + timedelta(minutes=2)]


def test_a_file_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    def broken() -> Iterator[pa.Table]:
        yield rows(range(1), 1)
        raise OSError("no space left")

    store = Results(tmp_path)
    store.prepare({"top": rows(range(1), 1).schema})
    with pytest.raises(StateError, match=r"results of job 'top'.*no space left"):
        store.write(0, {"top": broken()})
    assert store.write(0, {"top": [rows(range(0), 0)]}) == {}
    assert not list((tmp_path / "results" / "top").glob("*.parquet"))


def test_a_file_that_was_taken_away_is_told_of(tmp_path: Path) -> None:
    store, table = Results(tmp_path), rows(range(1), 1)
    store.prepare({"top": table.schema})
    files = store.write(0, {"top": [table]})
    (tmp_path / "results" / "top" / files["top"][0]).unlink()
    assert store.publish("s", 0, files) == ["top"]
    assert store.publish("s", 0, {"dropped": ("part.parquet",)}) == ["dropped"]


def test_what_is_missing_or_has_changed_is_told(tmp_path: Path) -> None:
    store = Results(tmp_path)
    with pytest.raises(InputError, match="no results of job 'top'"):
        store.read("top")
    with pytest.raises(InputError, match="window is 'latest' or 'all', not 'last'"):
        mt.results("top", tmp_path, window="last")
    store.prepare({"top": rows(range(1), 1).schema})
    assert store.read("top").num_rows == 0
    wider = rows(range(1), 1).append_column("more", pa.array(["x"]))
    publish(store, "s", 0, wider)
    publish(store, "s", 1, rows(range(1, 2), 1))
    assert store.read("top")["more"].to_pylist() == ["x", None]
    with pytest.raises(StateError, match="column 'n' of job 'top' is now double"):
        store.prepare({"top": pa.table({"n": [1.5]}).schema})


def test_the_latest_windows_are_read_from_the_newest_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each name, with revisions, and without a look at what is older."""
    store = Results(tmp_path)
    for batch in range(30):
        table = rows(range(batch, batch + 1), 2)
        if batch == 20:
            table = table.set_column(0, "window_name", pa.array(["1 hour"] * 2))
        publish(store, "s", batch, table)
    revised = rows(range(29, 30), 1).set_column(4, "revision", pa.array([1]))
    publish(store, "s", 30, revised)
    asked: list[int] = []
    real = Snapshot.query

    def query(self: Snapshot, files: Sequence[File], sql: str) -> pa.Table:
        asked.append(len(files))
        return real(self, files, sql)

    monkeypatch.setattr(Snapshot, "query", query)
    latest = store.read("top", latest=True).to_pylist()
    assert [(r["window_name"], r["revision"]) for r in latest] == [
        ("1 hour", 0),
        ("1 hour", 0),
        ("1 minute", 1),
    ]
    assert sum(asked) <= 8
    monkeypatch.undo()
    assert latest == [
        row
        for row in store.read("top").to_pylist()
        if row["window_name"] == "1 hour" or row["window_end"] == START + timedelta(minutes=29)
    ]
