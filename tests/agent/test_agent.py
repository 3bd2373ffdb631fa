"""What an agent does with jobs that it cannot run, and for pipelines that go and come."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from threading import Event, Thread

import pytest

from muntin.agent.agent import Agent
from muntin.agent.reader import StreamReader
from muntin.agent.settings import AgentSettings, Limits, StreamSettings
from muntin.errors import StateError, WireError
from muntin.fidelity.score import State
from muntin.fidelity.scoreboard import Source
from muntin.language.program import sql
from muntin.logs.events import FileEvents
from muntin.model.records import POSITION
from muntin.run.catalog import Catalog
from muntin.store import tape
from muntin.wire.messages import Exchange, Fetch, Known, News, Parcel, Plan, Range, unpack
from tests.wire.test_messages import plan

STREAM = (
    "CREATE STREAM logs (t BIGINT, k VARCHAR, s VARCHAR, n BIGINT) FROM 'x' "
    "FORMAT json TIMESTAMP t;"
)


class Visited:
    """An agent in this thread, and a clock."""

    def __init__(self, folder: Path, limits: Limits | None = None) -> None:
        self.now = 1000.0
        (folder / "a.log").write_text("".join(f'{{"t": {t}, "k": "a", "n": 2}}\n' for t in (1, 99)))
        streams = {"logs": StreamSettings((str(folder / "*.log"),))}
        self.agent = Agent(
            AgentSettings("web01", folder, streams, limits or Limits()), lambda: self.now
        )

    def exchange(
        self,
        pipeline: str,
        final: int = 0,
        with_: Plan | None = None,
        counted: dict[str, int] | None = None,
    ) -> int:
        return self.news(pipeline, final, with_, counted).last

    def news(
        self,
        pipeline: str,
        final: int = 0,
        with_: Plan | None = None,
        counted: dict[str, int] | None = None,
    ) -> News:
        asked = with_ or plan()
        known = {"web01": Known(final, counted or {})}
        told = Exchange(pipeline, "logs", asked.digest, known)
        (news,) = self.agent.exchange(told).news
        if news.digest != asked.digest:
            (news,) = self.agent.exchange(replace(told, plan=asked)).news
        return news

    def fetch(self, pipeline: str, after: int, upto: int, agent: str = "web01") -> list[Parcel]:
        wanted = Fetch(pipeline, "logs", "", (Range(agent, after, upto),))
        return [unpack(data) for data in self.agent.fetch(wanted)]

    def records(self, pipeline: str) -> int:
        parcels = self.fetch(pipeline, 0, 1)
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


def test_jobs_that_cannot_run_are_told_of_until_there_are_others(tmp_path: Path) -> None:
    visited = Visited(tmp_path)
    first, *others = plan().recipes
    bad = replace(first, shape=replace(first.shape, where="nonsense("))
    wrong = replace(plan(), recipes=(bad, *others))
    visited.exchange("one", with_=wrong)
    visited.agent.step()
    assert re.search(r"syntax error at .*\"$", visited.news("one", with_=wrong).trouble)
    assert visited.exchange("one") == 0
    visited.agent.step()
    assert visited.exchange("one") == 1
    assert not visited.news("one").trouble


def test_nothing_that_goes_wrong_in_a_stream_ends_the_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plans come from others, and may mean anything."""
    monkeypatch.setattr(StreamReader, "turn", lambda self, now: 1 // 0)
    visited = Visited(tmp_path)
    visited.exchange("one")
    visited.agent.step()
    assert visited.news("one").trouble.startswith("ZeroDivisionError: integer division")


def test_a_stream_that_has_failed_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full for a moment: what was delivered stays, and nothing is counted twice."""
    visited = Visited(tmp_path)
    visited.exchange("one")
    visited.agent.step()
    visited.exchange("one")
    write, tries = tape.add, []

    def full(path: Path, records: Iterable[bytes]) -> int:
        tries.append(visited.now)
        raise StateError(f"{path} cannot be written: No space left on device")

    monkeypatch.setattr(tape, "add", full)
    with (tmp_path / "a.log").open("a") as file:
        file.write('{"t": 200, "k": "a", "n": 2}\n')
    for _ in range(200):
        visited.now += 0.5
        visited.agent.step()
    assert "cannot be written: No space left on device" in visited.news("one").trouble
    pauses = [after - before for before, after in pairwise(tries)]
    assert pauses[:5] == [1.0, 2.0, 4.0, 8.0, 16.0]  # it is tried less and less often
    assert visited.records("one") == 2  # what was there can be had
    monkeypatch.setattr(tape, "add", write)
    visited.now += 60
    visited.agent.step()
    visited.now += 2
    visited.agent.step()
    news = visited.news("one")
    assert not news.trouble
    parcels = visited.fetch("one", 1, news.last)
    assert sum(reading.records for parcel in parcels for reading in parcel.readings) == 1


def test_python_is_run_only_where_that_is_allowed(tmp_path: Path) -> None:
    (tmp_path / "no").mkdir()
    (tmp_path / "yes").mkdir()
    text = "CREATE JOB words AS PYTHON 'tests.python_jobs:Sums' FROM logs WINDOW 1 MINUTE;"
    program = sql(STREAM + text)
    catalog = Catalog.of(program.streams["logs"], program.jobs.values())
    python = Plan(catalog.stream, catalog.recipes, None)
    with pytest.raises(WireError, match="'web01' runs no Python, as 'words' is; start it with"):
        Visited(tmp_path / "no").exchange("one", with_=python)
    visited = Visited(tmp_path / "yes", Limits(allow_code=True))
    assert visited.exchange("one", with_=python) == 0


def test_an_agent_that_lost_its_state_counts_nothing_twice(tmp_path: Path) -> None:
    visited = Visited(tmp_path)
    visited.exchange("one")
    visited.agent.step()
    last = visited.exchange("one")
    (parcel,) = visited.fetch("one", 0, last)
    source = Source()
    source.advance({}, parcel.readings[0].reached, parcel.readings[0].doubt)
    counted = source.counted
    for path in tmp_path.glob("*.safe"):
        path.unlink()
    visited = Visited(tmp_path)
    visited.exchange("one", last, counted=counted)
    for _ in range(2):
        visited.agent.step()
        visited.now += 2
    assert visited.exchange("one", last, counted=counted) == last + 1
    (parcel,) = visited.fetch("one", last, last + 1)
    assert not parcel.blocks
    (reading,) = parcel.readings
    assert not reading.tallies
    assert {each.state for each in reading.unmade} == {State.LOST}
    assert len(reading.unmade) == len(plan().recipes)


@pytest.mark.parametrize(("share", "least"), [(1.0, 0.0), (0.1, 1.5)])
def test_an_agent_rests_as_long_as_its_share_of_a_core_asks(
    tmp_path: Path, share: float, least: float
) -> None:
    visited = Visited(tmp_path, Limits(cpu=share))
    turns = []

    def busy() -> bool:
        """Takes a tenth of a second, three times."""
        until = time.process_time() + 0.1
        while time.process_time() < until:
            pass
        turns.append(time.monotonic())
        if len(turns) == 3:
            visited.agent.stop.set()
        return True

    visited.agent.step = busy  # type: ignore[method-assign]
    began = time.monotonic()
    visited.agent.run()
    assert turns[-1] - began > least  # how long a turn took is no part of its rest


def test_open_panes_have_their_room_and_give_it_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is over the limit is below the state folder, and goes with who needed it."""
    monkeypatch.setattr(Limits, "open", 0)
    (tmp_path / "open").mkdir()
    (tmp_path / "open" / "17").write_bytes(b"of an agent that was killed")
    visited = Visited(tmp_path)
    assert not (tmp_path / "open").exists()
    visited.exchange("one")
    visited.agent.step()
    before = {path.name for path in (tmp_path / "open").iterdir()}
    assert before
    visited.now += 20
    visited.exchange("two")  # takes the stream over
    visited.agent.step()
    assert before.isdisjoint(path.name for path in (tmp_path / "open").iterdir())


def test_who_is_not_named_tells_who_it_is_and_does_nothing(tmp_path: Path) -> None:
    visited = Visited(tmp_path)
    told = Exchange("one", "logs", plan().digest, {"web02": Known(0)}, plan())
    (news,) = visited.agent.exchange(told).news
    assert (news.agent, news.digest, news.last) == ("web01", "", 0)
    assert not list(tmp_path.glob("*.safe"))
    assert not visited.agent.step()


def test_of_a_range_all_deliveries_are_handed_out_or_none(tmp_path: Path) -> None:
    visited = Visited(tmp_path)
    visited.exchange("one")
    visited.agent.step()
    last = visited.exchange("one")
    assert [parcel.numbers for parcel in visited.fetch("one", 0, last)] == [{"web01": 1}]
    with pytest.raises(WireError, match="'web01' has no deliveries 1 to 2 of 'web01'"):
        visited.fetch("one", 0, last + 1)
    with pytest.raises(WireError, match="'web01' has no deliveries 1 to 1 of 'web02'"):
        visited.fetch("one", 0, last, "web02")
    visited.exchange("one", last)
    with pytest.raises(WireError, match="'web01' has no deliveries 1 to 1 of 'web01'"):
        visited.fetch("one", 0, last)  # it is final, and gone


def test_an_older_state_of_the_pipeline_gets_what_it_asks_for_again(tmp_path: Path) -> None:
    visited = Visited(tmp_path)
    visited.exchange("one")
    visited.agent.step()
    last = visited.exchange("one")
    visited.exchange("one", last)  # it is final, and let go of
    assert visited.exchange("one", 0) == 0
    visited.agent.step()
    assert visited.exchange("one", 0) == 1
    assert visited.records("one") == 2


def test_who_asks_is_answered_while_it_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A turn takes for ever: looks, fetches and questions are answered at once."""
    visited = Visited(tmp_path)
    visited.exchange("one")
    visited.agent.step()
    reads, goes_on = Event(), Event()

    def turn(reader: StreamReader, now: float) -> bool:
        reads.set()
        return goes_on.wait(60)

    monkeypatch.setattr(StreamReader, "turn", turn)
    reading = Thread(target=visited.agent.step)
    reading.start()
    assert reads.wait(60)
    started = time.monotonic()
    try:
        last = visited.exchange("one")
        assert last == 1
        assert visited.records("one") == 2
        assert visited.exchange("one", last) == 1
        with pytest.raises(WireError, match="has no deliveries"):
            visited.records("one")  # it is final, and gone
        assert [column.name for column in visited.agent.columns(plan().stream)] == ["t", "k", "n"]
        other = replace(plan(), recipes=plan().recipes[:1])
        assert visited.news("one", last, with_=other).digest == other.digest
        wanted = Exchange("one", "logs", other.digest, {"web01": Known(1)}, wanted={POSITION: 1})
        assert visited.agent.exchange(wanted).news[0].last == 1
        assert time.monotonic() - started < 3
    finally:
        goes_on.set()
        reading.join()


def test_panes_that_are_wanted_are_awaited_for_a_moment(tmp_path: Path) -> None:
    """The thread that reads rests, and cuts them at once."""
    visited = Visited(tmp_path)
    (tmp_path / "a.log").write_text('{"t": 1, "k": "a", "n": 2}\n{"t": 2, "k": "a", "n": 2}\n')
    one = replace(plan(), recipes=tuple(r for r in plan().recipes if r.shape.pane))
    visited.exchange("one", with_=one)
    visited.agent.step()
    assert visited.exchange("one", with_=one) == 1  # how far it has come; panes are open
    resting = Thread(target=visited.agent._rest, args=(60,))
    resting.start()
    told = Exchange("one", "logs", one.digest, {"web01": Known(0)}, wanted={POSITION: 99_000_000})
    try:
        assert visited.agent.exchange(told).news[0].last == 2
    finally:
        visited.agent.stop.set()
        resting.join()


def test_watches_of_files_end_with_who_needed_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[FileEvents] = []
    monkeypatch.setattr(FileEvents, "watch", lambda self, folders: made.append(self))
    monkeypatch.setattr(FileEvents, "close", lambda self: made.remove(self))
    visited = Visited(tmp_path)
    for pipeline in ("one", "two", "three"):
        visited.exchange(pipeline)
        visited.agent.step()
        visited.now += 20
        assert len(made) == 1
    visited.agent.stop.set()
    visited.agent.run()
    assert not made
