"""Batches as they are committed: few files, whatever their number, and all of it comes back."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

import muntin as mt
from benchmarks.driver import Nothing
from muntin.fidelity.score import C2, Reason
from muntin.kernel.block import Block, encode
from muntin.kernel.due import Due, Emitted
from muntin.kernel.statements import WINDOW, WINDOW_END
from muntin.model.counts import Counts, Tally
from muntin.model.records import POSITION
from muntin.run.catalog import Catalog
from muntin.run.contracts import Answer
from muntin.run.results import Emission, JobWindows, ToSave, no_windows
from muntin.store.blocks import BlockFiles
from muntin.store.journal import Journal
from muntin.store.results import Results

PROGRAM = mt.sql(
    "CREATE STREAM s (t BIGINT) FROM 'none/{source}' FORMAT json TIMESTAMP t;"
    "CREATE JOB j AS SELECT count(*) AS c FROM s WINDOW 10 SECONDS;"
)
CATALOG = Catalog.of(PROGRAM.streams["s"], PROGRAM.jobs_of("s"))
(SHAPE,) = CATALOG.shapes


def block(*numbers: int) -> Block:
    return Block(SHAPE, encode(pa.table({"n": numbers})), len(numbers))


class Blocks(Nothing):
    """A collection of numbers; all blocks that were added, or one that stands for them."""

    def __init__(self) -> None:
        super().__init__((), rows=False)
        self.held: list[Block] = []

    def answer(
        self, catalog: Catalog, due: Due, save: Mapping[str, Emitted] | None = None
    ) -> Answer:
        return Answer(to_save=ToSave({SHAPE: list(self.held)}))

    @property
    def numbers(self) -> list[int]:
        return [n for block in self.held for n in block.table()["n"].to_pylist()]

    def compact(self, catalog: Catalog) -> None:
        self.held = [block(*self.numbers)]

    def restore(self, catalog: Catalog, blocks: BlockFiles) -> None:
        self.held = list(blocks.every(catalog.shapes))


def test_batches_come_back_in_few_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("muntin.store.journal.SAVES_PER_REWRITE", 4)
    blocks = Blocks()
    journal = Journal(tmp_path, CATALOG, blocks)
    for batch in range(40):
        new = block(batch)
        blocks.held.append(new)
        journal.progress.records += 1
        journal.commit(CATALOG, Emission(to_save=ToSave({SHAPE: [new]})))
        if batch % 9 == 8:  # a restart
            blocks = Blocks()
            journal = Journal(tmp_path, CATALOG, blocks)
        assert (journal.batch, journal.progress.records) == (batch, batch + 1)
        assert blocks.numbers == list(range(batch + 1))
        assert len(list((tmp_path / "streams" / "s").iterdir())) <= 3


class Recorder:
    """Windows of ten seconds that leave one after another, as a run commits them."""

    def __init__(self, state: Path, catalog: Catalog = CATALOG, others: Sequence[str] = ()) -> None:
        self.journal = Journal(state, catalog, Blocks(), others)
        self.catalog = catalog
        self._state = state

    def commit(self, *windows: tuple[int, int]) -> None:
        """Windows by number, with their count."""
        (job,) = self.catalog.jobs.values()
        ends = [number + 1 for number, _ in windows]
        rows = no_windows(job).rows.schema
        made = {
            WINDOW: [0] * len(ends),
            WINDOW_END: ends,
            "c": [count for _, count in windows],
        }
        table = pa.table({f.name: pa.array(made[f.name]).cast(f.type) for f in rows}, rows)
        counts = {(0, end): Counts(1) for end in ends}
        c2 = C2(Reason.COMPLETE, 1.0, 1.0, 1.0, 1, ((1, 1),))
        left = JobWindows(job, table, counts, dict.fromkeys(counts, c2), at=1.0)
        progress = self.journal.progress
        progress.records += 1
        progress.ledger.add(Tally("web", POSITION, 10, end, None, 1, 0, 10 * end) for end in ends)
        self.journal.commit(self.catalog, Emission((left,)))

    def stored(self) -> list[tuple[int, int, int]]:
        """The number of each window, its count and its revision."""
        found = Results(self._state).read("j").to_pylist()
        return [
            (int(row["window_start"].timestamp()) // 10, row["c"], row["revision"]) for row in found
        ]


def test_tables_are_tidied_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What takes long is done while nobody waits for windows, and after a while in any case."""
    done: list[str] = []
    monkeypatch.setattr(Results, "sum_up", lambda _, job: done.append(job))
    monkeypatch.setattr(Results, "many_entries", property(lambda _: ["j"] if not done else []))
    journal = Journal(tmp_path, CATALOG, Blocks())
    for _ in range(49):
        journal.tidy(room=0.001)
    assert not done
    journal.tidy(room=0.001)  # it has waited for long enough
    assert done == ["j"]
    done.clear()
    journal.tidy(room=10.0)
    assert done == ["j"]
    done.clear()
    journal.tidy()
    assert done == ["j"]


