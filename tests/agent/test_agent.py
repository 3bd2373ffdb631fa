"""What an agent does with jobs that it cannot run, and for pipelines that go and come."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from muntin.agent.agent import Agent
from muntin.agent.settings import AgentSettings, StreamSettings
from muntin.errors import WireError
from muntin.wire.messages import Exchange, Fetch, Plan, unpack
from tests.wire.test_messages import plan


class Visited:
    """An agent in this thread, and a clock."""

    def __init__(self, folder: Path) -> None:
        self.now = 1000.0
        (folder / "a.log").write_text("".join(f'{{"t": {t}, "k": "a", "n": 2}}\n' for t in (1, 99)))
        streams = {"logs": StreamSettings((str(folder / "*.log"),))}
        self.agent = Agent(AgentSettings("web01", folder, streams), lambda: self.now)

    def exchange(self, pipeline: str, final: int = 0, with_: Plan | None = None) -> int:
        asked = with_ or plan()
        told = Exchange(pipeline, "logs", asked.digest, final)
        news = self.agent.exchange(told)
        if news.digest != asked.digest:
            news = self.agent.exchange(replace(told, plan=asked))
        return news.last

    def records(self, pipeline: str) -> int:
        parcels = map(unpack, self.agent.fetch(Fetch(pipeline, "logs", 0, 99)))
        return sum(reading.records for parcel in parcels for reading in parcel.readings)


def test_a_pipeline_that_is_gone_makes_room_for_another(tmp_path: Path) -> None:
    visited = Visited(tmp_path)
    assert visited.exchange("one") == 0
    visited.agent.step()
    assert visited.exchange("one") == 1
    assert visited.records("one") == 2
    with pytest.raises(WireError, match="another pipeline reads stream 'logs'"):
        visited.exchange("two")
    visited.now += 20
    assert visited.exchange("two") == 0  # from the start, as it has nothing
    visited.agent.step()
    assert visited.exchange("two") == 1
    assert visited.records("two") == 2
    with pytest.raises(WireError, match="has nothing for this pipeline"):
        visited.records("one")


def test_jobs_that_cannot_run_are_refused_until_there_are_others(tmp_path: Path) -> None:
    visited = Visited(tmp_path)
    first, *others = plan().recipes
    bad = replace(first, shape=replace(first.shape, where="nonsense("))
    wrong = replace(plan(), recipes=(bad, *others))
    visited.exchange("one", with_=wrong)
    visited.agent.step()
    with pytest.raises(
        WireError, match=r"cannot go on with stream 'logs': .*syntax error at .*\"$"
    ):
        visited.exchange("one", with_=wrong)
    assert visited.exchange("one") == 0
    visited.agent.step()
    assert visited.exchange("one") == 1
