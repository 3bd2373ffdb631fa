"""Readers never meet a file that cleaning has just removed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from muntin.errors import StateError
from muntin.store import delta
from muntin.store.results import Results
from muntin.store.storage import LocalFolder, storage_of
from tests.store.s3 import Proxy, losing
from tests.store.test_results import publish, rows


def filled(state: Path, files: int = 40) -> Results:
    store = Results(state)
    for batch in range(files):
        publish(store, "s", batch, rows(range(batch, batch + 1), 3))
    return store


def clean(path: Path) -> None:
    """Merges files and removes the old ones at once, which is sooner than we ever do."""
    delta.compact(LocalFolder(path))
    table = DeltaTable(path)
    table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)


def test_a_reader_who_was_overtaken_reads_again(tmp_path: Path) -> None:
    store, path = filled(tmp_path), tmp_path / "results" / "top"
    wanted, seen = store.read("top"), []

    def overtaken(found: delta.Snapshot) -> pa.Table:
        seen.append(len(found.files))
        if len(seen) == 1:
            clean(path)
        return found.query(found.files, "FROM stored ORDER BY window_end, row_number")

    assert delta.read(LocalFolder(path), overtaken).num_rows == wanted.num_rows
    assert seen == [40, 1]


def test_other_errors_are_told_at_once(tmp_path: Path) -> None:
    filled(tmp_path, 1)
    asked = []

    def wrong(found: delta.Snapshot) -> pa.Table:
        asked.append(found)
        raise StateError("something else")

    with pytest.raises(StateError, match="something else"):
        delta.read(LocalFolder(tmp_path / "results" / "top"), wrong)
    assert len(asked) == 1


def test_a_reader_reads_on_while_files_are_merged_and_removed(tmp_path: Path) -> None:
    """Another process reads without a pause while this one adds, merges and cleans."""
    store, path = filled(tmp_path, 33), tmp_path / "results" / "top"
    code = (
        "import sys; from pathlib import Path; from muntin.store.results import Results\n"
        "store, counts = Results(Path(sys.argv[1])), []\n"
        "print('ready', flush=True)\n"
        "while not Path(sys.argv[1], 'over').exists():\n"
        "    counts.append((store.read('top').num_rows, store.read('top', True).num_rows))\n"
        "assert [a for a, _ in counts] == sorted(a for a, _ in counts), counts\n"
        "assert {b for _, b in counts} == {3}, counts\n"
        "print(len(counts))\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "ready\n"
        for batch in range(33, 40):
            publish(store, "s", batch, rows(range(batch, batch + 1), 3))
            table = DeltaTable(path)
            table.optimize.compact()
            table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
        (tmp_path / "over").touch()
        assert int(reader.stdout.read()) > 0
    assert reader.returncode == 0


def test_large_files_are_not_written_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, path = filled(tmp_path, 4), tmp_path / "results" / "top"
    monkeypatch.setattr(delta, "_SIZES", ((1 << 20, 4),))
    delta.compact(LocalFolder(path))
    (merged,) = DeltaTable(path).file_uris()
    size = Path(merged).stat().st_size
    monkeypatch.setattr(delta, "_SIZES", ((size - 1, 4), (1 << 20, 6)))
    for batch in range(4, 8):
        publish(store, "s", batch, rows(range(batch, batch + 1), 1))
        delta.compact(LocalFolder(path))
        assert merged in DeltaTable(path).file_uris()


def test_answers_that_are_lost_end_nothing_and_repeat_nothing(
    s3: tuple[str, Proxy], s3_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seed 17-7 of `make faults`: who found its own entry in the log gave up."""
    with losing(s3_port, "_delta_log") as port:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        store = Results(s3[0])
        for batch in range(3):
            publish(store, "s", batch, rows(range(batch, batch + 1), 3))
        place = storage_of(s3[0]).within("results/top")
        delta.widen(place, [pa.field("more", pa.int64())])
        delta.compact(place)
        assert store.read("top").num_rows == 9
        assert "more" in delta.snapshot(place).schema.names
