"""Looks at many addresses at once, as pipelines and relays do."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

from muntin.errors import WireError
from muntin.wire.client import Client
from muntin.wire.lines import MOST, Line
from muntin.wire.messages import Exchange, Heard, Known, encoded_for

_AT_ONCE = 32  # addresses that are called
_CALLED = 30.0  # seconds for which one is called who has not answered on a line


class Looks:
    """Remembers who answered where, so that each is told only what concerns it.

    Agents that have answered are spoken to on lines. Those that have not, or do not on their line,
    are called by threads, so that others do not wait for them; and so are relays, which wait for
    agents themselves.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._names: dict[str, tuple[str, ...]] = {}  # of agents, by the address next to here
        self._lines: dict[str, Line] = {}  # that nobody uses at the moment
        self._called: dict[str, float] = {}  # until when an address is called and has no line
        self._threads = ThreadPoolExecutor(_AT_ONCE, "looks")

    def at(self, places: Sequence[str], told: Exchange) -> Heard:
        """What is heard at these addresses; paths of agents begin with them."""
        began = time.monotonic()
        lines = self._said(places, told)
        calls = {p: self._call(p, told) for p in places if p not in lines}
        found = {place: self._answer(place, line) for place, line in lines.items()}
        spent = time.monotonic() - began
        calls |= {p: self._call(p, told, spent) for p, answer in found.items() if answer is None}
        every = [found.get(place) or calls[place].result() for place in places]
        return Heard(
            tuple(news for heard in every for news in heard.news),
            {place: reason for heard in every for place, reason in heard.away.items()},
        )

    def close(self) -> None:
        while self._lines:
            self._lines.popitem()[1].close()
        self._threads.shutdown()

    def _said(self, places: Sequence[str], told: Exchange) -> dict[str, Line]:
        """The lines on which a message was sent, by address; one that is long needs a call."""
        encoded = encoded_for(told)
        lines = {}
        for place in dict.fromkeys(places):
            message = encoded(self._mine(place, told))
            if len(message) > MOST or (line := self._line(place)) is None:
                continue
            try:
                line.say(message)
                lines[place] = line
            except WireError:
                line.close()
                self._called[place] = time.monotonic() + _CALLED
        return lines

    def _line(self, place: str) -> Line | None:
        """A line to somebody who has answered before."""
        line = self._lines.pop(place, None)
        if line is not None and line.is_good:
            return line
        if line is not None:
            line.close()
        if time.monotonic() < self._called.get(place, math.inf):
            return None
        try:
            return self._client.line(place)
        except WireError:
            return None

    def _answer(self, place: str, line: Line) -> Heard | None:
        """What is answered on a line, which is kept then; nothing if it is not."""
        try:
            heard = line.answer()
        except WireError:
            line.close()
            self._called[place] = time.monotonic() + _CALLED
            return None
        if (other := self._lines.pop(place, None)) is not None:  # of a look at the same time
            other.close()
        self._lines[place] = line
        return self._heard(place, heard)

    def _call(self, place: str, told: Exchange, spent: float = 0.0) -> Future[Heard]:
        return self._threads.submit(self._look, place, told, spent)

    def _look(self, place: str, told: Exchange, spent: float) -> Heard:
        mine = replace(told, known=self._mine(place, told))
        try:
            heard = self._client.exchange(place, mine, spent)
        except WireError as error:
            self._called.pop(place, None)
            return Heard(away={place: str(error)})
        if [news.via for news in heard.news] == [()]:  # an agent; relays may need longer
            self._called.setdefault(place, 0.0)
        return self._heard(place, heard)

    def _mine(self, place: str, told: Exchange) -> dict[str, Known]:
        there = self._names.get(place, ())
        return {name: told.known[name] for name in there if name in told.known}

    def _heard(self, place: str, heard: Heard) -> Heard:
        self._names[place] = tuple(news.agent for news in heard.news)
        news = tuple(replace(each, via=(place, *each.via)) for each in heard.news)
        return replace(heard, news=news)
