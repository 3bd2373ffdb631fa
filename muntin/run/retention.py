"""What nobody needs any more: blocks and tallies that no window still to come holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from muntin.fidelity.score import EVER, NEVER
from muntin.kernel.due import Emitted
from muntin.kernel.kinds import kind_of
from muntin.model.jobs import Job, Term
from muntin.model.records import TIME
from muntin.model.shapes import Shape
from muntin.run.catalog import Catalog
from muntin.run.contracts import Collection
from muntin.run.departures import Departures
from muntin.run.due import Agenda
from muntin.run.kept import encoded
from muntin.run.past import Asked, Past, runs_of
from muntin.run.progress import Progress
from muntin.windows.ledger import Grid


class Retention:
    """Decides what is kept of one stream, by what its jobs have sent off."""

    def __init__(self, progress: Progress, departures: Departures) -> None:
        self._progress = progress
        self._departures = departures
        self._began: dict[str, int] = {}  # by shape, where panes begin that are about to be kept
        self._watched: frozenset[str] = frozenset()
        self._passed: dict[str, int] = {}  # by axis, up to where nothing more is awaited

    def watch(self, catalog: Catalog) -> None:
        """Notes from where on there are panes of shapes that are kept for questions now."""
        for id_ in catalog.retained.keys() - self._watched:
            oldest = self._departures.emitted(catalog.by_shape[id_]).needed_from
            self._began[id_] = NEVER if oldest is None else oldest
            if id_ in self._progress.past:
                self._progress.past[id_].skip(self._began[id_])
        self._watched = frozenset(catalog.retained)

    def note(
        self,
        catalog: Catalog,
        emitted: Mapping[str, Emitted],
        agenda: Agenda,
        ends: Mapping[str, int],
    ) -> None:
        """Notes what is known of panes that are kept for questions, before they are let go.

        `ends` are positions behind which nothing is computed, of shapes that are about to go.
        """
        past = self._progress.past
        for id_, jobs in catalog.retained.items():
            shape, board = catalog.shapes[id_], agenda.board_of(jobs[0])
            axis = shape.axis.column
            if id_ not in past:
                sources = agenda.scoreboard.sources.values()
                firsts = [s.first[axis] for s in sources if axis in s.first]
                if not firsts:
                    continue
                first = min(firsts) // shape.pane * shape.pane
                began = max(self._began.pop(id_, NEVER), first)
                past[id_] = Past(shape.pane, began, began, began)
            known = past[id_]
            known.regrid(shape.pane)
            reached = agenda.scoreboard.last(axis)
            until = (reached // shape.pane + 1) * shape.pane
            if id_ in ends:
                until = min(until, ends[id_] // shape.pane * shape.pane)
            until = max(known.until, until)
            start, end = known.settled // shape.pane, -(-until // shape.pane)
            runs = runs_of(board, catalog.windows[id_], shape.pane, start, end)
            oldest = min(until, max(NEVER, self.oldest_pane(shape, emitted[id_]) * shape.pane))
            known.note(oldest, until, runs)
            for job in jobs:
                _name(known, job)
        for id_ in past.keys() - catalog.retained.keys():
            past[id_].settle()
        _expire(past, agenda.scoreboard.furthest(TIME.column))

    def to_save(self, catalog: Catalog, emitted: Mapping[str, Emitted]) -> dict[str, Emitted]:
        """The same as `emitted` of the shapes whose panes are not needed any more then."""
        return {id_: each for id_, each in emitted.items() if id_ not in catalog.retained}

    def emitted(self, catalog: Catalog) -> dict[str, Emitted]:
        """What has left of each shape."""
        return {id_: self._departures.emitted(jobs) for id_, jobs in catalog.by_shape.items()}

    def forget(
        self, catalog: Catalog, emitted: Mapping[str, Emitted], collection: Collection, now: float
    ) -> None:
        """Drops what no window needs that comes after the emitted ones."""
        collection.forget(catalog, emitted)
        oldest: dict[Grid, int] = {}
        needed: dict[str, int] = {}  # by axis, the position before which nothing is
        for id_, shape in catalog.shapes.items():
            axis, left = shape.axis.column, emitted[id_]
            if not kind_of(shape).has_panes:
                first = NEVER if left.sessions is None else left.sessions - shape.reach
            else:
                pane, grid = self.oldest_pane(shape, left), catalog.grids[id_]
                oldest[grid] = min(pane, oldest.get(grid, pane))
                first = max(NEVER, pane * shape.pane)
                for job in catalog.by_shape[id_]:
                    self._progress.failures.forget(job.name, first)
            needed[axis] = min(first, needed.get(axis, first))
        for grid, pane in oldest.items():
            self._progress.ledger.forget(grid, pane)
        self._progress.let_go(needed, now)

    def forget_bounded(
        self,
        catalog: Catalog,
        horizons: Mapping[str, int | None],
        collection: Collection,
        now: float,
    ) -> None:
        """Drops what lies outside of the bounds of jobs, for which no window will ever leave."""
        bounded = any(s.begin is not None and s.pane for s in catalog.shapes.values())
        if bounded and any(horizons.values()):
            self._passed = {axis: at for axis, at in horizons.items() if at is not None}
            self.forget(catalog, self.emitted(catalog), collection, now)

    def oldest_pane(self, shape: Shape, emitted: Emitted) -> int:
        """The first pane that some window still to come holds, within the shape's bounds."""
        oldest = emitted.oldest_pane
        if shape.begin is None:
            return oldest
        longest = max(spec.length for spec in emitted.windows)
        oldest = max(oldest, shape.begin // shape.pane - longest)
        over = shape.until is not None and self._passed.get(shape.axis.column, NEVER) >= (
            shape.until + longest * shape.pane
        )
        return EVER if over else oldest


def _name(known: Past, job: Job) -> None:
    """Has questions find a job's panes under its title."""
    told = known.jobs.get(job.title)
    number, kept = job.edition.number, job.retain_us or 0
    if told is None or (
        told.edition <= number
        and (told.edition, told.version, told.retain_us) != (number, job.version, kept)
    ):
        text = encoded(replace(job, term=Term()))
        known.jobs[job.title] = Asked(number, job.version, kept, text)


def _expire(past: dict[str, Past], newest: int) -> None:
    """Drops what is older than it is kept for."""
    for id_ in list(past):
        before = newest - past[id_].retain_us
        past[id_].forget(before)
        if past[id_].until <= before:
            del past[id_]
