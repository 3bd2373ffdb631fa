"""How work is shared out among tasks, and what steps hold and let go."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from muntin.errors import StateError
from muntin.fidelity.scoreboard import Source
from muntin.kernel.block import Block
from muntin.kernel.due import Due, Emitted
from muntin.language.program import sql
from muntin.model.jobs import Job, Program
from muntin.run.catalog import Catalog
from muntin.run.contracts import Answer, Request
from muntin.run.files import LogFiles
from muntin.spark.collection import SparkCollection
from muntin.spark.policies import Span
from muntin.store.blocks import BlockFiles
from muntin.store.storage import LocalFolder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECOND = 1_000_000


def at_hand(answer: Answer) -> list[dict[str, Any]]:
    """The rows of the job, which are few."""
    found = answer.rows["j"]
    assert isinstance(found, pa.Table)
    rows: list[dict[str, Any]] = found.to_pylist()
    return rows


class Collected:
    """A collection of one stream, read by and by."""

    def __init__(self, spark: SparkSession, folder: Path, job: str) -> None:
        self.folder = folder
        self.program: Program = sql(
            f"CREATE STREAM logs (t BIGINT, k VARCHAR, n BIGINT) FROM '{folder}/{{source}}.jsonl' "
            f"FORMAT json TIMESTAMP t; CREATE JOB j AS {job};"
        )
        self.jobs: dict[str, Job] = dict(self.program.jobs)
        stream = self.program.streams["logs"]
        self.catalog = Catalog.of(stream, self.jobs.values())
        self.files = LogFiles(stream, True)
        self.sources: dict[str, Source] = {}
        self.collection = SparkCollection(spark.sparkContext)

    def read(self, source: str, *records: tuple[int, str, int]) -> None:
        with (self.folder / f"{source}.jsonl").open("a") as file:
            for t, k, n in records:
                file.write(json.dumps({"t": t, "k": k, "n": n}) + "\n")
        batch = self.files.next(Request(1.0, True, None, self.sources, 0, None))
        assert batch.work is not None
        for reading in self.collection.add(batch.work, self.catalog.recipes, {}):
            self.sources[reading.source] = Source(sequence=reading.sequence)

    def rows(self, *ends: int) -> list[dict[str, Any]]:
        answer = self.collection.answer(self.catalog, Due({"j": [list(ends)]}), None)
        return at_hand(answer)

    def saved(self) -> list[Block]:
        return saved(self.collection, self.catalog)


def saved(collection: SparkCollection, catalog: Catalog) -> list[Block]:
    """What the collection has to save, of which tasks may have written all or a part."""
    to_save = collection.answer(catalog, Due(), {}).to_save
    return [block for blocks in to_save.blocks.values() for block in blocks]


def files_of(folder: Path, *blocks: Block) -> BlockFiles:
    """Blocks as a state has them: each in a file of its own, as if tasks had written it."""
    files = BlockFiles(LocalFolder(folder / "state"))
    return replace(files, lengths=dict(files.write([block]) for block in blocks))


SUMS = "SELECT k, sum(n) AS n FROM logs GROUP BY k WINDOW 10 SECONDS"


@pytest.mark.parametrize("waits", [False, True])  # in the files of the shuffle, not merged
def test_steps_know_what_they_hold_and_go_when_no_window_needs_them(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waits: bool
) -> None:
    monkeypatch.setattr("muntin.spark.policies.ROWS_THAT_WAIT", 4 if waits else 1)
    run = Collected(spark, tmp_path, SUMS)
    job = run.jobs["j"]
    run.read("web-1", (1, "a", 1), (12, "b", 2))
    run.read("web-1", (13, "a", 3), (25, "a", 4))
    steps = run.collection.steps
    shape, pane = job.shape.id, 10 * SECOND
    assert [step.spans for step in steps] == [
        (Span(shape, pane, 0, 2),),
        (Span(shape, pane, 1, 3),),
    ]
    assert [step.held.is_cached for step in steps] == [not waits, not waits]
    assert [(row["k"], row["n"]) for row in run.rows(1, 2)] == [("a", 1), ("a", 3), ("b", 2)]
    run.collection.forget(run.catalog, {shape: Emitted({job.windows[0]: 1})})
    assert run.collection.steps == steps
    run.collection.forget(run.catalog, {shape: Emitted({job.windows[0]: 2})})
    assert run.collection.steps == steps[1:]
    assert [step.held.is_cached for step in steps] == [False, not waits]
    assert [row["n"] for row in run.rows(3)] == [4]
    run.collection.forget(run.catalog, {shape: Emitted({job.windows[0]: 3})})
    assert run.collection.steps == ()
    run.collection.compact(run.catalog)
    assert run.saved() == []


def test_every_block_is_saved_once_and_comes_back(spark: SparkSession, tmp_path: Path) -> None:
    run = Collected(spark, tmp_path, SUMS)
    run.read("web-1", (1, "a", 1), (12, "b", 2))
    first = run.saved()
    assert run.saved() == []
    run.read("web-2", (3, "a", 5))
    second = run.saved()
    assert {name for block in first for name in block.sources.names} == {"web-1"}
    assert {name for block in second for name in block.sources.names} == {"web-2"}
    assert {block.sequence for block in (*first, *second)} == {1}  # each the first of its source
    assert all(block.records == 2 for block in first)
    gone = [replace(block, shape="gone") for block in first]
    again = SparkCollection(spark.sparkContext)
    again.restore(run.catalog, files_of(tmp_path, *first, *second, *first, *gone))
    due = Due({"j": [[1, 2]]})
    rows = at_hand(again.answer(run.catalog, due, None))
    assert [(row["k"], row["n"]) for row in rows] == [("a", 6), ("b", 2)]
    again.compact(run.catalog)
    assert sum(block.rows for block in saved(again, run.catalog)) == 2
    again.clear()


def test_groups_of_which_nothing_is_needed_any_more_are_merged_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    both = f"{SUMS}; CREATE JOB long AS SELECT k, max(n) AS n FROM logs GROUP BY k WINDOW 1 HOUR"
    run = Collected(spark, tmp_path, both)
    run.read("web-1", *((1, f"k{n}", n) for n in range(9)))
    run.read("web-1", (12, "a", 3))
    job = run.jobs["j"]
    run.collection.forget(run.catalog, {job.shape.id: Emitted({job.windows[0]: 1})})
    for _ in range(2):  # of some groups only the rows of the long windows are left
        run.collection.compact(run.catalog)
    assert [(row["k"], row["n"]) for row in run.rows(2)] == [("a", 3)]
    blocks = run.saved()
    assert sum(block.rows for block in blocks if block.shape == job.shape.id) == 1
    assert sum(block.rows for block in blocks if block.shape != job.shape.id) == 10


def test_many_blocks_are_saved_by_tasks(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Collected(spark, tmp_path, SUMS)
    files = BlockFiles(LocalFolder(tmp_path / "state"))
    run.collection = SparkCollection(spark.sparkContext, files)
    run.read("web-1", *((1, f"k{n}", n) for n in range(50)))
    assert not run.collection.answer(run.catalog, Due(), {}).to_save.files
    monkeypatch.setattr("muntin.spark.collection.SAVED_BY_DRIVER", 0)
    run.read("web-1", *((2, f"k{n}", n) for n in range(50)))
    to_save = run.collection.answer(run.catalog, Due(), {}).to_save
    assert not to_save.blocks
    assert len(to_save.files) == 2  # one a task
    again = SparkCollection(spark.sparkContext)
    again.restore(run.catalog, replace(files, lengths=to_save.files))
    run.collection = again
    assert sorted((row["k"], row["n"]) for row in run.rows(1)) == sorted(
        (f"k{n}", n) for n in range(50)
    )
    (name, length), *_ = to_save.files.items()
    files.folder.put(name, files.folder.read(name)[:-1])
    with pytest.raises(StateError, match=f"{name} is damaged"):
        again.restore(run.catalog, replace(files, lengths={name: length}))
    again.clear()


def test_blocks_come_back_with_any_number_of_key_groups(
    spark: SparkSession, tmp_path: Path
) -> None:
    run = Collected(spark, tmp_path, SUMS)
    keys = [f"k{number}" for number in range(20)]
    for n in (1, 10):
        run.read("web-1", *((1, key, n) for key in keys))
    run.collection.compact(run.catalog)
    before = SparkCollection(spark.sparkContext)
    before.groups = 5
    before.restore(run.catalog, files_of(tmp_path, *run.saved()))
    before.compact(run.catalog)
    blocks = saved(before, run.catalog)
    assert len(blocks) > 1
    for groups in (1, 3, 8):
        again = SparkCollection(spark.sparkContext)
        again.groups = groups
        again.restore(run.catalog, files_of(tmp_path, *blocks))
        rows = at_hand(again.answer(run.catalog, Due({"j": [[1]]}), None))
        assert sorted((row["k"], row["n"]) for row in rows) == sorted((key, 11) for key in keys)
        again.clear()
    before.clear()


def test_jobs_that_are_gone_leave_nothing_behind(spark: SparkSession, tmp_path: Path) -> None:
    run = Collected(spark, tmp_path, SUMS)
    run.read("web-1", (1, "a", 1))
    none = run.catalog.without("j")
    run.collection.compact(none)
    assert [step.spans for step in run.collection.steps] == [()]
    run.collection.forget(none, {})
    assert run.collection.steps == ()


def test_later_rounds_run_in_tasks(spark: SparkSession, tmp_path: Path) -> None:
    job = "PYTHON 'tests.python_jobs:Most' FROM logs WINDOW 10 SECONDS, 20 SECONDS"
    run = Collected(spark, tmp_path, job)
    run.read("web-1", *((t, f"key {t % 7}", t) for t in range(40)))
    answer = run.collection.answer(run.catalog, Due({"j": [[1, 2, 3, 4], [2, 4]]}), None)
    rows = at_hand(answer)
    longer = [(row["k"], row["n"]) for row in rows if row["__window"]]
    assert longer == [("key 5", 36), ("key 4", 96)]
    assert len(rows) == 6
    assert os.getpid() not in {row["process"] for row in rows}
