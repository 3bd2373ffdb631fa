"""Files and folders are synced, each once, and what cannot be is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from muntin.errors import StateError
from muntin.store import disk


def test_files_and_folders_are_synced_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(disk, "_sync", synced.append)
    state = tmp_path / "state"
    disk.sync([*disk.folders(state / "a" / "b", state), state])
    assert sorted(synced) == [tmp_path, state, state / "a", state / "a" / "b"]


def test_what_is_gone_is_told(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("")
    disk.sync([tmp_path, tmp_path / "a"])
    for paths in ([tmp_path / "b"], [tmp_path / "b", tmp_path]):
        with pytest.raises(StateError, match=r"b cannot be written: No such file"):
            disk.sync(paths)
