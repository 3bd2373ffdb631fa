"""Agents as an intake: deliveries that they have made, handed out to be fetched in tasks.

At every look the pipeline tells each agent which jobs there are and how far deliveries are final,
and hears how far they go. An agent that is away is nothing to fail over: its source is awaited as
long as any that is silent, and what it has counted meanwhile comes when it is back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from muntin.errors import InputError, WireError
from muntin.fidelity.scoreboard import Source
from muntin.kernel.block import Block
from muntin.kernel.compute import Recipe
from muntin.model import Stream
from muntin.run.contracts import Batch, Delivery, Request
from muntin.wire.addresses import addresses
from muntin.wire.client import Client
from muntin.wire.keys import Keys
from muntin.wire.messages import Exchange, Fetch, Limits, News, Plan

_AT_ONCE = 32  # agents that are talked to


@dataclass(frozen=True)
class Pull:
    """Deliveries of one agent."""

    address: str
    fetch: Fetch
    bytes: int
    client: Client


@dataclass(frozen=True)
class PullTask:
    """What one process fetches, agent by agent."""

    pulls: tuple[Pull, ...]

    def deliver(self, recipes: Sequence[Recipe]) -> Iterator[Delivery]:
        shapes = {recipe.shape.id: recipe.shape for recipe in recipes}
        for pull in self.pulls:
            for parcel in pull.client.fetch(pull.address, pull.fetch):
                blocks = {
                    id_: Block.decode(data, f"block of {pull.address}").table(shapes[id_].pane)
                    for id_, data in parcel.blocks.items()
                    if id_ in shapes
                }
                yield Delivery(blocks, parcel.readings)


@dataclass(frozen=True)
class PullWork:
    """The deliveries of a batch."""

    pulls: tuple[Pull, ...]

    def tasks(self, most: int) -> list[PullTask]:
        number = min(most, len(self.pulls))
        return [PullTask(self.pulls[i::number]) for i in range(number)]


class Agents:
    """The agents of one stream."""

    def __init__(self, stream: Stream, pipeline: str, keys: Keys | None = None) -> None:
        """`pipeline` is the name by which agents know for whom they count."""
        self._stream = stream
        self._client = Client(keys)
        self._pipeline = pipeline
        self._names: dict[str, str] = {}  # of agents, by their address
        self._seen: dict[str, float] = {}
        self._behind: frozenset[str] = frozenset()
        self._away: set[str] = set()
        self._threads = ThreadPoolExecutor(_AT_ONCE, "agents")

    def next(self, request: Request) -> Batch:
        plan = Plan(self._stream, tuple(request.recipes), request.slack_us)
        places = addresses(self._stream.agents)
        looks = self._threads.map(lambda at: self._look(at, plan, request), places)
        pulls, notes, behind = [], [], set()
        for address, news in zip(places, looks, strict=True):
            if isinstance(news, WireError):
                if address not in self._away:
                    notes.append(f"stream '{self._stream.name}': {news}")
                    self._away.add(address)
                continue
            self._away.discard(address)
            self._names[address] = news.agent
            self._seen[news.agent] = news.seen_at
            notes += news.notes
            final = self._final(news.agent, request)
            if news.last > final:
                fetch = Fetch(self._pipeline, self._stream.name, final, news.last)
                pulls.append(Pull(address, fetch, news.bytes, self._client))
            if news.unread:
                behind.add(news.agent)
        self._behind = frozenset(behind)
        return Batch(
            PullWork(tuple(pulls)) if pulls else None,
            sum(pull.bytes for pull in pulls),
            notes=tuple(notes),
            touched=dict(self._seen),
        )

    def behind(self, sources: Mapping[str, Source]) -> frozenset[str]:
        return self._behind

    def names(self, now: float) -> frozenset[str]:
        return frozenset()

    def require(self) -> None:
        """Refuses to read agents to an end that they do not have."""
        raise InputError(
            f"stream '{self._stream.name}' comes from agents, which go on; run it without --once"
        )

    def close(self) -> None:
        self._threads.shutdown()

    def _final(self, agent: str, request: Request) -> int:
        return request.sources.get(agent, Source(sequence=request.released)).sequence

    def _look(self, address: str, plan: Plan, request: Request) -> News | WireError:
        limits = {recipe.shape.id: Limits(recipe.over, recipe.needs) for recipe in plan.recipes}
        name = self._names.get(address)
        try:
            if name is None:  # to learn who it is
                first = Exchange(self._pipeline, self._stream.name, plan.digest, 0)
                name = self._client.exchange(address, first).agent
            told = Exchange(
                self._pipeline,
                self._stream.name,
                plan.digest,
                self._final(name, request),
                limits=limits,
                wanted=request.wanted,
                counted=request.sources.get(name, Source()).counted,
            )
            news = self._client.exchange(address, told)
            if news.digest != plan.digest:
                news = self._client.exchange(address, replace(told, plan=plan))
            return news
        except WireError as error:
            return error
