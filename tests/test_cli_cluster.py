"""`muntin cluster`, as it is typed. What it does: tests/spark/test_cluster.py."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from muntin.cli import app
from muntin.errors import InputError
from muntin.spark.cluster import default_folder


def test_down_without_a_cluster_says_so(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["cluster", "down", "--dir", str(tmp_path)])
    assert (done.exit_code, done.output.replace("\n", "")) == (
        0,
        f"no cluster is up in {tmp_path}",
    )


def test_wrong_options_are_refused() -> None:
    done = CliRunner().invoke(app, ["cluster", "up", "--workers", "0"])
    assert isinstance(done.exception, InputError)


def test_the_folder_is_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert default_folder() == tmp_path / "muntin" / "cluster"
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_folder() == tmp_path / ".local" / "state" / "muntin" / "cluster"
