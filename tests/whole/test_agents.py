"""Agents into Spark: results are those of the logs, over restarts of either side."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

import muntin as mt
from muntin.spark.runner import Settings, SparkRun
from tests.agent.serving import serving
from tests.relay.serving import relaying
from tests.run.test_agents import asked, expected, same, write

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
