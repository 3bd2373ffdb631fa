"""Events of the real file system: what changes in a watched folder is told, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

from muntin.logs.events import FileEvents
from tests.waiting import wait_for


def test_changes_in_watched_folders_are_told(tmp_path: Path) -> None:
    for name in ("watched", "other"):
        (tmp_path / name).mkdir()
    events = FileEvents()
    assert events.watch([str(tmp_path / "watched")]) is None
    assert events.changed() == set()
    (tmp_path / "other" / "b.log").write_text("x\n")
    (tmp_path / "watched" / "a.log").write_text("x\n")
    told: set[str] = set()

    def is_told(path: Path) -> bool:
        told.update(events.changed())
        return str(path) in told

    wait_for(lambda: is_told(tmp_path / "watched" / "a.log"))
    (tmp_path / "watched" / "a.log").rename(tmp_path / "watched" / "a.log.1")
    wait_for(lambda: is_told(tmp_path / "watched" / "a.log.1"))
    assert not any("other" in path for path in told)
    events.close()
    assert events.changed() == set()


def test_more_folders_may_be_watched_later(tmp_path: Path) -> None:
    events = FileEvents()
    folders = []
    for number in range(3):
        folder = tmp_path / f"web-{number}"
        folder.mkdir()
        folders.append(str(folder))
        assert events.watch(folders) is None
        (folder / "a.log").write_text("x\n")
        wait_for(lambda path=str(folder / "a.log"): path in events.changed())  # type: ignore[misc]
    events.close()


def test_names_that_are_not_utf_8_have_all_looked_at(tmp_path: Path) -> None:
    events, odd = FileEvents(), os.fsdecode(b"caf\xe9")
    assert events.watch([str(tmp_path)]) is None
    (tmp_path / odd).mkdir()
    wait_for(lambda: events.changed() == {str(tmp_path)})
    assert events.watch([str(tmp_path / odd)]) == "a folder has a name that is not UTF-8"
    events.close()
