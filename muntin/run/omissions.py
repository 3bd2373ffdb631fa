"""What is left out of a batch, where computing all of it would have windows leave too late.

    a batch ──┬─ shapes that take hardly any time, or fit before windows have to set off: computed
              └─ the dearest, if they do not fit: nothing, up to the next pane behind the batch

So a job that takes long for every record loses panes of its own, and the others lose no time. What
is left out is noted as shed, source by source, in the commit of the batch. Only windows of time can
be made without some panes: sessions are left out for a while, too, but no states that live on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from muntin.fidelity.losses import Unmade, joined
from muntin.fidelity.score import EVER, State
from muntin.fidelity.scoreboard import Source
from muntin.kernel.compute import Recipe
from muntin.kernel.kinds import kind_of
from muntin.kernel.reading import Cost, Reading
from muntin.model.jobs import Job
from muntin.model.records import TIME
from muntin.model.shapes import Shape
from muntin.model.streams import Stream
from muntin.run.catalog import Catalog
from muntin.run.contracts import Batch
from muntin.schedule.loads import Loads
from muntin.schedule.pace import Pace
from muntin.units import describe

_SAFE = 0.7  # how much of the time that is left may be planned with
_AGAIN = 10.0  # seconds after which it is tried again what a shape takes


class Omissions:
    """Decides for one stream, batch by batch, by what shapes have taken so far."""

    def __init__(self, stream: Stream, pace: Pace) -> None:
        self._pace = pace
        self._here = not any(each.agents for each in (stream, *stream.members))
        self._loads = Loads()
        self._now_out: frozenset[str] = frozenset()  # shapes without this batch
        self._begins: dict[str, int] = {}  # shapes that go on behind a position
        self._unknown: dict[str, float] = {}  # since when it was not measured what shapes take
        self._told: set[str] = set()

    def most(self, catalog: Catalog, room: float, now: float) -> int:
        """How many bytes can be read before windows have to set off, so many seconds from now."""
        left_out = self._now_out - self._tried(now)
        return self._pace.most(room, self._loads.each(catalog.shapes.keys() - left_out))

    def plan(self, catalog: Catalog, batch: Batch, room: float | None, now: float) -> Iterator[str]:
        """Takes the batch that is to be computed; tells once of each job that does not fit."""
        self._now_out = frozenset()
        if room is None or batch.work is None or not batch.bytes or not self._here:
            return
        size = batch.bytes + batch.remaining  # all of it has to be done in time
        tried, shapes = self._tried(now), catalog.shapes
        self._begins = {id_: at for id_, at in self._begins.items() if id_ not in tried}
        dear = {id_ for id_ in shapes if self._loads.seconds(id_, size) > 0} - tried
        able = {id_ for id_ in dear if _can_do_without(catalog, shapes[id_])}
        left = _SAFE * room - self._pace.takes(size)
        left -= sum(self._loads.seconds(id_, size) for id_ in dear - able)
        self._now_out = frozenset(self._loads.misfits(able, size, left))
        self._unknown = dict.fromkeys(self._now_out, now) | self._unknown
        for id_ in self._now_out:
            for job in catalog.by_shape[id_]:
                if job.title not in self._told:
                    self._told.add(job.title)
                    yield _note(job, self._loads.seconds(id_, size))

    def recipes(self, recipes: Sequence[Recipe]) -> list[Recipe]:
        """What is computed of the batch."""
        if not (self._now_out or self._begins):
            return list(recipes)
        return [replace(recipe, needs=self._needs(recipe)) for recipe in recipes]

    def _needs(self, recipe: Recipe) -> int | None:
        id_ = recipe.shape.id
        begins = EVER if id_ in self._now_out else self._begins.get(id_)
        return max((at for at in (recipe.needs, begins) if at is not None), default=None)

    def note(
        self,
        catalog: Catalog,
        readings: Sequence[Reading],
        sources: Mapping[str, Source],
        furthest: int,
    ) -> None:
        """Notes what of a batch was left out, now that it is known how far that went."""
        if not (self._now_out or self._begins):
            return
        for id_ in self._now_out:
            size = catalog.shapes[id_].pane or 1
            self._begins[id_] = (furthest // size + 1) * size
        for reading in readings:
            first, source = reading.first.get(TIME.column), sources[reading.source]
            new = [
                Unmade(id_, first, begins, State.SHED)
                for id_, begins in self._begins.items()
                if first is not None and first < begins
            ]
            ahead = [span for span in source.doubt.spans if span.high > furthest]
            new += [
                Unmade(id_, max(span.low, furthest), span.high + 1, State.SHED)
                for id_ in self._now_out
                for span in ahead
            ]
            if new:
                source.unmade = joined((*source.unmade, *new))
        self._begins = {id_: at for id_, at in self._begins.items() if at > furthest}

    def took(self, batch: Batch, costs: Mapping[str, Cost], seconds: float) -> float:
        """Takes what a batch took; returns how much of that was of shapes that take long."""
        if not (self._here and batch.bytes):
            return 0.0
        computed = {id_: cost.seconds for id_, cost in costs.items() if cost.records}
        self._unknown = {id_: at for id_, at in self._unknown.items() if id_ not in computed}
        return self._loads.take(batch.bytes, seconds, computed)

    def keep(self, catalog: Catalog) -> None:
        """Forgets all shapes but these."""
        shapes = catalog.shapes
        self._loads.keep(shapes)
        self._begins = {id_: at for id_, at in self._begins.items() if id_ in shapes}
        self._now_out = self._now_out & shapes.keys()
        self._unknown = {id_: at for id_, at in self._unknown.items() if id_ in shapes}

    def _tried(self, now: float) -> frozenset[str]:
        """A shape that was left out for so long that it may have become cheaper, if there is one.

        It is tried with as little as can be read, in whichever pane.
        """
        longest = min(((at, id_) for id_, at in self._unknown.items()), default=(now, ""))
        return frozenset({longest[1]} if now - longest[0] > _AGAIN else ())


def _can_do_without(catalog: Catalog, shape: Shape) -> bool:
    """Whether panes of a shape can be missing, and that be told."""
    if not shape.axis.is_time or shape.spans is not None:
        return False
    if any(job.bounds.within_us is None for job in catalog.by_shape[shape.id]):
        return False  # who names no bound waits, and gets all
    if shape.draws is not None or shape.id in catalog.drawn:
        return False  # for as long as windows go on with panes of another version
    return kind_of(shape).has_panes or shape.gap is not None


def _note(job: Job, seconds: float) -> str:
    takes = describe(max(1, round(seconds * 100)) * 10_000)
    if job.is_keeper:
        return (
            f"stream '{job.title}': keeping the records of one batch takes {takes}, and windows "
            "would leave too late for that; some are not kept, which C² tells: retain fewer "
            "columns, or give it more servers"
        )
    return (
        f"job '{job.title}': its records of one batch take {takes} to compute, and windows would "
        "leave too late for that; panes of it are shed, which C² tells and `muntin status` counts: "
        "give it less to do for each record, or more servers"
    )
