"""Through relays there come the rows and scores that agents have, in fewer bytes, each once."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from muntin.agent.settings import Limits
from muntin.errors import WireError
from muntin.language.program import sql
from muntin.relay.relay import Relay
from muntin.run.catalog import Catalog
from muntin.schedule.pace import Measure
from muntin.wire.client import Client
from muntin.wire.keys import PIPELINE, make_keys, read_keys
from muntin.wire.messages import (
    Exchange,
    Fetch,
    Heard,
    Known,
    News,
    Parcel,
    Plan,
    Range,
    encode,
    pack,
)
from muntin.wire.server import Server
from tests.agent.serving import serving
from tests.relay.serving import relaying
from tests.run.test_agents import JOBS, Pipeline, asked, expected, same, write
from tests.wire.junk import MANY, send_junk, send_over_the_wire

NAMES = ("web01", "web02", "web03")


def direct(_: ExitStack, agents: Sequence[str]) -> list[str]:
    return [*agents]


def one(stack: ExitStack, agents: Sequence[str]) -> list[str]:
    return [stack.enter_context(relaying(*agents))[1]]


def stacked(stack: ExitStack, agents: Sequence[str]) -> list[str]:
    """The first two behind a relay, and that with the third behind another."""
    return one(stack, [*one(stack, agents[:2]), agents[2]])


def overlapping(stack: ExitStack, agents: Sequence[str]) -> list[str]:
    """All by three ways: themselves, and behind two relays."""
    return [*agents, *one(stack, agents), *one(stack, agents)]


def circle(stack: ExitStack, agents: Sequence[str], tmp_path: Path) -> list[str]:
    """Two relays that have each other among their agents."""
    listed = tmp_path / "agents.txt"
    listed.write_text("\n".join(agents))
    _, first = stack.enter_context(relaying(str(listed)))
    _, second = stack.enter_context(relaying(first))
    listed.write_text("\n".join([*agents, second]))
    return [second]


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("ways", [direct, one, stacked, overlapping])
def test_rows_and_scores_are_those_of_the_logs(
    tmp_path: Path, ways: Callable[[ExitStack, Sequence[str]], list[str]], seed: int
) -> None:
    chance, ends = Random(seed), dict.fromkeys(NAMES, 0)

    def more() -> None:
        for name in NAMES:
            start, ends[name] = ends[name], ends[name] + chance.randint(0, 120)
            write(tmp_path / name, start, ends[name])

    more()
    with ExitStack() as stack:
        agents = [stack.enter_context(serving(name, tmp_path / name))[1] for name in NAMES]
        pipeline = Pipeline(asked(ways(stack, agents)))
        stack.callback(pipeline.intake.close)
        for _ in range(5):
            pipeline.turn()
            more()
        for name in NAMES:
            write(tmp_path / name, ends[name], 640)
        wanted = expected(tmp_path)
        pipeline.until(len(wanted["sums"]) - 6)
        pipeline.until(len(wanted["late"]) - 2, "late")
    for job in ("sums", "late"):
        rows = pipeline.rows[job]
        assert same(rows, wanted[job])
        assert scores(rows) == scores(wanted[job])[: len(rows)]
    assert [note for note in pipeline.notes if "leaps ahead" not in note] == []


def scores(rows: Sequence[dict[str, Any]]) -> list[object]:
    """What C² says of rows, by name; it does not matter why windows left."""
    return [({**row["c2"], "reason": ""}, row["c2_records"], row["records_late"]) for row in rows]


def test_a_circle_is_told_of_and_harms_nobody(tmp_path: Path) -> None:
    for name in NAMES:
        write(tmp_path / name, 0, 400)
    with ExitStack() as stack:
        agents = [stack.enter_context(serving(name, tmp_path / name))[1] for name in NAMES]
        pipeline = Pipeline(asked(circle(stack, agents, tmp_path)))
        stack.callback(pipeline.intake.close)
        wanted = expected(tmp_path)
        pipeline.until(len(wanted["sums"]) - 6)
    assert same(pipeline.rows["sums"], wanted["sums"])
    (note,) = pipeline.notes
    assert "relay 'relay' is asked by itself; its agents lead back to it" in note


class Asking:
    """What a pipeline says to an address, step by step."""

    def __init__(self, place: str, jobs: str = JOBS) -> None:
        self.place = place
        program = sql(
            "CREATE STREAM logs (t DOUBLE, k VARCHAR, s VARCHAR, n BIGINT) FROM AGENTS 'a:1' "
            f"FORMAT json TIMESTAMP t; {jobs}"
        )
        catalog = Catalog.of(program.streams["logs"], program.jobs.values())
        self.plan = Plan(catalog.stream, catalog.recipes, 1_000_000)
        self.shapes = {recipe.shape.id: recipe.shape for recipe in catalog.recipes}

    def look(self, known: Sequence[str] = NAMES, with_plan: bool = True) -> dict[str, News]:
        finals = {name: Known(0) for name in known}
        plan = self.plan if with_plan else None
        told = Exchange("p", "logs", self.plan.digest, finals, plan)
        return {each.agent: each for each in Client().exchange(self.place, told).news}

    def until_all(self, last: int = 1) -> dict[str, News]:
        """Looks until every agent has so many deliveries."""
        self.look(())  # who is there
        limit = time.monotonic() + 30
        while True:
            news = self.look()
            if all(each.last >= last for each in news.values()):
                return news
            assert time.monotonic() < limit
            time.sleep(0.05)

    def fetch(self, news: dict[str, News], within: float | None = None) -> list[Parcel]:
        ranges = tuple(Range(n.agent, 0, n.last, n.bytes, n.via) for n in news.values())
        wanted = Fetch("p", "logs", self.plan.digest, ranges, within)
        return list(Client().fetch(self.place, wanted))


def test_one_parcel_of_all_in_fewer_bytes(tmp_path: Path) -> None:
    for name in NAMES:
        write(tmp_path / name, 0, 4000)
    with ExitStack() as stack:
        agents = [stack.enter_context(serving(name, tmp_path / name))[1] for name in NAMES]
        _, place = stack.enter_context(relaying(*agents))
        asking = Asking(place)
        news = asking.until_all()
        (parcel,) = asking.fetch(news)
        parts = []
        for name, address in zip(NAMES, agents, strict=True):
            own = replace(news[name], via=())
            asking.place = address
            parts += asking.fetch({name: own})
    assert parcel.numbers == {name: each.last for name, each in news.items()}
    assert list(parcel.readings) == [reading for part in parts for reading in part.readings]
    assert len(pack(parcel)) < 0.7 * sum(len(pack(part)) for part in parts)


def test_without_time_or_a_plan_parcels_are_passed_on_as_they_are(tmp_path: Path) -> None:
    for name in NAMES:
        write(tmp_path / name, 0, 400)
    with ExitStack() as stack:
        agents = [stack.enter_context(serving(name, tmp_path / name))[1] for name in NAMES]
        relay, place = stack.enter_context(relaying(*agents))
        asking = Asking(place)
        news = asking.until_all()
        assert len(asking.fetch(news)) == 1
        relay.pace.batch = Measure(2.0)
        assert len(asking.fetch(news, within=1.0)) == 3
        assert len(asking.fetch(news, within=10.0)) == 1
        assert len(asking.fetch(news)) == 1
        relay.pace.batch = Measure(2.0)
        # One slow merge is not held against it for ever.
        assert [len(asking.fetch(news, within=1.5)) for _ in range(3)] == [3, 3, 1]
        _, place = stack.enter_context(relaying(*agents))
        asking.place = place
        # A relay that knows no plan says so as an agent would.
        assert {each.digest for each in asking.look(with_plan=False).values()} == {""}
        assert len(asking.fetch(news)) == 3
        assert {each.digest for each in asking.look().values()} == {asking.plan.digest}
        assert len(asking.fetch(news)) == 1


def test_python_is_not_run_by_relays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        write(tmp_path / name, 0, 40)
    monkeypatch.setattr("muntin.relay.relay.merged", lambda *_: pytest.fail("it was merged"))
    jobs = "CREATE JOB words AS PYTHON 'tests.python_jobs:Sums' FROM logs WINDOW 1 MINUTE;"
    with ExitStack() as stack:
        agents = [
            stack.enter_context(serving(name, tmp_path / name, limits=Limits(allow_code=True)))[1]
            for name in NAMES
        ]
        _, place = stack.enter_context(relaying(*agents))
        asking = Asking(place, jobs)
        assert len(asking.fetch(asking.until_all())) == 3


def test_it_connects_to_its_own_agents_only(tmp_path: Path) -> None:
    write(tmp_path / "web01", 0, 400)
    with ExitStack() as stack:
        _, agent = stack.enter_context(serving("web01", tmp_path / "web01"))
        _, place = stack.enter_context(relaying(agent))
        asking = Asking(place)
        (news,) = asking.until_all().values()
        assert news.via == (agent,)
        assert asking.fetch({"web01": news})
        _, place = stack.enter_context(relaying())
        asking.place = place
        assert asking.fetch({"web01": news}) == []
        assert asking.fetch({"web01": replace(news, via=())}) == []


def test_who_is_away_is_told_with_the_reason(tmp_path: Path) -> None:
    write(tmp_path / "web01", 0, 400)
    with ExitStack() as stack:
        with serving("web02", tmp_path / "web02") as (_, gone):
            pass
        _, agent = stack.enter_context(serving("web01", tmp_path / "web01"))
        _, place = stack.enter_context(relaying(agent, gone))
        told = Exchange("p", "logs", "d")
        heard = Client().exchange(place, told)
        assert [each.agent for each in heard.news] == ["web01"]
        assert list(heard.away) == [gone]
        assert f"the agent at {gone} cannot be reached" in heard.away[gone]
        assert Client().settings(place, "logs")["FORMAT"] == "json"
        stream = Asking(place).plan.stream
        assert [column.name for column in Client().columns(place, stream)] == ["t", "k", "n"]
        with pytest.raises(WireError, match="no agent tells the format of stream 'other': the ag"):
            Client().settings(place, "other")


def test_keys_are_for_both_sides(tmp_path: Path) -> None:
    make_keys(tmp_path / "keys", ["web01", "relay", "pipeline"])
    keys = {
        name: read_keys(tmp_path / "keys", name, required=True)
        for name in ("web01", "relay", PIPELINE)
    }
    with ExitStack() as stack:
        _, agent = stack.enter_context(serving("web01", tmp_path / "logs", keys["web01"], True))
        _, place = stack.enter_context(relaying(agent, keys=keys["relay"], mutual=True))
        assert Client(keys[PIPELINE]).settings(place, "logs")["FORMAT"] == "json"
        with pytest.raises(WireError, match="cannot be reached"):
            Client().settings(place, "logs")
        with pytest.raises(WireError, match="answers pipelines with its token"):
            Client(replace(keys[PIPELINE], token="another-token-of-some")).settings(place, "logs")


def test_plans_are_remembered_for_the_last_pipelines_only() -> None:
    asking = Asking("")
    relay = Relay("relay", (), Client())
    with ThreadPoolExecutor(4) as threads:
        told = Exchange("p", "logs", asking.plan.digest, {}, asking.plan)
        list(threads.map(lambda i: relay.exchange(replace(told, pipeline=f"p{i}")), range(200)))
    assert len(relay._plans) == 64
    relay.close()


def test_junk_does_not_end_it(tmp_path: Path) -> None:
    """Some of it through a real agent, and fifty thousand messages with nobody behind."""
    asking = Asking("")
    wanted = Fetch("p", "logs", asking.plan.digest, (Range("web01", 0, 9, 9, ("a:1", "b:1")),))
    asked = Exchange("p", "logs", asking.plan.digest, {"web01": Known(0)}, asking.plan)
    junk = [encode(asked), encode(replace(asked, plan=None))], [encode(wanted)]
    with ExitStack() as stack:
        _, agent = stack.enter_context(serving("web01", tmp_path / "web01"))
        _, place = stack.enter_context(relaying(agent))
        send_over_the_wire(place, *junk)
        assert Client().settings(place, "logs")["FORMAT"] == "json"
        relay, _ = stack.enter_context(relaying())
        server = Server(relay, "127.0.0.1:0")
        stack.callback(server.shutdown)
        assert 0 < send_junk(server, *junk) < MANY / 2
        assert relay.exchange(asked) == Heard()
