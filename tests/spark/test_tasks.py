"""Panes that tasks move: the same answers, nothing for the driver to hold, and nothing lost."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import duckdb
import pytest

import muntin as mt
from muntin.ask.answering import Asking
from muntin.ask.keeping import Retained
from muntin.errors import StateError
from muntin.kernel.merge import merge
from muntin.spark.runner import Settings, SparkRun
from muntin.spark.tasks import SparkTasks
from muntin.store import objects, settling
from tests.spark.sending import Sent
from tests.store.s3 import KEYS, make_bucket, s3_port

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["s3_port"]

T = TypeVar("T")
U = TypeVar("U")
PROGRAM = (
    "CREATE STREAM s (t DOUBLE, k VARCHAR, n BIGINT) FROM '{folder}/{{source}}.jsonl' FORMAT json "
    "TIMESTAMP t SLACK 1 SECOND RETAIN 1 DAY OF STREAM (k, n); "
    "CREATE JOB j AS SELECT k, count(*) AS c, sum(n) AS n FROM s GROUP BY k WINDOW 1 MINUTE "
    "RETAIN 1 DAY;"
)
QUESTIONS = (
    "SELECT k, count(*), sum(n) FROM {s} GROUP BY k ORDER BY ALL",
    "SELECT k, n FROM {s} WHERE k < 'key 2' ORDER BY ALL",
    "SELECT k, sum(c), sum(n) FROM j GROUP BY k ORDER BY ALL",
)


def write(folder: Path, records: int, keys: int) -> None:
    folder.mkdir(exist_ok=True)
    at, key = f"i * 600.0 / {records}", f"'key ' || (i * 7919 % {keys})"
    rows = f"SELECT round({at}, 6) AS t, {key} AS k, i AS n FROM range({records}) AS r(i)"
    duckdb.sql(f"COPY ({rows}) TO '{folder}/web-1.jsonl' (FORMAT json)")


def run(spark: SparkSession, folder: Path, state: Path | str, batch: int = 1 << 30) -> None:
    program = mt.sql(PROGRAM.format(folder=folder))
    settings = Settings(state, follow=False, batch_bytes=batch)
    for _ in SparkRun(program, spark.sparkContext, settings).turns():
        pass


def retained(state: Path | str) -> dict[str, Retained]:
    return {title: several[-1] for title, several in Asking(state)._keeping.jobs().items()}


def answers(state: Path | str) -> list[list[tuple[Any, ...]]]:
    asking = Asking(state)
    found = []
    for question in QUESTIONS:
        answer = asking.ask(question.format(s="s"))
        assert answer.c2.area == 1.0
        found.append([tuple(row.values()) for row in answer.rows.to_pylist()])
    return found


def truth(folder: Path) -> list[list[tuple[Any, ...]]]:
    con = duckdb.connect()
    con.execute(f"CREATE TABLE s AS SELECT * FROM '{folder}/web-1.jsonl'")
    con.execute("CREATE TABLE j AS SELECT k, count(*) AS c, sum(n)::BIGINT AS n FROM s GROUP BY 1")
    return [con.execute(question.format(s="s")).fetchall() for question in QUESTIONS]


@pytest.fixture
def in_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Panes move with every commit, in tasks, and in small shares."""
    monkeypatch.setattr("muntin.store.journal._WORTH_MOVING", 0)
    monkeypatch.setattr("muntin.spark.tasks.BY_DRIVER", -1)
    monkeypatch.setattr("muntin.store.settling.SHARE_BYTES", 20_000)
    monkeypatch.setattr("muntin.spark.collection.SAVED_BY_DRIVER", 1 << 14)


def test_panes_that_tasks_move_answer_as_those_that_the_driver_moves(
    spark: SparkSession, tmp_path: Path, in_tasks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "logs", 6_000, 40)
    run(spark, tmp_path / "logs", tmp_path / "tasks", 60_000)
    monkeypatch.setattr("muntin.spark.tasks.BY_DRIVER", 1 << 60)
    run(spark, tmp_path / "logs", tmp_path / "driver", 60_000)
    wanted = truth(tmp_path / "logs")
    for state in (tmp_path / "tasks", tmp_path / "driver"):
        kept = retained(state)
        assert all(kept[title].panes.files for title in "sj")
        assert answers(state) == wanted
    by_tasks, by_driver = (retained(tmp_path / name)["s"].panes for name in ("tasks", "driver"))
    assert by_tasks.moved == by_driver.moved
    assert sum(f.rows for f in by_tasks.files.values()) == sum(
        f.rows for f in by_driver.files.values()
    )


