"""Variables for as long as a call takes, and files that some mappers take as a whole."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from muntin.kernel.python.environment import environment, file_variables, unpacked, variables


def test_variables_are_as_they_were_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("known_x", "1")
    names = ("known_x", "new_y", "no")

    def found() -> list[str | None]:
        return [os.environ.get(name) for name in names]

    with environment(variables({"known.x": 2, "new.y": 3, "no": None})):
        assert found() == ["2", "3", None]
    assert found() == ["1", None, None]


def test_a_file_is_told_by_its_whole_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    wanted = f"file://{tmp_path}/a.log"
    assert file_variables("a.log") == {
        "mapreduce_map_input_file": wanted,
        "map_input_file": wanted,
    }


def test_compressed_files_are_copied_for_as_long_as_they_are_needed(tmp_path: Path) -> None:
    plain, packed = tmp_path / "a.log", tmp_path / "b.log.gz"
    plain.write_text("x")
    packed.write_bytes(gzip.compress(b"y"))
    with unpacked(str(plain)) as path:
        assert path == str(plain)
    with unpacked(str(packed)) as path:
        assert Path(path).read_text() == "y"
        assert Path(path).name == "b.log"
    assert not Path(path).exists()
