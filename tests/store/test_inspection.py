"""A state is listed and checked: each kind of damage is told, with the file and what to do."""

from __future__ import annotations

import json
import shutil
import tarfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Event

import pyarrow as pa
import pytest

from muntin.errors import InputError
from muntin.model.tables import TableVersion
from muntin.store import tape
from muntin.store.checkpoint import Checkpoint
from muntin.store.findings import Finding, Weight
from muntin.store.hold import locked
from muntin.store.inspection import _compare, _Stream, check, show
from muntin.store.objects import ObjectStorage
from muntin.store.storage import storage_of
from tests.store.s3 import Proxy
from tests.store.test_checkpoint import advanced, first
from tests.store.test_journal import Recorder
from tests.store.test_migrations import SAMPLES


@pytest.fixture
def state(tmp_path: Path) -> Path:
    with tarfile.open(SAMPLES[0]) as archive:
        archive.extractall(tmp_path / "state", filter="data")
    return tmp_path / "state"


def one(state: Path, pattern: str) -> Path:
    return sorted(state.glob(pattern))[-1]


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def changed(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def zeroed(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def removed(path: Path) -> None:
    path.unlink()


def test_a_state_that_is_whole_is_listed_and_has_nothing_to_tell(state: Path) -> None:
    assert list(check(state)) == []
    shown = show(state)
    (stream,) = shown.streams
    assert (stream.name, stream.jobs, stream.sources) == ("s", ("sums", "mine"), 2)
    assert (stream.records, stream.batch) == (143, 0)
    assert stream.panes > 0
    assert [(table.job, table.rows) for table in shown.tables] == [("mine", 12), ("sums", 27)]
    assert shown.bytes >= stream.bytes + sum(table.bytes for table in shown.tables)


@pytest.mark.parametrize("damage", [cut, changed, emptied, zeroed, removed])
@pytest.mark.parametrize(
    "file",
    [
        "streams/s/state-*.tape",
        "streams/s/blocks-*.tape",
        "streams/s/ledger-*.tape",
        "results/sums/part-*.parquet",
        "results/sums/_delta_log/*0.json",
        "results/sums/_delta_log/*1.json",
    ],
)
def test_damage_is_found(state: Path, file: str, damage: Callable[[Path], None]) -> None:
    path = one(state, file)
    damage(path)
    findings = list(check(state))
    damaged = [finding for finding in findings if finding.weight is Weight.DAMAGE]
    if damaged:
        assert any(path.name in f"{f.place} {f.text}" for f in damaged) or damage is removed
        assert all("put back" in finding.text for finding in damaged), damaged
    elif file.startswith("streams/s/state"):
        # Without the only commit there is no state, and the results are of another.
        assert any("has no state" in finding.text for finding in findings), findings
    else:
        # Of the newest entry of a log, nobody knows that there was one, but for the checkpoint.
        assert file.endswith("1.json")
        assert damage is removed
        assert any("not in its table yet; a run puts" in finding.text for finding in findings)


def test_commits_that_were_taken_away_are_missed(state: Path) -> None:
    for path in state.glob("streams/s/state-*"):
        path.unlink()
    (damage,) = (f for f in check(state) if f.weight is Weight.DAMAGE)
    assert "its commits (state-…) are gone, and files of batch 0 are there" in damage.text
    assert "put back a copy of the state" in damage.text
    with locked(state):  # perhaps it is the first commit that a program is making
        assert not [f for f in check(state) if f.weight is Weight.DAMAGE]
    blocks = one(state, "streams/s/blocks-*")
    blocks.rename(blocks.with_name("blocks-000000007-abc.tape"))
    with locked(state):
        (damage,) = (f for f in check(state) if f.weight is Weight.DAMAGE)
    assert "files of batch 7 are there" in damage.text


def test_a_program_that_ended_in_its_first_commit_has_damaged_nothing(state: Path) -> None:
    for path in state.glob("streams/s/state-*"):
        path.unlink()
    shutil.rmtree(state / "results")
    (note,) = check(state)
    assert (note.weight, "has no state" in note.text) == (Weight.NOTE, True)


def test_a_last_commit_that_is_damaged_is_told_from_one_that_was_cut_off(tmp_path: Path) -> None:
    checkpoint, saved = Checkpoint(tmp_path, "logs"), first()
    for number in (1, 2, 3):
        saved = advanced(saved, number)
        checkpoint.save(saved, whole=False)
    path = one(tmp_path, "streams/logs/state-*")
    data = path.read_bytes()

    def damaged() -> list[str]:
        return [f.text for f in check(tmp_path) if f.weight is Weight.DAMAGE]

    path.write_bytes(data[:-5])
    assert damaged() == []
    path.write_bytes(data[:-5] + bytes(5))
    assert damaged() == []
    path.write_bytes(data)
    *_, (last, _) = tape.places(path)
    for at in (last, last + 9, last + 20, len(data) - 1):
        changed = bytearray(data)
        changed[at] ^= 4
        path.write_bytes(changed)
        (text,) = damaged()
        assert "its last record is damaged" in text, at


def test_a_table_that_has_lost_its_newest_entries_is_told(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    for number in range(4):
        recorder.commit((number, 1))
    assert list(check(tmp_path)) == []
    for number in (2, 3, 4):
        one(tmp_path, f"results/j/_delta_log/*{number}.json").unlink()
    damaged = [f.text for f in check(tmp_path) if f.weight is Weight.DAMAGE]
    assert any("its log ends with entry 1, and was known to have entry" in text for text in damaged)


def test_what_is_left_over_or_strange_is_told(state: Path) -> None:
    (state / "notes.txt").write_text("")
    (state / "old").mkdir()
    shutil.copy(one(state, "streams/s/blocks-*"), state / "streams/s/blocks-abc.tape")
    shutil.copy(one(state, "results/mine/part-*"), state / "results/mine/part-x.parquet")
    (state / "results" / "nothing").mkdir()
    told = {Path(f.place).name: (f.weight, f.text) for f in check(state)}
    assert told["blocks-abc.tape"][0] is Weight.LEFTOVER
    assert told["part-x.parquet"][0] is Weight.LEFTOVER
    assert "none of a state's files" in told["notes.txt"][1]
    assert "none of a state's folders" in told["old"][1]
    assert "no table" in told["nothing"][1]
    assert {weight for weight, _ in told.values()} == {Weight.LEFTOVER, Weight.NOTE}


def test_results_of_a_program_that_goes_on_meanwhile_are_not_newer_than_its_state(
    state: Path,
) -> None:
    (stream,) = (path.name for path in (state / "streams").iterdir())
    saved = Checkpoint(state, stream).peek()
    assert saved is not None
    before = {stream: replace(saved, batch=saved.batch - 1)}  # as it was a moment ago
    tables = [path.name for path in (state / "results").iterdir()]
    assert list(_compare(storage_of(state), before, tables)) == []


def test_tables_are_compared_with_what_commits_say(state: Path) -> None:
    def told() -> list[Finding]:
        return list(check(state))

    shutil.move(state / "results" / "mine", state.parent / "mine")
    (finding,) = told()
    assert "the table of job 'mine' was taken away" in finding.text
    shutil.move(state.parent / "mine", state / "results" / "mine")
    entry = one(state, "results/sums/_delta_log/*1.json")
    content = entry.read_text()
    entry.write_text(content.replace('"version": 0', '"version": 7'))
    findings = [finding.text for finding in told()]
    older = "is of batch 0, and the results of job 'sums' are of batch 7: an old copy"
    assert len(findings) == 2  # and the entry is not as it was written
    assert any(older in text for text in findings)
    actions = [json.loads(line) for line in content.splitlines()]
    part = next(action["add"]["path"] for action in actions if "add" in action)
    entry.unlink()
    (state / "results" / "sums" / part).unlink()
    (finding,) = told()
    assert (finding.weight, finding.place.endswith(part)) == (Weight.DAMAGE, True)
    assert "the last results of job 'sums' are in no table, and their file is gone" in finding.text


def test_a_state_that_is_used_is_looked_at_all_the_same(state: Path) -> None:
    with locked(state):
        (finding,) = check(state)
    assert finding.weight is Weight.NOTE
    assert "in use by process" in finding.text


def test_who_only_looks_changes_nothing_and_keeps_nobody_out(state: Path) -> None:
    (state / "lock").write_text("process 1 on somewhere\n")
    over = Event()

    def look() -> None:
        while not over.is_set():
            list(check(state))

    with ThreadPoolExecutor() as threads:
        looking = [threads.submit(look) for _ in range(2)]
        try:
            list(check(state))
            assert (state / "lock").read_text() == "process 1 on somewhere\n"
            for _ in range(100):
                with locked(state):
                    pass
        finally:
            over.set()
        for each in looking:
            each.result()


def test_where_there_is_no_state_it_is_said(tmp_path: Path) -> None:
    for look in (show, lambda place: list(check(place))):
        with pytest.raises(InputError, match="there is no state in"):
            look(tmp_path)


def test_newer_states_are_told(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("muntin.store.migrations.VERSION", 7)
    (finding,) = (f for f in check(state) if f.weight is Weight.DAMAGE)
    assert "written by a newer version of Muntin" in finding.text


def test_checkpoints_under_a_url_are_checked(s3: tuple[str, Proxy]) -> None:
    from muntin.store.checkpoint import Checkpoint
    from tests.store.test_checkpoint import advanced, first

    checkpoint, saved = Checkpoint(s3[0], "logs"), first()
    checkpoint.load()
    for second in (1, 2, 3):
        saved = advanced(saved, second)
        checkpoint.save(saved, whole=second == 2)
    (note,) = check(s3[0])  # there is no table, of which the states tell
    assert "the table of job 'job' was taken away" in note.text
    assert show(s3[0]).streams[0].batch == 3
    storage = ObjectStorage(s3[0]).within("streams/logs")
    blocks = next(name for name in storage.names("") if name.startswith("blocks"))
    storage.put(blocks, storage.read(blocks)[:-3])
    last = [name for name in storage.names("") if name.startswith("state")][-1]
    damaged = [f for f in check(s3[0]) if f.weight is Weight.DAMAGE]
    assert [finding.place for finding in damaged] == [storage.where(blocks)]
    storage.put(last, storage.read(last)[:-3])
    damaged = [f for f in check(s3[0]) if f.weight is Weight.DAMAGE]
    assert last in damaged[0].text


def test_files_that_a_program_replaces_meanwhile_are_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint, saved = Checkpoint(tmp_path, "logs"), first()
    tables = saved.progress.tables

    def commit(number: int) -> None:
        path = checkpoint.keep_rows(f"names-{number}", pa.table({"n": [number]}))
        tables["names"] = (TableVersion(number, (), path=path),)
        checkpoint.save(advanced(saved, number), whole=False)

    def meanwhile(of: _Stream, name: str, read: Callable[[], object]) -> Iterator[Finding]:
        if batches:
            commit(batches.pop())
        return look(of, name, read)

    commit(1)
    batches, look = [2], _Stream._check_file
    monkeypatch.setattr(_Stream, "_check_file", meanwhile)
    assert [each for each in check(tmp_path) if each.weight is Weight.DAMAGE] == []
    assert not batches
    (newest,) = (tmp_path / "streams/logs/joined").iterdir()
    newest.unlink()
    assert [each for each in check(tmp_path) if each.weight is Weight.DAMAGE]