def test_what_reaches_the_driver_does_not_grow_with_retained_rows(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("muntin.store.journal._WORTH_MOVING", 0)
    monkeypatch.setattr("muntin.spark.tasks.BY_DRIVER", 1 << 17)
    sent, sizes = Sent(monkeypatch), []
    decoded = _counted_here(monkeypatch)
    for records in (20_000, 80_000):
        folder = tmp_path / f"{records}"
        write(folder, records, records)
        sent.bytes, decoded.rows = 0, 0
        run(spark, folder, folder / "state")
        kept = retained(folder / "state")
        for title in "sj":
            shape, files = kept[title].shape.id, kept[title].panes.files.values()
            assert sum(file.rows for file in files if file.shape == shape) == records
        assert decoded.rows == 0  # of saved blocks, in this process
        sizes.append(sent.bytes)
    assert sizes[1] < 1.3 * sizes[0] < 150_000, sizes


@dataclass
class _Decoded:
    rows: int = 0


def _counted_here(patch: pytest.MonkeyPatch) -> _Decoded:
    """The rows of saved blocks that this process merges."""
    counted = _Decoded()

    def counting(shape: Any, tables: Sequence[Any]) -> Any:
        counted.rows += sum(table.num_rows for table in tables)
        return merge(shape, tables)

    patch.setattr("muntin.store.settling.merge", counting)
    return counted


@dataclass(frozen=True)
class Troubled:
    """What is done in a task, and what happens once a share was done; the flag has its file."""

    do: Callable[[Any], Any]
    trouble: Callable[[], None]
    flag: Path

    def __call__(self, item: Any) -> Any:
        done = self.do(item)
        if isinstance(item, settling.Share) and not self.flag.exists():
            self.flag.write_text(" ".join(done))
            self.trouble()
        return done


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def refuse() -> None:
    raise StateError("the storage has gone away")


def give_trouble(patch: pytest.MonkeyPatch, trouble: Callable[[], None], flag: Path) -> None:
    call = SparkTasks.__call__

    def troubled(tasks: SparkTasks, do: Callable[[T], U], items: Sequence[T], size: int) -> list[U]:
        return call(tasks, Troubled(do, trouble, flag), items, size)

    patch.setattr(SparkTasks, "__call__", troubled)


def test_a_worker_that_is_killed_while_panes_move_leaves_each_in_one_place(
    spark: SparkSession, tmp_path: Path, in_tasks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "logs", 4_000, 30)
    state, flag = tmp_path / "state", tmp_path / "flag"
    give_trouble(monkeypatch, die, flag)
    run(spark, tmp_path / "logs", state)  # Spark has the task done again
    assert answers(state) == truth(tmp_path / "logs")
    panes = retained(state)["s"].panes
    assert panes.files
    (written,) = flag.read_text().split()  # of which nobody was told
    assert written not in panes.files
    assert not panes.strays()


def test_what_a_task_raises_while_panes_move_ends_the_run_and_nothing_has_moved(
    spark: SparkSession, tmp_path: Path, in_tasks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "logs", 4_000, 30)
    state, flag = tmp_path / "state", tmp_path / "flag"
    give_trouble(monkeypatch, refuse, flag)
    with pytest.raises(StateError, match=r"^the storage has gone away$"):
        run(spark, tmp_path / "logs", state, 30_000)
    for _ in range(2):
        run(spark, tmp_path / "logs", state, 30_000)
        assert answers(state) == truth(tmp_path / "logs")
    panes = retained(state)["s"].panes
    assert panes.files
    assert not panes.strays()


@pytest.fixture
def url(s3_port: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    bucket = f"panes-{os.getpid()}"
    make_bucket(s3_port, bucket)
    for name, value in {**KEYS, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{s3_port}"}.items():
        monkeypatch.setenv(name, value)
    objects._opened.cache_clear()
    yield f"s3://{bucket}/state"
    objects._opened.cache_clear()


def test_panes_of_a_state_under_a_url_move_in_tasks_and_here(
    spark: SparkSession,
    tmp_path: Path,
    in_tasks: None,
    url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write(tmp_path / "logs", 3_000, 20)
    for name, by_driver in (("tasks", -1), ("driver", 1 << 60)):
        state = f"{url}/{name}"
        monkeypatch.setattr("muntin.spark.tasks.BY_DRIVER", by_driver)
        run(spark, tmp_path / "logs", state, 60_000)
        kept = retained(state)
        assert all(kept[title].panes.files for title in "sj")
        assert answers(state) == truth(tmp_path / "logs")
        monkeypatch.setattr(objects, "_AT_ONCE", 1_000)  # here, larger objects are read by ranges
