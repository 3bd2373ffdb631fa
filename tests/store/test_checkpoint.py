"""What was saved comes back, whatever came between; a commit writes what has changed."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest

from muntin.errors import StateError
from muntin.fidelity.scoreboard import Source
from muntin.fidelity.timing import Timing
from muntin.kernel.block import Block, encode
from muntin.kernel.tables import version_rows
from muntin.logs.files import FilePosition
from muntin.model.counts import Tally
from muntin.model.records import POSITION
from muntin.model.tables import Table, TableVersion
from muntin.run.catalog import InForce
from muntin.run.progress import Lateness, Leaving, Progress
from muntin.store.checkpoint import Checkpoint, Saved, block_files, saved_in
from muntin.store.storage import LocalFolder
from muntin.windows.choice import Choice

IN_FORCE = InForce({"job": "shape"}, {"shape": (POSITION, 1)})
SOURCES = [f"web-{number}" for number in range(50)]


def block(shape: str, number: int) -> Block:
    return Block(shape, encode(pa.table({"n": [number]})), 1)


def advanced(saved: Saved, second: int) -> Saved:
    """The state a second later, in which one source has written."""
    progress, name = saved.progress, SOURCES[second % len(SOURCES)]
    progress.sources[name].advance({}, {POSITION: second})
    progress.sources[name].heard_at = float(second)
    progress.ledger.add([Tally(name, POSITION, 1, second, None, 3, 1, second)])
    progress.ledger.forget((POSITION, 1), second - 10)
    progress.emitted["job", "1/1/0"] = second
    progress.left.setdefault(("job", "1/1/0"), {})[second] = Leaving(0, "complete")
    progress.left["job", "1/1/0"].pop(second - 5, None)
    progress.timings["job"].add(1.0, 1000 * second, None)
    progress.late["job"] = Lateness(second, 5)
    progress.choices["shape"] = Choice(second % 2 == 0, "measured")
    progress.failures.positions["job"] = [second]
    progress.failures.dropped["job"] = {(second, "a", None): 1, (second, "b", 7): 2}
    progress.failures.totals["job"] = second
    progress.records += 3
    moved = [
        replace(file, position=second) if file.source == name else file for file in saved.positions
    ]
    blocks = {"shape": [block("shape", second)], "other": [block("other", 0)]}
    return replace(
        saved, batch=second, positions=tuple(moved), blocks=blocks, results={"job": (f"{second}",)}
    )


def loaded(state: Path) -> tuple[Saved, list[Block]]:
    """The newest state, and its blocks of one shape."""
    checkpoint = Checkpoint(state, "logs")
    found = checkpoint.load()
    assert found is not None
    return found, list(checkpoint.blocks.every({"shape"}))


def first() -> Saved:
    sources = {name: Source({POSITION: 0}, {POSITION: 0}, 0.0) for name in SOURCES}
    files = (FilePosition(name, f"/logs/{name}", 1, i) for i, name in enumerate(SOURCES))
    progress = Progress(sources=sources, timings={"job": Timing()})
    return Saved(0, progress, tuple(files), IN_FORCE)


def test_every_state_comes_back(tmp_path: Path) -> None:
    checkpoint, saved = Checkpoint(tmp_path, "logs"), first()
    expected: list[Block] = []
    for second in range(1, 40):
        saved = advanced(saved, second)
        checkpoint.save(saved, whole=second == 20, anew=second % 7 == 0)
        new = block("shape", second)
        expected = [new] if second == 20 else [*expected, new]
        found, blocks = loaded(tmp_path)
        assert blocks == expected
        assert set(found.progress.ledger) == set(saved.progress.ledger)
        found.progress.ledger = saved.progress.ledger
        assert found == replace(saved, blocks={})


def test_files_that_tasks_have_written_are_part_of_the_commit_that_names_them(
    tmp_path: Path,
) -> None:
    checkpoint, saved = Checkpoint(tmp_path, "logs"), first()
    files = block_files(tmp_path, "logs")

    def written(*numbers: int) -> dict[str, int]:
        return dict([files.write([block("shape", number) for number in numbers])])

    checkpoint.save(replace(advanced(saved, 1), files=written(10, 11)), whole=False)
    nobodys = written(99)  # of a task whose batch was never committed
    checkpoint.save(advanced(saved, 2), whole=False)
    checkpoint.save(replace(advanced(saved, 3), files=written(12)), whole=False)
    _, blocks = loaded(tmp_path)
    numbers = [n for each in blocks for n in each.table()["n"].to_pylist()]
    assert sorted(numbers) == [1, 2, 3, 10, 11, 12]
    assert checkpoint.is_loose
    assert not nobodys.keys() & checkpoint.blocks.lengths.keys()
    checkpoint.save(replace(advanced(saved, 4), files=written(20, 21)), whole=True)
    _, blocks = loaded(tmp_path)
    assert sorted(n for each in blocks for n in each.table()["n"].to_pylist()) == [4, 20, 21]
    there = {path.name for path in (tmp_path / "streams" / "logs").glob("blocks-*")}
    assert there == checkpoint.blocks.lengths.keys()


def test_a_commit_writes_what_has_changed(tmp_path: Path) -> None:
    checkpoint, saved = Checkpoint(tmp_path, "logs"), first()
    sizes = []
    for second in range(1, 60):
        saved = advanced(saved, second)
        checkpoint.save(saved, whole=False)
        sizes.append(sum(path.stat().st_size for path in tmp_path.rglob("*.tape")))
    added = [after - before for before, after in pairwise(sizes)]
    assert max(added) < 2000 < sizes[0]


def test_a_commit_that_was_cut_off_has_not_been(tmp_path: Path) -> None:
    checkpoint, saved = Checkpoint(tmp_path, "logs"), first()
    checkpoint.save(advanced(saved, 1), whole=False)
    folder = tmp_path / "streams" / "logs"
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    checkpoint.save(advanced(saved, 2), whole=False)
    after = {path.name: path.read_bytes() for path in folder.iterdir()}
    (state,) = (name for name in after if name.startswith("state"))
    # Blocks and tallies are there, and the last byte of what names them is not.
    (folder / state).write_bytes(after[state][:-1])
    found, blocks = loaded(tmp_path)
    assert (found.batch, blocks) == (1, [block("shape", 1)])
    assert [tally.pane for tally in found.progress.ledger] == [1]
    assert all(after[name].startswith(data) for name, data in before.items())


def test_after_a_failure_everything_is_saved_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint, saved = Checkpoint(tmp_path, "logs"), first()
    checkpoint.save(advanced(saved, 1), whole=False)
    with monkeypatch.context() as patch:

        def full(folder: LocalFolder, name: str, data: bytes) -> int:
            raise StateError("no space left")

        patch.setattr(LocalFolder, "append", full)
        with pytest.raises(StateError):
            checkpoint.save(advanced(saved, 2), whole=False)
    assert checkpoint.is_loose
    saved = advanced(saved, 3)
    checkpoint.save(saved, whole=True)
    found = Checkpoint(tmp_path, "logs").load()
    assert found is not None
    assert sorted(tally.pane for tally in found.progress.ledger) == [1, 2, 3]


def test_what_a_batch_that_failed_has_written_is_no_part_of_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = Checkpoint(tmp_path, "logs")
    checkpoint.save(advanced(first(), 1), whole=False)
    write = LocalFolder.append
    with monkeypatch.context() as patch:

        def full(folder: LocalFolder, name: str, data: bytes) -> int:
            if name.startswith("state"):
                raise StateError("no space left")
            return write(folder, name, data)

        patch.setattr(LocalFolder, "append", full)
        again = Checkpoint(tmp_path, "logs")
        saved = again.load()
        assert saved is not None
        with pytest.raises(StateError):
            checkpoint.save(advanced(saved, 2), whole=False)
    # The program ends here; the next one reads something else in its second batch.
    again = Checkpoint(tmp_path, "logs")
    saved = again.load()
    assert saved is not None
    assert [tally.pane for tally in saved.progress.ledger] == [1]
    again.save(replace(advanced(saved, 3), batch=2), whole=True)
    found, blocks = loaded(tmp_path)
    assert sorted(tally.pane for tally in found.progress.ledger) == [1, 3]
    assert blocks == [block("shape", 3)]


def test_a_glance_reads_neither_blocks_nor_ledger(tmp_path: Path) -> None:
    checkpoint, saved = Checkpoint(tmp_path, "logs"), first()
    checkpoint.save(advanced(saved, 1), whole=False)
    for path in (tmp_path / "streams" / "logs").iterdir():
        if not path.name.startswith("state"):
            path.unlink()
    assert saved_in(tmp_path)["logs"].progress.timings["job"].windows == 1
    with pytest.raises(StateError, match="cannot be read"):
        Checkpoint(tmp_path, "logs").load()


def test_a_glance_meets_no_file_that_has_just_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint, saved = Checkpoint(tmp_path, "logs"), first()
    checkpoint.save(advanced(saved, 1), whole=False)
    real, once = LocalFolder.read, [True]

    def late(folder: LocalFolder, name: str) -> bytes:
        if once and once.pop():
            checkpoint.save(advanced(saved, 2), whole=False, anew=True)
        return real(folder, name)

    monkeypatch.setattr(LocalFolder, "read", late)
    found = Checkpoint(tmp_path, "logs").peek()
    assert found is not None
    assert found.batch == 2


def test_rows_of_versions_that_are_damaged_are_not_joined(tmp_path: Path) -> None:
    path = Path(Checkpoint(tmp_path, "logs").keep_rows("names-0", pa.table({"n": [1, 2, 3]})))
    table, version = Table("names", "names.csv", "csv"), TableVersion(0, (), path=str(path))
    data = bytearray(path.read_bytes())
    data[-9] ^= 1
    path.write_bytes(data)
    with pytest.raises(StateError, match=r"table 'names' .* is damaged.*put back a copy"):
        version_rows(table, version)
    data[-9] ^= 1
    path.write_bytes(data)
    assert version_rows(table, version)["n"].to_pylist() == [1, 2, 3]


def test_rows_of_versions_go_with_the_commit_that_lets_go_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint, saved = Checkpoint(tmp_path, "logs"), first()
    folder, tables = tmp_path / "streams/logs/joined", saved.progress.tables

    def kept(number: int) -> TableVersion:
        path = checkpoint.keep_rows(f"names-{number}", pa.table({"n": [number]}))
        return TableVersion(number, (), path=path)

    def there() -> list[str]:
        return sorted(path.name.rpartition("-")[0] for path in folder.iterdir())

    tables["names"] = (kept(0), kept(1))
    checkpoint.save(advanced(saved, 1), whole=False)
    tables["names"] = (*tables["names"][1:], kept(2))
    assert there() == ["names-0", "names-1", "names-2"], "a crash now goes on from what was"
    checkpoint.save(advanced(saved, 2), whole=False)
    assert there() == ["names-1", "names-2"]
    tables["names"] = tables["names"][1:]
    with monkeypatch.context() as patch:
        patch.setattr(LocalFolder, "append", _full)
        with pytest.raises(StateError):
            checkpoint.save(advanced(saved, 3), whole=False)
    assert there() == ["names-1", "names-2"], "what is saved names both"
    kept(9)  # of a batch that came to nothing
    checkpoint.save(advanced(saved, 3), whole=False)
    assert there() == ["names-2"], "a state that is written anew leaves nothing over"
    found, _ = loaded(tmp_path)
    assert found.progress.tables == tables
    del tables["names"]
    with monkeypatch.context() as patch:
        patch.setattr(LocalFolder, "remove", _denied)
        checkpoint.save(advanced(saved, 4), whole=False)  # which counts all the same
    assert there() == ["names-2"]
    assert loaded(tmp_path)[0].batch == advanced(saved, 4).batch
    checkpoint.save(advanced(saved, 5), whole=False, anew=True)
    assert there() == []


def _denied(self: LocalFolder, names: Collection[str]) -> None:
    if names:
        raise StateError("it cannot be removed")


def _full(self: LocalFolder, name: str, data: bytes) -> int:
    raise StateError("the disk is full")
