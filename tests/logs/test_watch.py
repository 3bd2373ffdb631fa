"""With events, files are found as without, and idle ones are not looked at."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest

from muntin.logs import sightings, watch
from muntin.logs.events import FileEvents
from muntin.logs.sightings import Sighting
from muntin.logs.tail import Tail
from tests.logs import test_files, test_tail
from tests.logs.reading import LOOKS, NOW, Reader, Snapshots, append, lines_of, stream

# All that is said of rotation and of tails holds with events too.
for _module in (test_files, test_tail):
    globals().update({name: it for name, it in vars(_module).items() if name[:4].lower() == "test"})


@pytest.fixture(autouse=True)
def events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LOOKS, "events", Snapshots)


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that were looked at."""
    paths: list[Path] = []
    real = sightings.sight

    def sight(path: Path | str, *rest: Any) -> Sighting | None:
        paths.append(Path(path))
        return real(path, *rest)

    monkeypatch.setattr(watch, "sight", sight)
    return paths


def test_only_files_that_change_are_looked_at(tmp_path: Path, looked_at: list[Path]) -> None:
    logs = [tmp_path / f"web-{i}" / "app.log" for i in range(3)]
    for log in logs:
        log.parent.mkdir()
        log.write_text("one\n")
    reader = Reader(stream(tmp_path / "{source}" / "*.log"))
    assert reader.read() == ["one"] * 3
    reader.read()  # what came to the folders before they were watched
    looked_at.clear()
    assert reader.batch().touched is None
    assert looked_at == []
    append(logs[1], "two\n")
    assert reader.read() == ["two"]
    assert set(looked_at) == {logs[1]}


def test_all_files_are_looked_at_now_and_then(tmp_path: Path, log: Path) -> None:
    class Silent(Snapshots):
        def changed(self) -> set[str]:
            return set()

    tail = Tail(stream(tmp_path / "*.log"), follow=True, events=Silent())
    for at in (NOW, NOW):
        tail.next_batch(at, in_order=True)
    append(log, "three\n")
    assert tail.next_batch(NOW + 9, in_order=True).lanes == ()
    batch = tail.next_batch(NOW + 10, in_order=True)
    assert lines_of(batch.lanes) == ["three"]
    append(log, "four\n")
    batch = tail.next_batch(NOW + 20, in_order=True)
    assert batch.notes == (
        f"stream 'logs': nothing told of a change to {log}; all files are looked at every time "
        "instead",
    )
    append(log, "five\n")
    assert lines_of(tail.next_batch(NOW + 20, in_order=True).lanes) == ["five"]


def test_without_events_all_files_are_looked_at(tmp_path: Path, log: Path) -> None:
    class Full(Snapshots):
        def watch(self, folders: Collection[str]) -> str | None:
            return "the system watches no more folders"

    tail = Tail(stream(tmp_path / "*.log"), follow=True, events=Full())
    batch = tail.next_batch(NOW, in_order=True)
    assert batch.notes == (
        "stream 'logs': the system watches no more folders; all files are looked at every time "
        "instead",
    )
    append(log, "three\n")
    assert lines_of(tail.next_batch(NOW, in_order=True).lanes) == ["three"]


def eventually(read: Callable[[], list[str]], wanted: list[str]) -> None:
    """Reads until all that is wanted has come, for as long as a test may take."""
    lines: list[str] = []
    until = time.monotonic() + 60
    while sorted(lines) != sorted(wanted) and time.monotonic() < until:
        lines += read()
    assert sorted(lines) == sorted(wanted)


def test_the_system_tells_of_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a log that grows, is renamed and replaced, of a new folder, and of a link's file."""
    monkeypatch.setattr(LOOKS, "events", FileEvents)
    log, real = tmp_path / "logs" / "web-1" / "app.log", tmp_path / "elsewhere" / "real.log"
    for path in (log, real):
        path.parent.mkdir(parents=True)
        path.write_text("one\n")
    reader = Reader(stream(tmp_path / "logs" / "{source}" / "*.log"))
    eventually(reader.read, ["one"])
    append(log, "two\n")
    eventually(reader.read, ["two"])
    log.rename(log.with_name("app.log.1"))
    log.write_text("three\n")
    append(log.with_name("app.log.1"), "late\n")
    eventually(reader.read, ["three", "late"])
    new = tmp_path / "logs" / "web-2" / "app.log"
    new.parent.mkdir()
    new.write_text("four\n")
    eventually(reader.read, ["four"])
    (new.parent / "link.log").symlink_to(real)
    eventually(reader.read, ["one"])
    append(real, "five\n")
    eventually(reader.read, ["five"])
    assert reader.notes == []
