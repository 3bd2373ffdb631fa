"""What a power cut may leave of a table's newest entries is taken away; older ones are not touched.

That tables come back whole is shown at every moment of a run in test_journal_power.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from muntin.store import log
from muntin.store.results import Results
from tests.store.test_results import publish, rows


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """One with 20 entries, of which those up to 16 are summed up."""
    store = Results(tmp_path)
    for batch in range(18):
        publish(store, "s", batch, rows(range(batch, batch + 1), 3))
        if batch == 14:
            store.sum_up("top")
    return tmp_path / "results" / "top"


def entry(table: Path, number: int, suffix: str = ".json") -> Path:
    return table / "_delta_log" / f"{number:020}{suffix}"


def test_a_whole_table_stays(table: Path) -> None:
    before = sorted(table.rglob("*"))
    assert log.version(table) == 19
    assert not log.mend(table, 5)
    assert sorted(table.rglob("*")) == before


@pytest.mark.parametrize("loss", ["empty", "zeros", "gone", "row file cut", "row file gone"])
def test_entries_from_the_first_that_is_not_whole_go(table: Path, loss: str) -> None:
    path = entry(table, 18)
    (part,) = [p for p in log.parts_since(table, 17) if p not in log.parts_since(table, 18)]
    match loss:
        case "empty":
            path.write_bytes(b"")
        case "zeros":
            path.write_bytes(bytes(100))
        case "gone":
            path.unlink()
        case "row file cut":
            part.write_bytes(part.read_bytes()[:-1])
        case "row file gone":
            part.unlink()
    assert log.mend(table, 17)
    assert log.version(table) == 17
    assert Results(table.parents[1]).read("top").num_rows == 3 * 16


def test_a_summary_that_is_not_whole_goes(table: Path) -> None:
    entry(table, 16, ".checkpoint.parquet").write_bytes(b"")
    (table / "_delta_log" / "_last_checkpoint").write_bytes(b"")
    assert log.mend(table, 15)
    assert not log.mend(table, 15)
    assert Results(table.parents[1]).read("top").num_rows == 3 * 18


def test_what_was_synced_is_not_touched(table: Path) -> None:
    entry(table, 18).write_bytes(b"")
    assert not log.mend(table, 19)
    assert log.damaged(table) == entry(table, 18)


def test_what_to_sync(table: Path) -> None:
    assert {path.name for path in log.files_since(table, 17)} == {
        entry(table, 18).name,
        entry(table, 19).name,
        "_last_checkpoint",
    }
    assert len(list(log.parts_since(table, 17))) == 2
    assert log.has_rows(table)
