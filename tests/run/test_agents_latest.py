"""LATEST at agents: they join records with the result that counts, from one pane on for all."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from muntin.agent.agent import Agent
from muntin.errors import LanguageError
from muntin.language.program import sql
from muntin.run import tables
from muntin.run.agents import Agents
from muntin.run.derived import Readers
from muntin.run.inline import InlineRun
from muntin.run.loop import Rules
from muntin.run.results import Result
from tests.agent.serving import serving
from tests.relay.serving import relaying
from tests.waiting import wait_for

JOBS = """
CREATE JOB hot AS SELECT k, count(*) AS n FROM logs GROUP BY k ORDER BY n DESC, k LIMIT 1
WINDOW 10 SECONDS;
CREATE JOB watched AS SELECT logs.k, count(*) AS n FROM logs JOIN LATEST(hot) l USING (k)
GROUP BY logs.k WINDOW 10 SECONDS;
"""
LOOKED_UP = JOBS.replace("JOIN LATEST(hot) l USING (k)", "WHERE k IN (SELECT k FROM LATEST(hot))")
STEP = 10


def write(folder: Path, step: int, keys: str) -> None:
    folder.mkdir(exist_ok=True)
    with (folder / "a.log").open("a") as file:
        for key in keys:
            file.write(json.dumps({"t": 1000 + STEP * step + 5, "k": key}) + "\n")


class Pipeline:
    """A run without Spark, whose jobs hear what has left."""

    def __init__(self, places: list[str], jobs: str = JOBS) -> None:
        program = sql(f"CREATE STREAM logs FROM AGENTS {', '.join(map(repr, places))}; {jobs}")
        stream = program.streams["logs"]
        self.intake = Agents(stream, "pipeline", idle_seconds=1000.0)
        self.notes: list[str] = []
        rules = Rules(True, 1000.0, sharing="shared")
        mine = list(program.jobs.values())
        self.run = InlineRun(stream, mine, rules, self.notes.append, self.intake)
        self._readers = Readers([], [self.run.loop])
        self.results: dict[tuple[str, int], Result] = {}

    def turn(self) -> None:
        emission = self.run.turn(time.time())
        self._readers.hand_on(self.run.loop, emission)
        for result in emission.results():
            self.results[result.job, (result.start // 1_000_000 - 1000) // STEP] = result

    def until(self, job: str, step: int, *agents: Agent) -> None:
        """Makes turns until a window has left, and one more, with which agents hear of it.

        Who reads on before it has obeyed counts nothing of the panes that follow: that is awaited.
        """
        limit = time.monotonic() + 60
        while (job, step) not in self.results:
            assert time.monotonic() < limit, (self.results.keys(), self.notes)
            self.turn()
            time.sleep(0.02)
        self.turn()
        newest = self.run.loop.progress.tables["__latest_hot"][-1].number
        wait_for(lambda: all(_joined(agent) == newest for agent in agents))

    def rows(self, job: str, step: int) -> dict[str, int]:
        found = self.results.get((job, step))
        return {} if found is None else {r["k"]: r["n"] for r in found.rows.to_pylist()}


def hottest(*several: str) -> str:
    counts = Counter("".join(several))
    return min(counts.items(), key=lambda each: (-each[1], each[0]))[0]


def _joined(agent: Agent) -> int | None:
    """The last result that an agent joins records with."""
    reader = agent._served["logs"].reader
    return None if reader is None else reader._joined.get("__latest_hot")


def has_read(agent: Agent, step: int) -> None:
    """Waits until an agent has counted the records of a step."""
    limit = time.monotonic() + 30
    while True:
        served = agent._served.get("logs")
        reader = served.reader if served is not None else None
        times = [s.time for s in reader.sources.values() if s.time] if reader is not None else []
        if times and min(times) >= (1000 + STEP * step) * 1_000_000:
            return
        assert time.monotonic() < limit
        time.sleep(0.02)


@contextmanager
def two(folder: Path, jobs: str = JOBS) -> Iterator[tuple[list[Agent], Pipeline]]:
    """Two agents, one of them behind a relay, and who reads them."""
    with ExitStack() as stack:
        served = [stack.enter_context(serving(n, folder / n, slack="")) for n in ("web1", "web2")]
        agents, (first, second) = [agent for agent, _ in served], [place for _, place in served]
        pipeline = Pipeline([stack.enter_context(relaying(first))[1], second], jobs)
        stack.callback(pipeline.intake.close)
        yield agents, pipeline


STEPS = [
    ("xxy", "yx"),
    ("yy", "x"),
    ("xyz", "zzx"),
    ("y", "xx"),
    ("zx", "zy"),
    ("x", "y"),
    ("x", "x"),
]


@pytest.mark.parametrize("jobs", [JOBS, LOOKED_UP], ids=["joined", "looked up"])
def test_rows_are_those_of_counting_by_hand(tmp_path: Path, jobs: str) -> None:
    for name in ("web1", "web2"):
        write(tmp_path / name, -1, "w")  # from where on both are there
    with two(tmp_path, jobs) as (agents, pipeline):
        for number, step in enumerate(STEPS):
            for name, keys in zip(("web1", "web2"), step, strict=True):
                write(tmp_path / name, number, keys)
            if number:
                pipeline.until("hot", number - 1, *agents)
    for number in range(2, len(STEPS) - 1):
        seen, (one, other) = hottest(*STEPS[number - 2]), STEPS[number]
        count = (one + other).count(seen)
        assert pipeline.rows("watched", number) == ({seen: count} if count else {})
        if count:
            result = pipeline.results["watched", number]
            assert (result.c2.area, str(result.c2.reason)) == (1.0, "complete")
            (used,) = result.used
            assert used[:3] == ("hot", "10 seconds", (1000 + STEP * (number - 1)) * 1_000_000)


def test_an_agent_that_had_read_on_counts_nothing_by_an_older_result(tmp_path: Path) -> None:
    """Of panes that it has joined with the result of before, C² says that they are lost."""
    for name in ("web1", "web2"):
        write(tmp_path / name, -1, "w")
        write(tmp_path / name, 0, "xx")
        write(tmp_path / name, 1, "y")
    with two(tmp_path) as (agents, pipeline):
        limit = time.monotonic() + 60
        while ("hot", 0) not in pipeline.results:
            assert time.monotonic() < limit
            pipeline.turn()
            time.sleep(0.02)
        write(tmp_path / "web1", 2, "xxx")  # before anybody is told
        has_read(agents[0], 2)
        pipeline.turn()
        write(tmp_path / "web1", 2, "xx")
        write(tmp_path / "web2", 2, "x")
        for number in (3, 4, 5):
            for name in ("web1", "web2"):
                write(tmp_path / name, number, "xy")
            pipeline.until("hot", number - 1, *agents)
    assert pipeline.rows("hot", 2) == {"x": 6}
    assert pipeline.rows("watched", 2) == {"x": 1}
    (missing,) = pipeline.results["watched", 2].c2.missing
    why = "lost: its agent had read on before it had the newest result of job hot"
    assert (missing.source, missing.why) == ("web1", why)
    assert pipeline.results["hot", 2].c2.area == 1.0
    assert pipeline.rows("watched", 4) == {"x": 2}
    assert pipeline.results["watched", 4].c2.area == 1.0


def test_an_agent_that_was_away_catches_up(tmp_path: Path) -> None:
    """It is stopped and comes back with its state, in another process as far as it knows."""
    with ExitStack() as stack:
        write(tmp_path / "web1", -1, "w")
        listed = tmp_path / "agents.txt"
        served = ExitStack()
        agent, place = served.enter_context(serving("web1", tmp_path / "web1", slack=""))
        listed.write_text(place)
        pipeline = Pipeline([str(listed)])
        stack.callback(pipeline.intake.close)
        steps = ["xxy", "yyx", "xyy", "xxy", "xyx", "xy", "xy"]
        for number, keys in enumerate(steps):
            if number == 3:
                served.close()
                served = ExitStack()
                agent, place = served.enter_context(serving("web1", tmp_path / "web1", slack=""))
                listed.write_text(place)
                pipeline.turn()
            write(tmp_path / "web1", number, keys)
            if number:
                pipeline.until("hot", number - 1, agent)
        served.close()
    for number in range(2, len(steps) - 1):
        seen = hottest(steps[number - 2])
        assert pipeline.rows("watched", number) == {seen: steps[number].count(seen)}
        assert pipeline.results["watched", number].c2.area == 1.0


def test_a_result_that_is_too_large_for_agents_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "MOST_BYTES_TO_AGENTS", 10)
    write(tmp_path / "web1", 0, "x")
    write(tmp_path / "web1", 1, "x")
    with serving("web1", tmp_path / "web1", slack="") as (_, place):
        pipeline = Pipeline([place])
        pipeline.until("hot", 0)
        write(tmp_path / "web1", 2, "x")
        pipeline.until("hot", 1)
        pipeline.intake.close()
    told: list[Any] = [note for note in pipeline.notes if "LATEST(hot)" in note]
    assert told
    assert "that are sent to agents; the result from before stays" in told[0]


def test_sessions_of_agents_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "web1", 0, "x")
    with serving("web1", tmp_path / "web1", slack="") as (_, place):
        text = JOBS.replace(
            "GROUP BY logs.k WINDOW 10 SECONDS", "GROUP BY logs.k WINDOW SESSION 5 SECONDS"
        )
        with pytest.raises(LanguageError, match="agents use another job's result from a pane on"):
            sql(f"CREATE STREAM logs FROM AGENTS {place!r}; {text}")
