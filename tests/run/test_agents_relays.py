"""Agents behind relays as an intake: whichever of them die when, and whichever return."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from muntin.run.agents import PullWork
from muntin.run.contracts import Batch, Request
from muntin.wire.client import Client
from muntin.wire.messages import Fetch, Parcel
from tests.agent.serving import serving
from tests.relay.serving import relaying
from tests.run.test_agents import Pipeline, asked, expected, same, write

NAMES = ("web01", "web02")


class Servers:
    """Agents behind a relay, each of which can be ended and started again where it was."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.parts: dict[str, ExitStack] = {}
        self.places: dict[str, str] = {}
        for name in NAMES:
            write(folder / name, 0, 200)
            self.start(name)
        self.start("relay")

    def start(self, name: str) -> None:
        stack, at = ExitStack(), self.places.get(name, "127.0.0.1:0")
        if name == "relay":
            agents = [self.places[each] for each in NAMES]
            self.relay, place = stack.enter_context(relaying(*agents, at=at))
        else:
            place = stack.enter_context(serving(name, self.folder / name, at=at))[1]
        self.parts[name], self.places[name] = stack, place

    def end(self, *names: str) -> None:
        for name in names or tuple(self.parts):
            self.parts.pop(name).close()

    def more(self, start: int, stop: int) -> int:
        """Writes more; how many rows of `sums` are complete then."""
        for name in NAMES:
            write(self.folder / name, start, stop)
        return len(expected(self.folder)["sums"]) - 6

    def counts_fetches(self, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """Addresses from which is fetched from now on by this process, in order."""
        found: list[str] = []
        fetch = Client.fetch

        def counted(own: Client, address: str, wanted: Fetch) -> Iterator[Parcel]:
            found.append(address)
            return fetch(own, address, wanted)

        monkeypatch.setattr(Client, "fetch", counted)
        return found


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    found = Servers(tmp_path)
    yield found
    found.end()


def before_fetching(pipeline: Pipeline, agent: str, do: Callable[[], None]) -> None:
    """Has something happen between what is heard and what is fetched of an agent."""
    look = pipeline.intake.next

    def next_(request: Request) -> Batch:
        batch = look(request)
        work = batch.work
        if isinstance(work, PullWork) and agent in {each.agent for each in work.wanted.ranges}:
            do()
        return batch

    pipeline.intake.next = next_  # type: ignore[method-assign]


def test_a_relay_that_dies_is_gone_round_and_used_again_when_it_is_back(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    relay = servers.places["relay"]
    pipeline = Pipeline(asked([relay]))
    fetches = servers.counts_fetches(monkeypatch)

    def fetched(start: int) -> set[str]:
        """Where from, for this process alone: a relay in it fetches from its agents."""
        fetches.clear()
        pipeline.until(servers.more(start, start + 100))
        return {*fetches}

    assert relay in fetched(200)
    servers.end("relay")
    assert fetched(300) == {servers.places[name] for name in NAMES}
    servers.start("relay")
    assert relay in fetched(400)
    servers.end("web01")
    servers.start("web01")
    assert relay in fetched(500)
    assert same(pipeline.rows["sums"], expected(servers.folder)["sums"])
    assert {row["c2"]["area"] for row in pipeline.rows["sums"]} == {1.0}
    (told,) = [note for note in pipeline.notes if relay in note]
    assert told.endswith("; agents behind it are read directly")
    pipeline.intake.close()


def test_a_relay_that_dies_before_it_is_fetched_from(servers: Servers) -> None:
    """As often as it is back, at the worst moment; no batch fails for it."""
    pipeline = Pipeline(asked([servers.places["relay"]]))
    deaths: list[str] = []

    def die() -> None:
        if "relay" in servers.parts:
            servers.end("relay")
            deaths.append("relay")

    before_fetching(pipeline, "web01", die)
    for start in (200, 300, 400):
        pipeline.until(servers.more(start, start + 100))
        servers.start("relay")
    assert len(deaths) == 3
    assert same(pipeline.rows["sums"], expected(servers.folder)["sums"])
    assert not [note for note in pipeline.notes if "it is asked again" in note]
    pipeline.intake.close()


@pytest.mark.parametrize("dying", [("web01",), ("web01", "relay")])
def test_an_agent_that_dies_before_it_is_fetched_from_costs_one_batch(
    servers: Servers, dying: tuple[str, ...]
) -> None:
    pipeline = Pipeline(asked([servers.places["relay"]]))
    pipeline.until(servers.more(200, 250))  # what was never read of is not awaited
    alive = [dying]

    def die() -> None:
        while alive:
            servers.end(*alive.pop())

    before_fetching(pipeline, "web01", die)
    servers.more(250, 300)
    while alive:
        pipeline.turn()
    pipeline.turn()
    (told,) = [note for note in pipeline.notes if "it is asked again" in note]
    assert f"the agent at {servers.places['web01']} cannot be reached" in told
    for name in dying:
        servers.start(name)
    pipeline.until(servers.more(300, 400))
    assert same(pipeline.rows["sums"], expected(servers.folder)["sums"])
    assert {row["c2"]["area"] for row in pipeline.rows["sums"]} == {1.0}
    pipeline.intake.close()


def test_who_is_taken_off_a_relay_is_not_looked_for(servers: Servers) -> None:
    listed = servers.folder / "agents.txt"
    listed.write_text("\n".join(servers.places[name] for name in NAMES))
    with relaying(str(listed)) as (_, place):
        pipeline = Pipeline(asked([place]))
        pipeline.until(servers.more(200, 300))
        listed.write_text(servers.places["web01"])
        pipeline.turn()
    before = {name: s.sequence for name, s in pipeline.run.loop.progress.sources.items()}
    servers.more(300, 400)
    for _ in range(20):  # the relay is away as well now
        pipeline.turn()
        time.sleep(0.05)
    pipeline.turn()
    sources = pipeline.run.loop.progress.sources
    assert sources["web01"].sequence > before["web01"]
    assert sources["web02"].sequence == before["web02"]
    pipeline.intake.close()


def test_while_its_relay_is_away_from_the_start_agents_are_read_that_are_listed(
    servers: Servers,
) -> None:
    servers.end("relay")
    pipeline = Pipeline(asked([servers.places["relay"], servers.places["web01"]]), idle=2.0)
    sources = pipeline.run.loop.progress.sources
    pipeline.until(1)
    assert set(sources) == {"web01"}
    servers.start("relay")
    while len(sources) == 1:
        pipeline.turn()
    assert set(sources) == {*NAMES}
    pipeline.intake.close()


def test_who_fetches_says_how_much_time_there_is(servers: Servers) -> None:
    """That is up to the deadline of the next window, as the loop knows it."""
    job = "CREATE JOB sums AS SELECT count(*) AS c FROM logs WINDOW 10 SECONDS WITHIN 5 SECONDS"
    pipeline = Pipeline(f"CREATE STREAM logs FROM AGENTS {servers.places['relay']!r}; {job}")
    found: list[Fetch] = []
    look = pipeline.intake.next

    def next_(request: Request) -> Batch:
        batch = look(request)
        found.extend([batch.work.wanted] if isinstance(batch.work, PullWork) else [])
        return batch

    pipeline.intake.next = next_  # type: ignore[method-assign]
    while not found:
        pipeline.run.loop.turn(wake_at=pipeline.run.loop.wake_at())
    assert found[0].within is None  # nothing is open yet
    pipeline.run.loop.turn(wake_at=2.5)  # its clock has not begun
    servers.more(200, 300)
    while len(found) < 2:
        pipeline.run.loop.turn(wake_at=2.5)
    assert found[1].within == 2.5
    pipeline.intake.close()
