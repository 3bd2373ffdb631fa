"""A relay: one address in front of many agents, which keeps nothing that anybody could miss.

    pipeline ──looks, fetches──► relay ──the same──► agents, or relays in front of others
             ◄──one parcel──────       ◄──parcels──

What is final, and which deliveries are fetched, the pipeline says of each agent by name. So a
relay may be killed at any moment, and a delivery may come through it, by another way, or twice. It
remembers plans, to know how blocks are merged; without one it asks for it as an agent would.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from uuid import uuid4

from muntin.errors import WireError
from muntin.model.records import Column
from muntin.model.streams import Stream
from muntin.schedule.pace import Measure, Pace
from muntin.wire.addresses import addresses
from muntin.wire.client import Client, ask_any
from muntin.wire.looks import Looks
from muntin.wire.messages import Exchange, Fetch, Heard, Parcel, Plan, pack
from muntin.wire.parcels import WAVE_BYTES, Shapes, fetched, merged, waves

_PLANS_AT_MOST = 64


class Relay:
    """Answers pipelines for the agents at some addresses."""

    def __init__(
        self,
        name: str,
        agents: Sequence[str],
        client: Client,
        most_fetched: int = WAVE_BYTES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`agents` are addresses, or files that list them.

        About `most_fetched` bytes are fetched before any of them is passed on.
        """
        self.most_fetched = most_fetched
        self._name = name
        self._agents = tuple(agents)
        self._client = client
        self._clock = clock
        self._self = uuid4().hex  # by which it knows what it has passed on itself
        self._looks = Looks(client)
        self._plans: OrderedDict[tuple[str, str], Plan] = OrderedDict()
        self._merging = ThreadPoolExecutor(1, "merging")  # statements are planned once a thread
        self.pace = Pace(Measure(0.05))  # of merging

    def exchange(self, told: Exchange) -> Heard:
        """Has all agents answer. Without the plan of the exchange, none seems to have it."""
        if self._self in told.relays:
            raise WireError(f"relay '{self._name}' is asked by itself; its agents lead back to it")
        if told.plan is not None:
            self._plans[told.pipeline, told.stream] = told.plan
            if len(self._plans) > _PLANS_AT_MOST:
                self._plans.popitem(last=False)
        passed_on = replace(told, relays=(*told.relays, self._self))
        heard = self._looks.at(addresses(self._agents), passed_on)
        if self._plan(told) is None:
            heard = replace(heard, news=tuple(replace(each, digest="") for each in heard.news))
        return heard

    def columns(self, stream: Stream) -> tuple[Column, ...]:
        """What the first agent says that answers."""
        what = f"the columns of stream '{stream.name}'"
        return ask_any(self._agents, lambda at: self._client.columns(at, stream), what)

    def clauses(self, stream: str) -> dict[str, str]:
        """What the first agent says that answers."""
        what = f"the format of stream '{stream}'"
        return ask_any(self._agents, lambda at: self._client.settings(at, stream), what)

    def fetch(self, wanted: Fetch) -> Iterator[bytes]:
        """Deliveries of all agents that are next to it, merged where there is time for it.

        Nobody can have it connect to another address than its own list has.
        """
        until = None if wanted.within is None else self._clock() + wanted.within
        plan, listed = self._plan(wanted), set(addresses(self._agents))
        shapes = {}
        if plan is not None and plan.python is None:  # code is run by nobody but agents
            shapes = {recipe.shape.id: recipe.shape for recipe in plan.recipes}
        mine = [each for each in wanted.ranges if each.via and each.via[0] in listed]
        for wave in waves(mine, self.most_fetched):
            left = None if until is None else max(0.0, until - self._clock())
            parcels, _ = fetched(self._client, replace(wanted, ranges=wave, within=left))
            yield from map(pack, self._together(shapes, parcels, until))

    def close(self) -> None:
        self._looks.close()
        self._merging.shutdown()

    def _plan(self, told: Exchange | Fetch) -> Plan | None:
        plan = self._plans.get((told.pipeline, told.stream))
        return plan if plan is not None and plan.digest == told.digest else None

    def _together(self, shapes: Shapes, parcels: list[Parcel], until: float | None) -> list[Parcel]:
        """The parcels as one; as they are, if that would take too long."""
        if len(parcels) < 2 or not shapes:
            return parcels
        size = sum(len(block) for parcel in parcels for block in parcel.blocks.values())
        started = self._clock()
        if until is not None and started + self.pace.takes(size) > until:
            self.pace.fade()
            return parcels
        together = self._merging.submit(merged, shapes, parcels).result()
        self.pace.read(size, self._clock() - started)
        return [together]
