"""A state folder is used by one process at a time, and by none once it is gone."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from muntin.errors import StateError
from muntin.store.hold import StateHold, locked, require_free
from muntin.store.results import Results


def test_other_processes_are_refused(tmp_path: Path) -> None:
    code = "import sys; from pathlib import Path; from muntin.store.hold import require_free\n"
    code += "require_free(Path(sys.argv[1]))"
    with locked(tmp_path):
        command = [sys.executable, "-c", code, str(tmp_path)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=Path.cwd())
    assert f"is in use by process {os.getpid()} on {socket.gethostname()}; stop it" in done.stderr
    require_free(tmp_path)


def test_queries_of_a_process_share_a_folder_and_a_run_does_not(tmp_path: Path) -> None:
    first, second = StateHold(tmp_path), StateHold(tmp_path)
    first.release()
    first.release()
    with pytest.raises(StateError, match="in use"):
        require_free(tmp_path)
    second.release()
    with locked(tmp_path):
        pass


def test_looking_makes_nothing(tmp_path: Path) -> None:
    require_free(tmp_path / "new" / "state")
    assert list(tmp_path.iterdir()) == []


def test_folders_that_cannot_be_used_say_why(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for use in (require_free, StateHold):
        with pytest.raises(StateError, match=r"state cannot be used: .*file"):
            use(tmp_path / "file" / "state")
    (tmp_path / "lock").mkdir()
    with pytest.raises(StateError, match=r"cannot be used: .*/lock: Is a directory"):
        StateHold(tmp_path)


@pytest.mark.parametrize("back", [False, True])
def test_a_folder_that_is_gone_or_another_is_told(tmp_path: Path, back: bool) -> None:
    state = tmp_path / "state"
    with locked(state) as hold:
        hold.require_there()
        shutil.move(state, tmp_path / "elsewhere")
        if back:
            state.mkdir()
            (state / "lock").write_text("")
        with pytest.raises(StateError, match="was removed or replaced while this run used it"):
            hold.require_there()
        with pytest.raises(StateError, match="removed or replaced"), hold.in_use():
            raise AssertionError


def test_an_error_in_a_folder_that_is_gone_has_that_reason(tmp_path: Path) -> None:
    with locked(tmp_path / "state") as hold:
        with pytest.raises(StateError, match="something else"), hold.in_use():
            raise StateError("something else")
        with pytest.raises(StateError, match="removed or replaced"), hold.in_use():
            fail_without(tmp_path / "state")


def fail_without(folder: Path) -> None:
    shutil.rmtree(folder)
    raise StateError("something else")


def test_names_that_are_not_utf_8_are_refused(tmp_path: Path) -> None:
    state = tmp_path / os.fsdecode(b"caf\xe9")
    for use in (require_free, StateHold, Results):
        with pytest.raises(StateError, match="cannot be used: its name is not UTF-8"):
            use(state)


@pytest.mark.parametrize("name", ["streams", "results", "streams/a", "results/j"])
def test_files_where_folders_are_needed_are_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("")
    with pytest.raises(StateError, match=f"{name} is a file, where a state has a folder; move it"):
        require_free(tmp_path)


def test_a_folder_of_somebody_else_is_refused(tmp_path: Path) -> None:
    state = tmp_path / "state"
    (state / ".git").mkdir(parents=True)
    with pytest.raises(StateError, match=r"\.git is none of a state's files; give a folder of its"):
        require_free(state)
    with pytest.raises(StateError, match="none of a state's files"):
        StateHold(state)
    assert [path.name for path in state.iterdir()] == [".git"]
    (tmp_path / "new" / "lost+found").mkdir(parents=True)
    require_free(tmp_path / "new")
