"""Agents into Spark: results are those of the logs, over restarts of either side."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

import pytest

import muntin as mt
from muntin.run.agents import Agents
from muntin.run.contracts import Batch, Request
from muntin.spark.runner import Settings, SparkRun
from tests.agent.serving import serving
from tests.relay.serving import relaying
from tests.run.test_agents import asked, expected, same, write
from tests.run.test_agents_relays import Servers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMES = [f"web{number:02}" for number in range(5)]


def test_results_are_those_of_the_logs(spark: SparkSession, tmp_path: Path) -> None:
    listed, state = tmp_path / "agents.txt", tmp_path / "state"

    def run(windows: int) -> None:
        """Goes on until so many rows are stored."""
        stop = Event()
        settings = Settings(state, follow=True, idle_seconds=1000.0, seconds=120.0)
        pipeline = SparkRun(mt.sql(asked([str(listed)])), spark.sparkContext, settings, stop)
        for _ in pipeline.turns():
            if mt.results("sums", state, window="all").num_rows >= windows:
                stop.set()

    for part in range(3):
        for name in NAMES:
            write(tmp_path / name, 200 * part, 200 * (part + 1))
        with ExitStack() as stack:
            places = [stack.enter_context(serving(name, tmp_path / name))[1] for name in NAMES]
            if part > 0:  # some of them behind a relay from now on, and in the end behind two
                behind = [stack.enter_context(relaying(*places[:3]))[1], *places[3:]]
                places = behind if part == 1 else [stack.enter_context(relaying(*behind))[1]]
            listed.write_text("\n".join(places))
            wanted = expected(tmp_path)["sums"]
            run(len(wanted) - 6)  # of the last windows more is awaited
            if part == 1:
                run(len(wanted) - 6)  # another pipeline on the same state
    rows = mt.results("sums", state, window="all").to_pylist()
    assert same(rows, wanted)
    assert {row["c2"]["reason"] for row in rows} == {"complete"}
    assert {row["c2"]["sources"] for row in rows} == {len(NAMES)}


def test_who_dies_while_being_read_ends_no_run(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relay first, which is gone round in the task; then an agent too, which costs a batch."""
    servers, state, stop = Servers(tmp_path), tmp_path / "state", Event()
    deaths = [("relay",), ("relay", "web01")]
    notes: list[str] = []
    look = Agents.next

    def next_(self: Agents, request: Request) -> Batch:
        batch = look(self, request)
        if batch.work is not None and request.sources and deaths:
            servers.end(*deaths.pop(0))
        return batch

    monkeypatch.setattr(Agents, "next", next_)
    settings = Settings(state, follow=True, idle_seconds=1000.0, seconds=120.0)
    program = mt.sql(asked([servers.places["relay"]]))
    pipeline = SparkRun(program, spark.sparkContext, settings, stop)
    written = 200
    for turn in pipeline.turns():
        notes += turn.notes
        if written < 400:
            servers.more(written, written + 50)
            written += 50
        for name in ("web01", "relay"):
            if name not in servers.parts:
                servers.start(name)
        wanted = expected(tmp_path)["sums"]
        found = mt.results("sums", state, window="all").num_rows
        if written == 400 and not deaths and found >= len(wanted) - 6:
            stop.set()
    servers.end()
    rows = mt.results("sums", state, window="all").to_pylist()
    assert not deaths
    assert len(rows) >= len(wanted) - 6
    assert same(rows, wanted)
    assert {row["c2"]["area"] for row in rows} == {1.0}
    assert len([note for note in notes if "it is asked again" in note]) == 1