def test_a_table_is_summed_up_apart_from_its_entries(tmp_path: Path) -> None:
    store, path = Recorder(tmp_path), tmp_path / "results" / "j" / "_delta_log"
    for number in range(20):
        store.commit((number, 1))
    assert not list(path.glob("*.checkpoint.parquet"))
    store.journal.tidy()
    assert len(list(path.glob("*.checkpoint.parquet"))) == 1
    store.commit((20, 1))
    assert len(store.stored()) == 21


def test_windows_need_not_wait_for_what_begins_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """New files are begun with a batch from which no window leaves, if one comes soon."""
    monkeypatch.setattr("muntin.store.journal.SAVES_PER_REWRITE", 4)
    store, folder = Recorder(tmp_path), tmp_path / "streams" / "s"
    store.commit((0, 1))

    def newest() -> str:
        return max(path.name for path in folder.glob("state-*"))

    first = newest()
    for number in range(1, 6):
        store.commit((number, 1))
    assert newest() == first
    store.journal.commit(CATALOG, Emission())
    second = newest()
    assert second > first
    for number in range(6, 14):
        store.commit((number, 1))
    assert newest() == second
    store.commit((14, 1))  # none has come
    assert newest() > second


def test_results_are_not_swallowed_after_the_state_was_lost(tmp_path: Path) -> None:
    first = Recorder(tmp_path)
    for number in range(5):
        first.commit((number, 1))
    shutil.rmtree(tmp_path / "streams")
    second = Recorder(tmp_path)
    (note,) = second.journal.notes
    assert note.startswith("stream 's' has no state, but results: job 'j' has windows up to 1970-")
    second.commit((0, 1), (1, 7))
    second.commit((2, 1), (9, 1))
    expected = [(0, 1, 0), (1, 7, 1), (2, 1, 0), (3, 1, 0), (4, 1, 0), (9, 1, 0)]
    assert second.stored() == expected
    again = Recorder(tmp_path)  # which knows of it, too
    assert again.journal.notes == []
    again.commit((3, 1), (4, 2), (10, 1))
    assert again.stored() == [*expected[:4], (4, 2, 1), *expected[5:], (10, 1, 0)]


def test_results_are_not_swallowed_after_an_old_state_was_put_back(tmp_path: Path) -> None:
    first = Recorder(tmp_path)
    first.commit((0, 1))
    shutil.copytree(tmp_path / "streams", tmp_path / "old")
    for number in range(1, 5):
        first.commit((number, 1))
    for _ in range(2):
        shutil.rmtree(tmp_path / "streams")
        shutil.copytree(tmp_path / "old", tmp_path / "streams")
        second = Recorder(tmp_path)
        (note,) = second.journal.notes
        assert "is of batch 0, older than batch 4 of its results" in note
    second.commit((1, 1), (2, 5))
    second.commit((7, 1))
    assert second.stored() == [(0, 1, 0), (1, 1, 0), (2, 5, 1), (3, 1, 0), (4, 1, 0), (7, 1, 0)]
    assert Recorder(tmp_path).journal.notes == []


def named(stream: str) -> Catalog:
    program = mt.sql(
        f"CREATE STREAM {stream} (t BIGINT) FROM 'none/{{source}}' FORMAT json TIMESTAMP t;"
        f"CREATE JOB j AS SELECT count(*) AS c FROM {stream} WINDOW 10 SECONDS;"
    )
    return Catalog.of(program.streams[stream], program.jobs_of(stream))


def test_a_stream_that_was_renamed_goes_on(tmp_path: Path) -> None:
    first = Recorder(tmp_path)
    first.commit((0, 1))
    renamed = Recorder(tmp_path, named("access"), ["access"])
    (note,) = renamed.journal.notes
    assert note == "stream 'access' goes on where stream 's' stood, which had the same jobs"
    assert (renamed.journal.batch, renamed.journal.progress.records) == (0, 1)
    renamed.commit((1, 1))
    assert renamed.stored() == [(0, 1, 0), (1, 1, 0)]
    assert [path.name for path in (tmp_path / "streams").iterdir()] == ["access"]


def test_a_stream_that_is_still_there_keeps_its_state(tmp_path: Path) -> None:
    Recorder(tmp_path).commit((0, 1))
    other = Recorder(tmp_path, named("access"), ["access", "s"])
    assert other.journal.batch == -1
    assert (tmp_path / "streams" / "s").exists()
