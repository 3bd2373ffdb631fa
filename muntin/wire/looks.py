"""Looks at many addresses at once, as pipelines and relays do."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from muntin.errors import WireError
from muntin.wire.client import Client
from muntin.wire.messages import Exchange, Heard

_AT_ONCE = 32  # addresses that are talked to


class Looks:
    """Remembers who answered where, so that each is told only what concerns it."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._names: dict[str, tuple[str, ...]] = {}  # of agents, by the address next to here
        self._threads = ThreadPoolExecutor(_AT_ONCE, "looks")

    def at(self, places: Sequence[str], told: Exchange) -> Heard:
        """What is heard at these addresses; paths of agents begin with them."""
        every = list(self._threads.map(lambda place: self._look(place, told), places))
        return Heard(
            tuple(news for heard in every for news in heard.news),
            {place: reason for heard in every for place, reason in heard.away.items()},
        )

    def close(self) -> None:
        self._threads.shutdown()

    def _look(self, place: str, told: Exchange) -> Heard:
        there = self._names.get(place, ())
        mine = {name: told.known[name] for name in there if name in told.known}
        try:
            heard = self._client.exchange(place, replace(told, known=mine))
        except WireError as error:
            return Heard(away={place: str(error)})
        self._names[place] = tuple(news.agent for news in heard.news)
        news = tuple(replace(each, via=(place, *each.via)) for each in heard.news)
        return replace(heard, news=news)
