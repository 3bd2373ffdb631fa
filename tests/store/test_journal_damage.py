"""Whatever happens to a file of a state, it is named, with what to do, or nothing was lost."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from muntin.errors import MuntinError
from muntin.store.results import Results
from tests.store.test_journal import Recorder

DAMAGES = ("emptied", "cut", "changed", "removed")
KINDS = (
    "streams/s/state-*.tape",
    "streams/s/blocks-*.tape",
    "streams/s/ledger-*.tape",
    "results/j/_delta_log/*.json",
    "results/j/_delta_log/*.checkpoint.parquet",
    "results/j/_delta_log/_last_checkpoint",
    "results/j/*.parquet",
    "lock",
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    state = tmp_path_factory.mktemp("whole")
    (state / "lock").write_text("1\n")
    recorder = Recorder(state)
    for number in range(18):
        recorder.commit((number, 1))
        if number == 15:  # entries before this are summed up, and those behind it are not
            recorder.journal.tidy()
    return state


def damage(path: Path, how: str) -> None:
    data = path.read_bytes()
    middle = len(data) // 2
    match how:
        case "emptied":
            path.write_bytes(b"")
        case "cut":
            path.write_bytes(data[:middle])
        case "changed":
            path.write_bytes(data[:middle] + bytes(8) + data[middle + 8 :])
        case "removed":
            path.unlink()


@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("kind", KINDS)
def test_damage_is_told(whole: Path, tmp_path: Path, kind: str, how: str) -> None:
    before = Results(whole).read("j")
    found = sorted(whole.glob(kind))
    assert found, kind
    for number in {0, len(found) // 2, len(found) - 2, len(found) - 1} & {*range(len(found))}:
        state = tmp_path / f"{number}"
        shutil.copytree(whole, state)
        path = state / found[number].relative_to(whole)
        damage(path, how)
        try:
            notes = Recorder(state).journal.notes
            after = Results(state).read("j")
        except MuntinError as error:
            told = str(error)
            assert path.name in told, told
            assert "put back a copy" in told, told
            assert len(told.splitlines()) == 1, told
        else:
            # What was cut off at the end may be a commit that never was, but for its results.
            is_state = path.name.startswith("state") and how in ("cut", "removed")
            is_last = path.name.startswith("part-") and path.name == found[-1].name
            last_rows = is_last and how == "removed"
            assert bool(notes) == (is_state or last_rows), notes
            unseen = path.suffix == ".parquet" and how == "changed"  # in rows themselves
            assert after.equals(before) or last_rows or unseen
