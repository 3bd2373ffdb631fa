"""Agents as an intake: deliveries that they have made, handed out to be fetched in tasks.

At every look the pipeline tells each agent which jobs there are and how far deliveries are final,
and hears how far they go. An agent that is away is nothing to fail over: its source is awaited as
long as any that is silent, and what it has counted meanwhile comes when it is back.

An address may be a relay's, which answers for the agents behind it. Each agent is read by one way
at a time, through as many relays as answer. Of a relay that is away, its agents are asked
themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from muntin.errors import InputError
from muntin.fidelity.losses import Loss
from muntin.fidelity.scoreboard import Source
from muntin.kernel.compute import Recipe
from muntin.kernel.kinds import kind_of
from muntin.kernel.reading import Reading
from muntin.model.jobs import Program
from muntin.model.streams import Stream
from muntin.run.contracts import Batch, Delivery, Request
from muntin.run.namesakes import Namesakes
from muntin.units import describe
from muntin.wire.addresses import addresses
from muntin.wire.client import Client
from muntin.wire.keys import Keys
from muntin.wire.looks import Looks
from muntin.wire.messages import Departed, Exchange, Fetch, Heard, Known, News, Plan, Range
from muntin.wire.parcels import fetched_somehow, readings, tables, waves

_NAMED = 5  # agents in one note


@dataclass(frozen=True)
class PullTask:
    """What one process fetches, of several agents at once, and merges before it goes any further.

    It delivers all of it, or raises a WireError: what was delivered once has to be delivered again
    if the task runs again, though agents may have gone meanwhile.
    """

    wanted: Fetch
    client: Client

    def deliver(self, recipes: Sequence[Recipe]) -> Iterator[Delivery]:
        shapes = {recipe.shape.id: recipe.shape for recipe in recipes}
        for wave in waves(self.wanted.ranges):
            parcels = fetched_somehow(self.client, replace(self.wanted, ranges=wave))
            blocks = tables(shapes, parcels)
            for recipe in recipes:  # agents may have read before they knew what has left
                if (id_ := recipe.shape.id) in blocks:
                    blocks[id_] = kind_of(recipe.shape).delivered(blocks[id_], recipe.over)
            yield Delivery(blocks, tuple(map(_signed, readings(shapes, parcels))))


@dataclass(frozen=True)
class PullWork:
    """The deliveries of a batch."""

    wanted: Fetch
    client: Client

    def tasks(self, most: int) -> list[PullTask]:
        """Agents that are behind one address are fetched together, as they are merged there."""
        places: dict[str, list[Range]] = {}
        for each in self.wanted.ranges:
            places.setdefault(each.via[0], []).append(each)
        number = min(most, len(places))
        parts: list[list[Range]] = [[] for _ in range(number)]
        for i, together in enumerate(places.values()):
            parts[i % number] += together
        return [PullTask(replace(self.wanted, ranges=tuple(part)), self.client) for part in parts]


class Agents:
    """The agents of one stream."""

    def __init__(
        self, stream: Stream, pipeline: str, keys: Keys | None = None, idle_seconds: float = 10.0
    ) -> None:
        """`pipeline` is the name by which agents know for whom they count.

        One that has begun, and is away before it has sent anything, is awaited for the idle time.
        """
        self._stream = stream
        self._client = Client(keys)
        self._pipeline = pipeline
        self._looks = Looks(self._client)
        self._names = Namesakes(stream.name, idle_seconds)
        self._ways: dict[str, tuple[str, ...]] = {}  # to agents, from addresses that are listed
        self._around: tuple[str, ...] = ()  # addresses behind relays that are away
        self._idle_seconds = idle_seconds
        self._seen: dict[str, float] = {}
        self._begun: dict[str, float] = {}  # agents that are to send their first, when they spoke
        self._spoke: dict[str, float] = {}  # when each agent did so last
        self._answered: set[str] = set()  # addresses that have
        self._unheard: dict[
            str, float
        ] = {}  # those that never have, and since when they were tried
        self._unreadable: dict[str, tuple[Loss, ...]] = {}  # by agent, as it said last
        self._behind: frozenset[str] = frozenset()
        self._away: set[str] = set()
        self._troubles: dict[str, str] = {}  # by agent
        self._slacks: dict[str, int] = {}  # by agent, what its settings say that does not count
        self._digest = ""  # of the plan at the last look
        self._listed: list[str] | None = None
        self._unlisted: str | None = None  # why they are not known any more

    def next(self, request: Request) -> Batch:
        plan = Plan(self._stream, tuple(request.recipes), request.slack_us)
        heard = self._hear(plan, request)
        chosen = self._chosen(heard.news)
        notes = [*self._missing(heard), *self._names.told(heard.news), *self._troubled(chosen)]
        notes += self._other_slacks(chosen, request.slack_us or 0)
        for each in chosen:  # one that begins has not seen the end of its logs yet
            sends = each.last > self._known(each.agent, request).final
            before = self._seen.get(each.agent) or (request.now if sends else 0.0)
            seen = before if each.age is None else request.now - each.age
            self._seen[each.agent] = max(before, seen)
            self._unreadable[each.agent] = each.unreadable
        unheard = self._strangers(heard, chosen, request)
        awaited = {p for p, at in unheard.items() if request.now - at <= self._idle_seconds}
        self._behind = frozenset({*self._await(chosen, request), *awaited})
        lost = {name: losses for name, losses in self._unreadable.items() if losses}
        lost |= {p: (Loss(p, p, "cannot be reached"),) for p in unheard.keys() - awaited}
        ranges = tuple(
            Range(each.agent, final, each.last, each.bytes, each.via)
            for each in chosen
            if each.last > (final := self._known(each.agent, request).final)
        )
        wanted = Fetch(self._pipeline, self._stream.name, plan.digest, ranges, request.room)
        return Batch(
            PullWork(wanted, self._client) if ranges else None,
            sum(each.bytes for each in ranges),
            notes=tuple(notes),
            touched={**dict.fromkeys(request.sources, 0.0), **self._seen},  # away is not ended
            unreadable=lost,
            answered=frozenset(each.agent for each in chosen),
        )

    def behind(self, sources: Mapping[str, Source]) -> frozenset[str]:
        return self._behind

    def names(self, now: float) -> frozenset[str]:
        return frozenset()

    def require(self) -> None:
        """Refuses to read agents to an end that they do not have."""
        raise InputError(
            f"stream '{self._stream.name}' comes from agents, which go on, so there is no end to "
            "read to; use `muntin run` without --once"
        )

    def require_names(self) -> None:
        """Refuses two agents of one name, as far as they answer now. Nobody is made to count."""
        asked = Exchange(self._pipeline, self._stream.name, "")
        self._names.meant(self._looks.at(self._addresses(), asked).news, 0.0)

    def close(self) -> None:
        self._looks.close()

    def _hear(self, plan: Plan, request: Request) -> Heard:
        """Looks at all addresses, and behind relays that are away at who is known to be there."""
        listed = self._addresses()
        self._ways = {name: way for name, way in self._ways.items() if way[0] in listed}
        places = list(dict.fromkeys([*listed, *self._around]))
        tried: set[str] = set()
        every = Heard()
        while places:
            tried |= {*places}
            heard = self._look(places, plan, request)
            every = Heard((*every.news, *heard.news), {**every.away, **heard.away})
            there = {each.agent for each in every.news}
            unheard = (way for name, way in self._ways.items() if name not in there)
            around = (_around(way, {*every.away}, tried) for way in unheard)
            places = list(dict.fromkeys(place for place in around if place is not None))
        self._remember(every, listed)
        if self._unlisted is not None:
            every = replace(every, away={**every.away, "": self._unlisted})
        return every

    def _addresses(self) -> list[str]:
        """Who is listed; while the list cannot be read, who was before."""
        try:
            self._listed = addresses(self._stream.agents)
        except InputError as error:
            if self._listed is None:
                raise
            self._unlisted = str(error)
        else:
            self._unlisted = None
        return self._listed

    def _remember(self, heard: Heard, listed: Sequence[str]) -> None:
        """Takes by which ways agents are found. Those that no relay has any more are forgotten."""
        there = {each.agent: each.via for each in self._chosen(heard.news)}
        gone = {*heard.away}
        self._ways = {name: way for name, way in self._ways.items() if gone.intersection(way)}
        self._ways |= {name: way for name, way in there.items() if way[0] in listed}
        self._around = tuple({way[0] for way in there.values()}.difference(listed))

    def _look(self, places: Sequence[str], plan: Plan, request: Request) -> Heard:
        """One look at some addresses; those behind which somebody needs the plan get it."""
        told = Exchange(
            self._pipeline,
            self._stream.name,
            plan.digest,
            {name: self._known(name, request) for name in self._names.names},
            departed={r.shape.id: Departed(r.over, r.needs) for r in plan.recipes},
            wanted=request.wanted,
        )
        # Who has answered before has another plan since jobs were changed, and gets it at once.
        changed = self._digest not in ("", plan.digest)
        self._digest = plan.digest
        at_once = replace(told, plan=plan.sent(self._pipeline)) if changed else told
        first = self._looks.at(places, at_once)
        meant = self._names.meant(first.news, request.now)
        needing = {each.via[0] for each in meant if each.digest != plan.digest}
        if not needing:
            return first
        known = {name: self._known(name, request) for name in self._names.names}
        sent = replace(told, known=known, plan=plan.sent(self._pipeline))
        second = self._looks.at(sorted(needing), sent)
        kept = (each for each in first.news if each.via[0] not in needing)
        return Heard((*kept, *second.news), {**first.away, **second.away})

    def _known(self, agent: str, request: Request) -> Known:
        source = request.sources.get(agent, Source(sequence=request.released))
        return Known(source.sequence, source.counted, self._names.identity(agent))

    def _chosen(self, news: Sequence[News]) -> list[News]:
        """Of every agent that is read, the news through the most relays; of equals, the first."""
        chosen: dict[str, News] = {}
        for each in news:
            if each.identity != self._names.identity(each.agent):
                continue
            if each.agent not in chosen or len(each.via) > len(chosen[each.agent].via):
                chosen[each.agent] = each
        return list(chosen.values())

    def _strangers(
        self, heard: Heard, chosen: Sequence[News], request: Request
    ) -> Mapping[str, float]:
        """Addresses where somebody is to be read of whom nothing is known, and since when.

        They count as sources, or results without them would seem complete. Where sources of an
        earlier run are unheard, these may be the ones.
        """
        for each in heard.news:
            self._answered |= {*each.via}
        self._spoke |= {each.agent: request.now for each in chosen}
        never = sorted(heard.away.keys() - self._answered - {""})
        self._unheard = {place: self._unheard.get(place, request.now) for place in never}
        known = len(request.sources.keys() - self._spoke.keys())
        return {place: self._unheard[place] for place in never[known:]}

    def _await(self, news: Sequence[News], request: Request) -> Iterator[str]:
        """The agents that are about to send more, or were there a moment ago."""
        there = {each.agent for each in news}
        for agent in self._ways.keys() - there:
            if request.now - self._spoke.get(agent, 0.0) <= self._idle_seconds:
                yield agent
        for each in news:
            self._begun.pop(each.agent, None)
            if each.trouble:
                continue
            if each.unread:
                yield each.agent
            if each.agent not in request.sources and each.age is None:
                self._begun[each.agent] = request.now
        for agent, at in self._begun.items():
            if request.now - at <= self._idle_seconds:
                yield agent

    def _missing(self, heard: Heard) -> Iterator[str]:
        """Tells once of everybody who is away."""
        for place in sorted(heard.away.keys() - self._away):
            read = any(place in way[:-1] for way in self._ways.values())
            hint = "; agents behind it are read directly" if read else ""
            yield f"stream '{self._stream.name}': {heard.away[place]}{hint}"
        self._away = {*heard.away}

    def _troubled(self, news: Sequence[News]) -> Iterator[str]:
        """Tells once of every agent that is there and cannot go on, and why."""
        known, self._troubles = self._troubles, {n.agent: n.trouble for n in news if n.trouble}
        for agent, trouble in self._troubles.items():
            if known.get(agent) != trouble:
                yield (
                    f"stream '{self._stream.name}': agent '{agent}' cannot go on: {trouble}; it "
                    "tries again"
                )

    def _other_slacks(self, news: Sequence[News], slack_us: int) -> Iterator[str]:
        """Tells once of agents whose settings have another slack than the one that counts."""
        others = {n.agent: n.slack_us for n in news if n.slack_us not in (None, slack_us)}
        new = {a: us for a, us in others.items() if us is not None and self._slacks.get(a) != us}
        self._slacks |= new
        for other in sorted({*new.values()}):
            names = [f"'{agent}'" for agent in sorted(new) if new[agent] == other]
            more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
            who = f"agent{'s' if len(names) > 1 else ''} {', '.join(names[:_NAMED])}{more}"
            yield (
                f"stream '{self._stream.name}': SLACK is {describe(slack_us)} for all agents, and "
                f"not {describe(other)} as the settings of {who} say; give all the same, or none"
            )


def require_agents(program: Program, follow: bool, keys: Keys | None = None) -> None:
    """Refuses agents that cannot be read so, before anything is begun that takes long."""
    for stream in program.streams.values():
        if not stream.agents or not program.runs(stream.name):
            continue
        agents = Agents(stream, "", keys)
        try:
            if follow:
                agents.require_names()
            else:
                agents.require()
        finally:
            agents.close()


def _around(way: Sequence[str], away: set[str], tried: set[str]) -> str | None:
    """The next address on a way that leads past somebody who is away, if there is one to try."""
    if not away.intersection(way):
        return None
    return next((place for place in way[1:] if place not in away | tried), None)


def _signed(reading: Reading) -> Reading:
    """The reading, with what there is to tell signed by its agent: paths are of its server."""
    agent = f"agent '{reading.source}'"
    notes = tuple(f"{agent}: {note}" for note in reading.notes)
    faults = tuple(replace(fault, given=f"{fault.given} at {agent}") for fault in reading.faults)
    return replace(reading, notes=notes, faults=faults)
