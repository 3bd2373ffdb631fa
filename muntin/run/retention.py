"""What nobody needs any more: blocks and tallies that no window still to come holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from muntin.fidelity.score import EVER, NEVER
from muntin.kernel.due import Emitted
from muntin.kernel.kinds import kind_of
from muntin.kernel.reading import Reading
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
        """Notes from where on there are panes of shapes that are kept for questions now.

        Of shapes that nobody keeps any more, nothing is added to what there is.
        """
        for id_ in self._progress.past.keys() - catalog.retained.keys():
            self._progress.past[id_].settle()
        for id_ in catalog.retained:
            known = self._progress.past.get(id_)
            is_over = known is not None and all(j.ended is not None for j in known.jobs.values())
            if id_ in self._watched and not is_over:
                continue
            jobs = catalog.by_shape[id_]  # those that come to their end do not begin anything
            jobs = tuple(job for job in jobs if job.term.is_open) or jobs
            oldest = self._departures.emitted(jobs).needed_from
            self._began[id_] = NEVER if oldest is None else oldest
            if known is not None:
                known.skip(self._began[id_])
        self._watched = frozenset(catalog.retained)

    def miss(self, catalog: Catalog, readings: Sequence[Reading]) -> None:
        """Notes records that were read of panes which had settled, and are not in them."""
        for id_ in catalog.retained.keys() & self._progress.past.keys():
            known, grid = self._progress.past[id_], catalog.grids[id_]
            for tally in (tally for reading in readings for tally in reading.tallies):
                position = tally.pane * tally.size
                on_grid = (tally.axis, tally.size) == grid
                if not on_grid or not known.began <= position < known.settled:
                    continue
                if tally.records:
                    known.miss(tally.source, position)
                if tally.bad:
                    known.bad.add(tally.size, {position: tally.bad})

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
                began = max(self._began.pop(id_, NEVER), first, *_own(shape))
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
            still = {job.title for job in jobs if job.term.is_open}
            for job in jobs:
                if job.title not in known.jobs or job.term.is_open:
                    _name(known, job)
            known.end(known.jobs.keys() - still, ends.get(id_, known.until))
            oldest = min(until, max(NEVER, self.oldest_pane(shape, emitted[id_]) * shape.pane))
            bad = self._progress.ledger.bad(catalog.grids[id_], start, end)
            known.note(oldest, until, runs, {n * shape.pane: bad[n] for n in bad})
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


def _own(shape: Shape) -> list[int]:
    """Where panes begin that are not those of an earlier version, if it has taken over any."""
    drawn = None if shape.draws is None else shape.draws.upper
    return [at for at in (drawn, shape.since) if at is not None]


def _name(known: Past, job: Job) -> None:
    """Has questions find a job's panes under its title."""
    told = known.jobs.get(job.title)
    number, kept = job.edition.number, job.retain_us or 0
    if told is not None and told.edition > number:
        return
    same = told is not None and (told.version, told.retain_us) == (job.version, kept)
    if told is None or told.edition < number or told.ended is not None or not same:
        since = () if told is None else told.since
        if not since or since[-1][0] < number:
            since = (*since, (number, known.until))
        text = encoded(replace(job, term=Term()))
        known.jobs[job.title] = Asked(number, job.version, kept, text, since)


def _expire(past: dict[str, Past], newest: int) -> None:
    """Drops what is older than it is kept for."""
    for id_, known in list(past.items()):
        for title, job in list(known.jobs.items()):
            if job.ended is not None and job.ended <= newest - job.retain_us:
                del known.jobs[title]
        before = newest - known.retain_us
        known.forget(before)
        if known.until <= before or not known.jobs:
            del past[id_]
