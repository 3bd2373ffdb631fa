"""Temporary files are where they were asked to be, and go with their run."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from muntin.errors import InputError
from muntin.store.scratch import keeping_in, require_writable

# Keeps files in a folder until it is told to end, or is killed.
RUN = """
import sys, tempfile
from pathlib import Path
from muntin.store.scratch import keeping_in
with keeping_in(Path(sys.argv[1])):
    (Path(tempfile.mkdtemp()) / "file").touch()
    print("there", flush=True)
    input()
"""


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", tempfile.tempdir)
    monkeypatch.setenv("TMPDIR", tempfile.gettempdir())
    monkeypatch.delenv("SPARK_LOCAL_DIRS", raising=False)


def test_temporary_files_are_kept_in_a_folder_as_long_as_it_is_used(tmp_path: Path) -> None:
    before, folder = tempfile.gettempdir(), tmp_path / "new" / "scratch"
    with keeping_in(folder):
        own = tempfile.gettempdir()
        assert Path(own).parent == folder
        assert os.environ["SPARK_LOCAL_DIRS"] == own
        command = [sys.executable, "-c", "import tempfile; print(tempfile.gettempdir())"]
        found = subprocess.run(command, capture_output=True, text=True, check=True)
        assert found.stdout.strip() == own
        tempfile.mkdtemp()
    assert list(folder.iterdir()) == []
    assert tempfile.gettempdir() == before
    assert "SPARK_LOCAL_DIRS" not in os.environ


def run_in(folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", RUN, str(folder)]
    process = subprocess.Popen(command, stdin=-1, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "there\n"
    return process


def test_what_a_killed_run_has_left_goes_and_nothing_else(tmp_path: Path) -> None:
    others = ["spark-1234", "muntin-of-somebody", "file"]
    for name in others[:2]:
        (tmp_path / name).mkdir()
    (tmp_path / "file").touch()
    with run_in(tmp_path) as killed, run_in(tmp_path) as living:
        killed.kill()
        killed.wait()
        assert len(list(tmp_path.iterdir())) == 5
        with keeping_in(tmp_path):
            assert len(list(tmp_path.iterdir())) == 5  # its own instead of the one that was left
        assert len(list(tmp_path.glob("muntin-*/*/file"))) == 1
        living.communicate("\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(others)


def test_a_folder_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="file/a cannot be written to: Not a directory; give a"):
        require_writable(tmp_path / "file" / "a")
