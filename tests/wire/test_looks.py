"""Many are looked at at once, and each is told what concerns it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from threading import Event, Thread
from typing import Any

import pytest
from pyarrow import flight

from muntin.errors import WireError
from muntin.model.records import Column
from muntin.wire import lines
from muntin.wire.client import Client
from muntin.wire.lines import Line
from muntin.wire.looks import Looks
from muntin.wire.messages import Departed, Exchange, Heard, Known, News
from muntin.wire.server import Server
from tests.waiting import wait_for

TOLD = Exchange("p", "logs", "d", {name: Known(1) for name in ("a", "b", "c")})


@dataclass(frozen=True)
class Net(Client):
    """Who is at which address, or behind it; nobody is at others."""

    there: dict[str, dict[str, tuple[str, ...]]] = field(default_factory=dict)
    told: dict[str, list[str]] = field(default_factory=dict)

    def exchange(self, address: str, told: Exchange, spent: float = 0.0) -> Heard:
        self.told[address] = sorted(told.known)
        if address not in self.there:
            raise WireError(f"the agent at {address} cannot be reached")
        news = tuple(News(name, "d", via=via) for name, via in self.there[address].items())
        return Heard(news, {"gone:1": "why"} if len(news) > 1 else {})

    def line(self, address: str) -> Line:
        raise WireError(f"nobody at {address} knows lines")


class Host:
    """Answers with its name and how often it was asked; waits for `slow`, and refuses if told."""

    def __init__(self, name: str) -> None:
        self.name, self.asked = name, 0
        self.slow, self.refuses = Event(), False
        self.slow.set()

    def exchange(self, told: Exchange) -> Heard:
        self.asked += 1
        assert self.slow.wait(60)
        if self.refuses:
            raise WireError("not now")
        return Heard((News(self.name, told.digest, last=len(told.known)),))

    def columns(self, stream: object) -> tuple[Column, ...]:
        return ()

    def clauses(self, stream: str) -> dict[str, str]:
        return {}

    def fetch(self, wanted: object) -> list[bytes]:
        return []


class Counting(Server):
    """Counts calls and lines; one that is `old` knows no lines."""

    old = False
    calls = lines = 0

    def do_action(self, context: object, action: flight.Action) -> Iterator[bytes]:
        self.calls += 1
        return super().do_action(context, action)

    def do_exchange(self, context: object, descriptor: object, reader: Any, writer: Any) -> None:
        self.lines += 1
        if self.old:
            raise NotImplementedError
        super().do_exchange(context, descriptor, reader, writer)


@contextmanager
def looking(*names: str) -> Iterator[tuple[Looks, list[Counting], list[Host]]]:
    hosts = [Host(name) for name in names]
    servers = [Counting(host, "127.0.0.1:0") for host in hosts]
    looks = Looks(Client(None))
    try:
        yield looks, servers, hosts
    finally:
        looks.close()
        for server in servers:
            server.shutdown()


def places_of(servers: list[Counting]) -> list[str]:
    return [f"127.0.0.1:{server.port}" for server in servers]


def test_who_has_answered_is_spoken_to_on_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "LIFE", 60.0)
    with looking("a", "b") as (looks, servers, hosts):
        for number in range(5):
            heard = looks.at(places_of(servers), TOLD)
            assert [(n.agent, n.last) for n in heard.news] == [
                ("a", min(number, 1)),
                ("b", min(number, 1)),
            ]
        assert [(server.calls, server.lines) for server in servers] == [(1, 1), (1, 1)]
        assert [host.asked for host in hosts] == [5, 5]


def test_a_line_is_another_one_when_it_is_old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "LIFE", 0.0)
    with looking("a") as (looks, servers, _):
        for _ in range(4):
            assert looks.at(places_of(servers), TOLD).news
        assert (servers[0].calls, servers[0].lines) == (1, 3)


def test_who_knows_no_lines_is_called() -> None:
    with looking("a") as (looks, servers, _):
        servers[0].old = True
        for _ in range(4):
            assert looks.at(places_of(servers), TOLD).news
        assert (servers[0].calls, servers[0].lines) == (4, 1)


def test_what_is_refused_on_a_line_is_told_as_ever() -> None:
    with looking("a") as (looks, servers, hosts):
        places = places_of(servers)
        looks.at(places, TOLD)
        hosts[0].refuses = True
        for _ in range(2):
            heard = looks.at(places, TOLD)
            assert list(heard.away) == places
            assert "not now" in heard.away[places[0]]


def test_a_message_that_is_long_is_sent_by_calls() -> None:
    long = replace(TOLD, departed={f"shape{n}": Departed(n) for n in range(2000)})
    with looking("a") as (looks, servers, _):
        for _ in range(3):
            assert looks.at(places_of(servers), long).news
        assert (servers[0].calls, servers[0].lines) == (3, 0)


def test_one_who_does_not_answer_on_its_line_is_called_and_others_are_heard() -> None:
    with looking("a", "b") as (looks, servers, hosts):
        places = places_of(servers)
        looks.at(places, TOLD)
        hosts[0].slow.clear()
        with ThreadPoolExecutor(1) as thread:
            found = thread.submit(looks.at, places, TOLD)
            wait_for(lambda: servers[0].calls == 2)  # its line has ended by then
            hosts[0].slow.set()
            assert [news.agent for news in found.result().news] == ["a", "b"]


def test_one_that_has_begun_anew_is_heard() -> None:
    with looking("a") as (looks, servers, _):
        places = places_of(servers)
        for _ in range(2):
            looks.at(places, TOLD)
        servers[0].shutdown()
        assert list(looks.at(places, TOLD).away) == places
        again = Counting(Host("a"), places[0])
        try:
            wait_for(lambda: looks.at(places, TOLD).news)
        finally:
            looks.close()
            again.shutdown()


def test_who_ends_does_not_wait_for_lines_that_nobody_closes() -> None:
    with looking("a") as (looks, servers, _):
        for _ in range(2):
            looks.at(places_of(servers), TOLD)
        ended = Thread(target=servers[0].shutdown)
        ended.start()
        ended.join(30)
        assert not ended.is_alive()


def test_each_is_told_of_whom_it_has_told() -> None:
    net = Net(None, {"a:1": {"a": ()}, "r:1": {"b": ("b:1",), "c": ("s:1", "c:1")}})
    looks = Looks(net)
    places = ["a:1", "r:1", "none:1"]
    heard = looks.at(places, TOLD)
    assert net.told == {"a:1": [], "r:1": [], "none:1": []}
    assert {each.agent: each.via for each in heard.news} == {
        "a": ("a:1",),
        "b": ("r:1", "b:1"),
        "c": ("r:1", "s:1", "c:1"),
    }
    away = {"none:1": "the agent at none:1 cannot be reached", "gone:1": "why"}
    assert heard.away == away
    assert looks.at(places, TOLD) == heard
    assert net.told == {"a:1": ["a"], "r:1": ["b", "c"], "none:1": []}
    del net.there["r:1"]["c"]
    looks.at(places, TOLD)
    looks.at(places, TOLD)
    assert net.told["r:1"] == ["b"]
    looks.close()
