"""Stored rows come back in the order in which they were emitted."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from muntin.errors import InputError, StateError
from muntin.store.results import Results

START = datetime(2026, 1, 1, tzinfo=UTC)


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
        store.publish("s", batch, {"top": rows(range(batch * 2, batch * 2 + 2), 150)})
    found = store.read("top").to_pylist()
    assert [r["n"] for r in found] == list(range(150, 0, -1)) * 8
    assert [r["n"] for r in store.read("top", latest=True).to_pylist()] == list(range(150, 0, -1))
    assert store.read("top", after=START + timedelta(minutes=5)).num_rows == 300


def test_batches_count_once_for_each_stream(tmp_path: Path) -> None:
    store = Results(tmp_path)
    for _ in range(2):
        store.publish("s", 500, {"top": rows(range(1), 2)})
    store.publish("renamed", 0, {"top": rows(range(1, 2), 2)})
    assert store.read("top").num_rows == 4


def test_what_is_missing_or_has_changed_is_told(tmp_path: Path) -> None:
    store = Results(tmp_path)
    with pytest.raises(InputError, match="no results of job 'top'"):
        store.read("top")
    store.prepare({"top": rows(range(1), 1)})
    assert store.read("top").num_rows == 0
    wider = rows(range(1), 1).append_column("more", pa.array(["x"]))
    store.prepare({"top": wider})
    with pytest.raises(StateError, match="column 'n' of job 'top' is now double"):
        store.prepare({"top": pa.table({"n": [1.5]})})
