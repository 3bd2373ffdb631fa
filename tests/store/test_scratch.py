"""Temporary files are where they were asked to be."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from muntin.errors import InputError
from muntin.store.scratch import keep_in


def test_temporary_files_are_kept_in_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", tempfile.tempdir)
    for name in ("TMPDIR", "SPARK_LOCAL_DIRS"):
        monkeypatch.setenv(name, "elsewhere")
    keep_in(tmp_path / "new" / "scratch")
    assert tempfile.gettempdir() == os.environ["SPARK_LOCAL_DIRS"] == f"{tmp_path}/new/scratch"
    command = [sys.executable, "-c", "import tempfile; print(tempfile.gettempdir())"]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == f"{tmp_path}/new/scratch"
    assert list((tmp_path / "new" / "scratch").iterdir()) == []


def test_a_folder_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="file/a cannot be written to: Not a directory; give a"):
        keep_in(tmp_path / "file" / "a")
