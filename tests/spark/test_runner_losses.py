"""Blocks that are gone come back from the last commit, at whatever moment they go.

All that executors hold is dropped here, which Spark tells as it tells the loss of an executor. Real
ones are killed in test_cluster.py.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from pyspark.sql import SparkSession

import muntin as mt
from muntin.errors import LostError
from muntin.run.door import Door
from muntin.run.loop import Turn
from muntin.spark.runner import Settings, SparkRun
from muntin.spark.tasks import SparkTasks
from muntin.store.checkpoint import saved_in
from muntin.store.results import Results
from muntin.store.status import recoveries
from tests.spark.test_runner import BASE, STREAM, stored, write

pytestmark = pytest.mark.usefixtures("looking_at_all")

MORE = """
CREATE JOB sliding AS SELECT k, sum(n) AS n, count(*) AS c FROM logs GROUP BY k
WINDOW 30 SECONDS EVERY 10 SECONDS;
CREATE JOB over AS SELECT sum(n) AS n FROM JOB sums WINDOW 20 SECONDS;
"""


@pytest.fixture(autouse=True)
def on_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("muntin.spark.collection.is_local", lambda _: False)
    monkeypatch.setattr(SparkRun, "_rest", lambda *_: None)  # turns are taken by hand


def lose(spark: SparkSession) -> None:
    """All blocks that steps have."""
    for rdd in spark.sparkContext._jsc.getPersistentRDDs().values():
        rdd.unpersist()


def following(
    spark: SparkSession, folder: Path, door: Door | None = None, more: str = MORE
) -> Iterator[Turn]:
    program = mt.sql(STREAM.format(folder=folder / "logs", slack="") + more)
    settings = Settings(folder / "state", follow=True, idle_seconds=600)
    clock = lambda: BASE + 1000.0  # noqa: E731
    return SparkRun(program, spark.sparkContext, settings, Event(), clock, door=door).turns()


def rows(folder: Path, job: str) -> list[tuple[int, int]]:
    """Start and value of windows, each of which is there once."""
    found = Results(folder / "state").read(job).to_pylist()
    assert all(row["c2"]["area"] == 1.0 for row in found)
    return sorted((int(r["window_start"].timestamp()) - BASE, r["n"]) for r in found)


@pytest.mark.parametrize("seed", range(2))
def test_losses_at_any_moment_change_nothing(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    last = 80
    notes: list[str] = []
    write(tmp_path / "logs", "web-1", (0, "a", 1))
    turns = following(spark, tmp_path)
    for second in range(1, last + 1, 4):
        write(tmp_path / "logs", "web-1", *((second + n, "a", 1) for n in range(4)))
        notes += (note for _ in range(chance.randint(1, 5)) for note in next(turns).notes)
        if chance.random() < 0.4:
            lose(spark)
    while not stored(tmp_path) or stored(tmp_path)[-1][0] < last - 10 or rows_behind(tmp_path):
        notes += next(turns).notes
    turns.close()  # type: ignore[attr-defined]
    lost = [note for note in notes if "goes on from its last commit" in note]
    assert lost
    assert all(note.endswith("Spark has lost an executor, with what it held") for note in lost)
    assert stored(tmp_path) == [(start, "a", 10, 10) for start in range(0, last, 10)]
    assert rows(tmp_path, "sliding") == [
        (start, min(start + 30, 30)) for start in range(-20, last - 20, 10)
    ]
    assert rows(tmp_path, "over") == [(start, 20) for start in range(0, last - 10, 20)]


def rows_behind(folder: Path) -> bool:
    """Whether windows over windows have still to leave."""
    results = Results(folder / "state")
    return not results.has("over") or len(rows(folder, "over")) < 4


def test_what_is_lost_while_panes_move_in_a_rest_moves_later(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("muntin.store.journal._WORTH_A_REST", 0)
    monkeypatch.setattr("muntin.spark.runner.POLL_SECONDS", 60.0)  # which nobody waits for here
    call, times = SparkTasks.__call__, [0]

    def lost_once(tasks: SparkTasks, do: Any, items: Any, size: int) -> list[Any]:
        times[0] += 1
        if times[0] == 2:
            raise LostError("Spark has lost an executor", "look")
        return call(tasks, do, items, size)

    monkeypatch.setattr(SparkTasks, "__call__", lost_once)
    more = MORE.replace("EVERY 10 SECONDS;", "EVERY 10 SECONDS RETAIN 1 DAY;")
    write(tmp_path / "logs", "web-1", *((second, "a", 1) for second in range(60)))
    turns, notes = following(spark, tmp_path, more=more), list[str]()
    for second in range(60, 160):
        write(tmp_path / "logs", "web-1", (second, "a", 1))
        notes += next(turns).notes
    turns.close()  # type: ignore[attr-defined]
    told = [note for note in notes if "goes on from its last commit" in note]
    assert told == ["stream 'logs' goes on from its last commit: Spark has lost an executor"]
    assert saved_in(tmp_path / "state")["logs"].panes
    answer = mt.ask("SELECT sum(c) AS c FROM sliding", state=tmp_path / "state")
    (counted,) = answer.rows.column("c").to_pylist()
    assert answer.c2.area > 0.9
    assert 130 <= counted <= 160  # as far as it was committed
    assert counted == sum(1 for second in range(160) if BASE + second < answer.ranges[0].end / 1e6)


def test_what_is_lost_again_and_again_ends_the_run(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("muntin.spark.runner.WAITS", (0.0, 0.0))
    write(tmp_path / "logs", "web-1", (0, "a", 1))
    turns = following(spark, tmp_path)
    next(turns)

    def lost(*_: object) -> None:
        raise LostError("Spark has lost an executor", "look")

    monkeypatch.setattr("muntin.spark.collection.SparkCollection.add", lost)
    write(tmp_path / "logs", "web-1", (1, "a", 1))
    told: list[str] = []
    with pytest.raises(LostError, match="Spark has lost an executor; look"):
        told += (note for turn in turns for note in turn.notes)


def test_an_order_is_followed_although_blocks_were_lost(
    spark: SparkSession, tmp_path: Path
) -> None:
    write(tmp_path / "logs", "web-1", (0, "a", 1), (5, "a", 1))
    door = Door()
    turns = following(spark, tmp_path, door)
    next(turns)
    visit = door.bring("CREATE JOB more AS SELECT count(*) AS n FROM logs WINDOW 5 SECONDS")
    lose(spark)
    notes: list[str] = []
    while (reply := visit.reply(0)) is None:
        notes += next(turns).notes
    assert [effect.job for effect in reply.effects] == ["more"]
    turns.close()  # type: ignore[attr-defined]


def finite(spark: SparkSession, folder: Path, recovery: float) -> Iterator[Turn]:
    """A run over what is there, in batches of a kilobyte, that is due to leave at its end."""
    program = mt.sql(STREAM.format(folder=folder / "logs", slack="") + MORE)
    settings = Settings(folder / "state", follow=False, batch_bytes=1 << 10, recovery=recovery)
    return SparkRun(program, spark.sparkContext, settings, Event()).turns()


@pytest.mark.parametrize("seed", range(2))
def test_a_finite_run_goes_on_from_what_it_saved_on_the_way(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    """Executors and whole runs are lost between any two batches; all is counted once."""
    chance = random.Random(seed)
    for source in ("web-1", "web-2"):
        write(tmp_path / "logs", source, *((second, "a", 1) for second in range(120)))
    notes: list[str] = []
    read, runs = 0, 0
    while turns := finite(spark, tmp_path, recovery=1e-3):
        runs += 1
        for turn in turns:
            notes += turn.notes
            read += turn.bytes
            if chance.random() < 0.3:
                lose(spark)
            if chance.random() < 0.2 and runs < 5:
                break
        else:
            break
        turns.close()  # type: ignore[attr-defined]
    assert stored(tmp_path) == [(start, "a", 20, 20) for start in range(0, 120, 10)]
    assert rows(tmp_path, "sliding")[2:-2] == [(start, 60) for start in range(0, 100, 10)]
    assert rows(tmp_path, "over") == [(start, 40) for start in range(0, 120, 20)]
    assert not any(known.saved for known in recoveries(tmp_path / "state").values())
    size = sum(path.stat().st_size for path in (tmp_path / "logs").rglob("*.log"))
    assert size <= read
    back = [note for note in notes if "stands where it stood" in note]
    assert len(back) <= len([note for note in notes if "goes on from its last commit" in note])
