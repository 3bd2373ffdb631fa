"""Orders to a program whose logs are read by agents, which learn of them at the next look."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest

from muntin.language.program import sql
from muntin.run.agents import Agents
from muntin.run.door import Door
from muntin.run.inline import InlineRun
from muntin.run.loop import Rules
from muntin.run.results import Result
from muntin.run.succession import Effect
from muntin.wire.messages import Exchange, Heard
from tests.agent.serving import serving
from tests.run.test_agents import write

NAMES = ("web01", "web02")
JOB = """JOB sums (least DEFAULT 50) AS SELECT k, count(*) AS c FROM logs WHERE n >= $least
GROUP BY k ORDER BY k WINDOW 10 SECONDS EVERY 5 SECONDS"""
REPLACED = "CREATE OR REPLACE " + JOB.replace("DEFAULT 50", "DEFAULT 7").replace(
    "count(*)", "sum(n)"
)
Moment = dict[int, Result]  # windows by their start, in seconds


class Pipeline:
    """A run without Spark, whose turns are made here."""

    def __init__(self, places: list[str]) -> None:
        listed = ", ".join(map(repr, places))
        program = sql(f"CREATE STREAM logs FROM AGENTS {listed}; CREATE {JOB}")
        (stream,) = program.streams.values()
        self.intake, self.door = Agents(stream, "pipeline", None, 1000.0), Door()
        rules = Rules(True, 1000.0, sharing="shared")
        jobs = list(program.jobs.values())
        self.run = InlineRun(stream, jobs, rules, intake=self.intake, door=self.door)
        self.left: dict[int, Result] = {}

    def turn(self) -> None:
        for result in self.run.turn(time.time()).results():
            assert result.start // 1_000_000 not in self.left
            self.left[result.start // 1_000_000] = result

    def until(self, start: int) -> None:
        """Makes turns until a window has left."""
        limit = time.monotonic() + 60
        while start not in self.left:
            assert time.monotonic() < limit, sorted(self.left)
            self.turn()
            time.sleep(0.02)

    def order(self, text: str) -> Effect:
        visit = self.door.bring(text)
        self.turn()
        reply = visit.reply(0)
        assert reply is not None
        return reply.effects[0]


def records(upto: int) -> list[tuple[float, str, int]]:
    return [(1000 + i / 4 - (0.9 if i % 7 == 0 else 0), "ab"[i % 2], i) for i in range(upto)]


def counted(start: int, upto: int, at: float, least: int) -> dict[str, int]:
    """What a window has if the least number is another one from a position on."""
    found: Counter[str] = Counter()
    for t, k, n in records(upto):
        if start <= t < start + 10 and n >= (50 if t < at else least):
            found[k] += len(NAMES)
    return dict(found)


def summed(start: int, upto: int) -> dict[str, int]:
    found: Counter[str] = Counter()
    for t, k, n in records(upto):
        if start <= t < start + 10 and n >= 7:
            found[k] += n * len(NAMES)
    return dict(found)


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("order", ["SET sums.least = 450", REPLACED])
def test_windows_change_at_one_boundary(tmp_path: Path, order: str, ahead: bool) -> None:
    """With an agent that is `ahead`, as it had read on before it learned of the order."""
    for name in NAMES:
        write(tmp_path / name, 0, 400)
    with ExitStack() as stack:
        agents = [stack.enter_context(serving(n, tmp_path / n)) for n in NAMES]
        pipeline = Pipeline([place for _, place in agents])
        stack.callback(pipeline.intake.close)
        pipeline.until(1080)
        if ahead:
            write(tmp_path / "web01", 400, 500)
            time.sleep(0.5)  # for the agent to read it; if it has not, there is less to tell
        effect = pipeline.order(order)
        assert effect.position is not None
        at = effect.position / 1e6
        write(tmp_path / "web01", 500 if ahead else 400, 800)
        write(tmp_path / "web02", 400, 800)
        pipeline.until(1180)
    whole = 0
    for start, result in pipeline.left.items():
        if result.c2.area < 1.0:
            assert ahead, (start, result.c2.missing)
            assert {m.source for m in result.c2.missing} == {"web01"}
            assert "had read on before it knew of the job" in result.c2.missing[0].why
            continue
        whole += 1
        rows = dict(zip(*(result.rows[c].to_pylist() for c in ("k", "c")), strict=True))
        if order.startswith("SET"):
            assert result.version == 1
            assert rows == counted(start, 800, at, 450), start
        elif start < at:
            assert (result.version, rows) == (1, counted(start, 800, at, 50)), start
        else:
            assert (result.version, rows) == (2, summed(start, 800)), start
    assert whole > 25


def test_an_order_reaches_an_agent_with_the_first_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "web01", 0, 100)
    with serving("web01", tmp_path / "web01") as (agent, place):
        pipeline = Pipeline([place])
        try:
            pipeline.until(1005)
            told: list[Exchange] = []
            exchange = agent.exchange

            def heard(message: Exchange) -> Heard:
                told.append(message)
                return exchange(message)

            monkeypatch.setattr(agent, "exchange", heard)
            pipeline.order("SET sums.least = 10")
            assert [message.plan is not None for message in told] == [True]
            pipeline.turn()
            assert [message.plan is not None for message in told] == [True, False]
        finally:
            pipeline.intake.close()
