"""An agent's folder is its own: of one agent at a time, and of nobody else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from muntin.agent.folder import held, open_path, safe_path
from muntin.errors import StateError


def test_a_second_agent_is_refused_and_told_who_holds_the_folder(tmp_path: Path) -> None:
    (tmp_path / "agent.toml").write_text("[streams.logs]\npaths = '/x/*.log'\n")
    words = ["agent", "--name", "web02", "--config", "agent.toml", "--state", "state"]
    with held(tmp_path / "state", "web01"):
        done = subprocess.run(
            [sys.executable, "-m", "muntin", *words, "--listen", "127.0.0.1:0"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": str(Path.cwd())},
        )
        with pytest.raises(StateError, match="in use by agent 'web01'"):
            held(tmp_path / "state", "web02").__enter__()
    assert done.returncode == 1
    assert done.stderr.strip() == (
        f"error: the state folder state is in use by agent 'web01', process {os.getpid()}; stop "
        "it, or use another --state"
    )
    with held(tmp_path / "state", "web02"):
        pass


def test_a_folder_of_somebody_else_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    open_path(tmp_path).mkdir()
    (open_path(tmp_path) / "letter").write_text("mine")
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(StateError, match=r"notes\.txt is none of a state's files; give a folder"):
        held(tmp_path, "web01").__enter__()
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["letter", "notes.txt", "open"]


def test_a_folder_of_an_agent_is_known_by_its_files(tmp_path: Path) -> None:
    safe_path(tmp_path, "clicks").write_bytes(b"")
    open_path(tmp_path).mkdir()
    with held(tmp_path, "web01"):
        pass


def test_a_folder_that_cannot_be_made_says_why(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StateError, match=r"cannot be used: .*file.*: Not a directory"):
        held(tmp_path / "file" / "state", "web01").__enter__()
