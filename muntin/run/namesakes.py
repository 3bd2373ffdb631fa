"""Which agent is meant by a name: two processes that have one would be taken for one source.

The one that was there first is read, and the other is told of. One that was started again, here or
on another machine, takes the place of the one before, as that does not answer any more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from muntin.errors import InputError
from muntin.wire.messages import News

_WHAT_TO_DO = "start each with a --name of its own"


class Namesakes:
    """The agents of one stream by name, and those that are not read because of others."""

    def __init__(self, stream: str, idle_seconds: float) -> None:
        """One that was not read may take a name when the other was silent for the idle time."""
        self._stream = stream
        self._idle_seconds = idle_seconds
        self._identities: dict[str, str] = {}  # by name
        self._heard: dict[str, float] = {}
        self._refused: dict[str, str] = {}  # addresses by identity
        self._told: set[str] = set()

    @property
    def names(self) -> list[str]:
        """Of all agents that are read, or have been."""
        return list(self._identities)

    def identity(self, name: str) -> str:
        """Of the agent that is meant; nothing if that is not known."""
        return self._identities.get(name, "")

    def meant(self, news: Sequence[News], now: float) -> list[News]:
        """The news of agents that are read. Refuses to begin with two that have one name."""
        begins = not self._identities
        for name in dict.fromkeys(each.agent for each in news):
            there = {each.identity for each in news if each.agent == name}
            if begins and len(there) > 1:
                places = sorted({each.via[-1] for each in news if each.agent == name})
                raise InputError(f"{self._both(name, places)}; {_WHAT_TO_DO}")
            known = self._identities.get(name)
            silent = known is None or now - self._heard[name] > self._idle_seconds
            free = there if silent else there - self._refused.keys()
            if known not in there and len(free) == 1:
                (known,) = free
                self._identities[name] = known
                self._refused.pop(known, None)
            if known in there:
                self._heard[name] = now
        return [each for each in news if self.identity(each.agent) == each.identity]

    def told(self, news: Sequence[News]) -> Iterator[str]:
        """Tells once of agents that are not read because others have their names.

        One that is started again during a look answers as two, but not for another look.
        """
        others = {n.identity: n for n in news if self.identity(n.agent) != n.identity}
        before, self._refused = self._refused, {i: n.via[-1] for i, n in others.items()}
        for identity in sorted(others.keys() & before.keys() - self._told):
            name, place = others[identity].agent, others[identity].via[-1]
            places = sorted({each.via[-1] for each in news if each.agent == name})
            both = self._both(name, places)
            yield f"{both}; the one at {place} is not read; {_WHAT_TO_DO}"
        self._told = others.keys() & before.keys()

    def _both(self, name: str, places: Sequence[str]) -> str:
        both = " and ".join(places)
        return f"stream '{self._stream}': the agents at {both} are both named '{name}'"
