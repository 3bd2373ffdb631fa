"""Many are looked at at once, and each is told what concerns it."""

from __future__ import annotations

from dataclasses import dataclass, field

from muntin.errors import WireError
from muntin.wire.client import Client
from muntin.wire.looks import Looks
from muntin.wire.messages import Exchange, Heard, Known, News

TOLD = Exchange("p", "logs", "d", {name: Known(1) for name in ("a", "b", "c")})


@dataclass(frozen=True)
class Net(Client):
    """Who is at which address, or behind it; nobody is at others."""

    there: dict[str, dict[str, tuple[str, ...]]] = field(default_factory=dict)
    told: dict[str, list[str]] = field(default_factory=dict)

    def exchange(self, address: str, told: Exchange) -> Heard:
        self.told[address] = sorted(told.known)
        if address not in self.there:
            raise WireError(f"the agent at {address} cannot be reached")
        news = tuple(News(name, "d", via=via) for name, via in self.there[address].items())
        return Heard(news, {"gone:1": "why"} if len(news) > 1 else {})


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
