"""Which job follows which: how the jobs of a stream change between two turns, at one boundary.

A boundary is a position behind everything that was read of any source, where a pane begins. Every
record from there on is read with the new jobs in force, wherever that is done, and however far
behind a source is. So a window is by one version as a whole, or made of panes of which each is by
one, and which ones these are follows from the boundary alone.

A version that is replaced stays, as a job of its own beside the new one, until its last window has
left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import lcm

from muntin.fidelity.losses import Unmade
from muntin.fidelity.score import EVER, NEVER, State
from muntin.fidelity.scoreboard import Scoreboard
from muntin.kernel.kinds import kind_of
from muntin.language.orders import Create, Drop, Order, Pause, Replace, Reset, Resume, Set
from muntin.model.jobs import Edition, Job, Term
from muntin.model.shapes import Draw, Shape
from muntin.run.catalog import Catalog, InForce
from muntin.run.chooser import Chooser
from muntin.run.contracts import Collection
from muntin.run.departures import Departures
from muntin.run.kept import digest
from muntin.run.progress import SESSION, Progress
from muntin.run.retention import Retention
from muntin.units import describe_time
from muntin.windows.spec import WindowSpec

_Boundaries = dict[str, int | None]  # by axis; None: nothing was read
_READ_BEFORE = "it was read before the job was there"


@dataclass(frozen=True)
class Effect:
    """What became of an order: the job, its version, and from which position on it holds.

    Without a position, it holds for everything there is. `by` says which windows are meant: those
    that start there or later, or those that end later. `moves` says whether blocks were copied.
    """

    does: str
    job: str
    version: int
    position: int | None = None
    by: str = "start"
    axis: str = "time"
    moves: bool = False

    def __str__(self) -> str:
        told = f"job '{self.job}' (version {self.version}) is {self.does}"
        if self.position is None:
            return told
        is_time = self.axis == "time"
        at = f"{describe_time(self.position)} UTC" if is_time else f"{self.position:,}"
        which = f"start at {at} or later" if self.by == "start" else f"end after {at}"
        return f"{told}, for windows that {which}"


class Succession:
    """Exchanges the jobs of one stream. All that lives on is in what it is given."""

    def __init__(
        self,
        progress: Progress,
        departures: Departures,
        scoreboard: Scoreboard,
        chooser: Chooser,
        retention: Retention,
        collection: Collection,
    ) -> None:
        self._progress = progress
        self._departures = departures
        self._scoreboard = scoreboard
        self._chooser = chooser
        self._retention = retention
        self._collection = collection

    def adopt(self, catalog: Catalog, before: InForce) -> list[str]:
        """Takes up what was read for the jobs that were in force before; says who has stopped.

        Windows that are new, or of a job that means something else now, begin with their first
        whole pane: the first that is kept for others of their shape, if its panes fit, or else the
        first behind all that was read.
        """
        for id_, grid in catalog.grids.items():
            known = before.grids.get(id_)
            if known is not None and known != grid:
                self._progress.ledger.regrid(known, grid)
        self._progress.ledger.keep(catalog.grids.values())
        self._progress.forget_jobs(catalog.every)
        jobs = catalog.every.values()
        notes, revived = self._progress.failures.resume(jobs, before.changed(jobs))
        before = before.without(revived)
        for job in jobs:
            behind = self._scoreboard.furthest(job.shape.axis.column) + 1
            if behind <= NEVER + 1:
                continue  # nothing was read
            if not kind_of(job.shape).has_panes:
                if not before.had(job):
                    self._departures.begin_sessions(job, behind)
            elif new := before.new_windows(job):
                kept = self._kept_from(catalog, job, new, before)
                self._departures.begin(job, new, min(behind, kept))
        return notes

    def _kept_from(
        self, catalog: Catalog, job: Job, new: Sequence[WindowSpec], before: InForce
    ) -> int:
        """The position from which on panes are kept that new windows can be made of; EVER: none.

        They are kept for windows of the same shape that were there before. These must be shared
        partials, on a grid that fits, and of windows that are at least as long: what came too late
        for all windows was not kept.
        """
        known = []
        for other in catalog.by_shape[job.shape.id]:
            if self._progress.failures.stopped_at(other.name) is not None:
                continue  # of what it has stopped before, not all is kept
            if not other.term.is_open:
                continue  # nor of what follows its last window
            fresh = before.new_windows(other)
            windows = tuple(spec for spec in other.windows if spec not in fresh)
            known += [replace(other, windows=windows)] if windows else []
        size = before.grids.get(job.shape.id, ("", 0))[1]
        windows = catalog.windows[job.shape.id]
        if not known or not size or self._chooser.choice(job.shape, windows).separate:
            return EVER
        longest = max(spec.range for other in known for spec in other.windows)
        if not all(spec.fits(size) and spec.range <= longest for spec in new):
            return EVER
        oldest = self._retention.oldest_pane(job.shape, self._departures.emitted(known))
        return oldest * job.shape.pane

    def obey(self, catalog: Catalog, order: Order) -> tuple[Catalog, Effect]:
        """The catalog after an order, with all that its jobs take over, and what it came to."""
        if isinstance(order, Create):
            return self._create(catalog, order.jobs)
        name = order.job.name
        if isinstance(order, Replace | Set):
            does, more = ("replaced", 1) if isinstance(order, Replace) else ("set", 0)
            number = catalog.jobs[name].edition.number + more
            jobs = [replace(job, edition=replace(job.edition, number=number)) for job in order.jobs]
            if order.at == "pane":
                return self._replace_at_pane(catalog, jobs, does)
            return self._replace_at_window(catalog, jobs, does)
        if isinstance(order, Drop):
            return self._drop(catalog, name)
        if isinstance(order, Pause):
            return self._pause(catalog, name)
        if isinstance(order, Resume):
            jobs = [job for job in catalog.paused.values() if job.title == name]
            left = {each: job for each, job in catalog.paused.items() if job.title != name}
            return self._begin(replace(catalog, paused=left), jobs, "resumed")
        assert isinstance(order, Reset), order
        return self._reset(catalog, name)

    def _create(self, catalog: Catalog, jobs: Sequence[Job]) -> tuple[Catalog, Effect]:
        """Begins a job, with panes that are there for others if they are what it needs."""
        names = {job.name for job in jobs}
        known = catalog.gone.get(jobs[0].name, Edition(0, base=""))
        gone = {name: edition for name, edition in catalog.gone.items() if name not in names}
        new = [
            replace(job, edition=replace(job.edition, number=known.number + 1, base=known.base))
            for job in jobs
        ]
        before = catalog.in_force
        catalog = replace(catalog, gone=gone).with_jobs(*new)
        self.adopt(catalog, before)
        began = []
        for job in (catalog.jobs[job.name] for job in jobs):
            self._leave_out_read(job, before)
            began += [
                spec.start(spec.first_end(at // spec.pane)) * spec.pane
                for spec in job.windows
                if (at := self._progress.began.get((job.name, spec.key))) is not None
            ]
            session = self._progress.began.get((job.name, SESSION))
            began += [] if session is None else [session]
        first = min(began, default=NEVER)  # all that was read may have been kept for others
        return catalog, _effect("created", new[0], first if first > NEVER else None)

    def _begin(
        self, catalog: Catalog, jobs: Sequence[Job], does: str, at: _Boundaries | None = None
    ) -> tuple[Catalog, Effect]:
        """Has jobs answer for windows that start at the next boundary or later."""
        before = catalog.in_force
        catalog = catalog.with_jobs(*jobs)
        self.adopt(catalog, before)
        jobs = [catalog.jobs[job.name] for job in jobs]
        at = self._boundaries(jobs) if at is None else at
        began: list[int] = []
        for job in jobs:
            boundary = at[job.shape.axis.column]
            if boundary is None:
                continue
            if kind_of(job.shape).has_panes:
                self._departures.begin(job, job.windows, boundary)
            else:
                self._departures.begin_sessions(job, boundary)
                boundary = self._progress.began[job.name, SESSION]
            self._leave_out_read(job, before)
            began.append(boundary)
        return catalog, _effect(does, jobs[0], began[0] if began else None)

    def _replace_at_window(
        self, catalog: Catalog, jobs: Sequence[Job], does: str
    ) -> tuple[Catalog, Effect]:
        """Of a job of several shapes, these may be others than before."""
        known = _parts(catalog, jobs[0].name)
        at, gone = self._boundaries([*known, *jobs]), dict(catalog.gone)
        jobs = [_touched(job, known[0]) for job in jobs]
        gaps = [job.shape.gap or 0 for job in jobs]
        for old in known:
            boundary = at[old.shape.axis.column]
            gone[old.name] = jobs[0].edition
            if boundary is None:  # nothing was read: no window is by the old one
                catalog = self._without(catalog, [old.name])
                continue
            if old.shape.gap is not None:  # a session may go on from before
                boundary += max(old.shape.gap, *gaps) - 1
            catalog, _ = self._retired(catalog, old, Term(before=boundary))
        for job in jobs:
            gone.pop(job.name, None)
        return self._begin(replace(catalog, gone=gone), jobs, does, at)

    def _replace_at_pane(
        self, catalog: Catalog, jobs: Sequence[Job], does: str
    ) -> tuple[Catalog, Effect]:
        known = {job.name: job for job in _parts(catalog, jobs[0].name)}
        at = self._boundaries([*known.values(), *jobs])
        if None in at.values():
            return self._replace_at_window(catalog, jobs, does)
        effects = []
        for job in jobs:
            old, boundary = known[job.name], at[job.shape.axis.column]
            assert boundary is not None
            shape, moves = old.shape, job.shape.id != old.shape.pure.id
            if moves:
                draws = Draw(shape.id, boundary, shape.home)
                shape = replace(job.shape, since=shape.since, draws=draws)
            job = _touched(replace(job, shape=shape), old)
            catalog = self._go_on(catalog, old, job, boundary)
            if moves:
                self._inherit(catalog, catalog.jobs[job.name].shape)
            effects.append(_effect(does, job, boundary, by="end", moves=moves))
        return catalog, replace(effects[0], moves=any(effect.moves for effect in effects))

    def _reset(self, catalog: Catalog, name: str) -> tuple[Catalog, Effect]:
        known = _parts(catalog, name)
        at, effects = self._boundaries(known), list[Effect]()
        for old in known:
            boundary = at[old.shape.axis.column]
            if boundary is None:
                effects.append(_effect("reset", old, None))
                continue
            shape = replace(old.shape, since=boundary, draws=None)
            job = _touched(replace(old, shape=shape), old)
            catalog = self._go_on(catalog, old, job, boundary)
            effects.append(_effect("reset", job, boundary, by="end"))
        return catalog, effects[0]

    def _pause(self, catalog: Catalog, name: str) -> tuple[Catalog, Effect]:
        known = _parts(catalog, name)
        at, paused = self._boundaries(known), dict(catalog.paused)
        for old in known:
            boundary = at[old.shape.axis.column]
            paused[old.name] = _touched(_pure(old), old)
            if boundary is None or not kind_of(old.shape).has_panes:
                versions = [n for n, job in catalog.jobs.items() if job.unversioned == old.name]
                catalog = self._without(catalog, versions)
            else:
                catalog, _ = self._retired(catalog, old, Term(upto=boundary))
                self.adopt(catalog, catalog.in_force)
        first = at[known[0].shape.axis.column]
        return replace(catalog, paused=paused), _effect("paused", known[0], first, by="end")

    def _drop(self, catalog: Catalog, name: str) -> tuple[Catalog, Effect]:
        known = [job for job in catalog.paused.values() if job.title == name]
        known = known or _parts(catalog, name)
        names = [each.name for each in catalog.jobs.values() if each.title == name]
        paused = {each: job for each, job in catalog.paused.items() if job.title != name}
        gone = {**catalog.gone, **{job.name: _touched(job, job).edition for job in known}}
        catalog = self._without(catalog, names)
        return replace(catalog, paused=paused, gone=gone), _effect("dropped", known[0], None)

    def _without(self, catalog: Catalog, names: Sequence[str]) -> Catalog:
        before = catalog.in_force
        catalog = catalog.without(*names)
        self.adopt(catalog, before)
        return catalog

    def _retired(self, catalog: Catalog, old: Job, term: Term) -> tuple[Catalog, str]:
        """The catalog with a job that brings its windows to an end, and what it is called."""
        catalog, called = catalog.retiring(old.name, term)
        self._departures.rename(old.name, called)
        return catalog, called

    def _go_on(self, catalog: Catalog, old: Job, job: Job, at: int) -> Catalog:
        """Has a job answer for the windows of another that end behind a boundary."""
        catalog, called = self._retired(catalog, old, Term(upto=at))
        before = catalog.in_force
        catalog = catalog.with_jobs(job)
        self.adopt(catalog, before)
        self._departures.go_on(catalog.jobs[called], catalog.jobs[job.name], at)
        self._leave_out_read(catalog.jobs[job.name], before)
        return catalog

    def _inherit(self, catalog: Catalog, shape: Shape) -> None:
        """Takes over the panes of before, and what is not there of them."""
        assert shape.draws is not None
        self._collection.inherit(catalog, shape.draws.shape, shape.id)
        for source in self._progress.sources.values():
            known = tuple(each for each in source.unmade if each.shape == shape.draws.shape)
            source.unmade += tuple(each._replace(shape=shape.id) for each in known)

    def _leave_out_read(self, job: Job, before: InForce) -> None:
        """Notes records that were read from beyond the boundary, and are not there for a job.

        A record that is far ahead of its source does not count for how far that has come.
        """
        if job.shape.id in before.shapes.values() or not job.shape.axis.is_time:
            return
        reached = self._scoreboard.furthest(job.shape.axis.column)
        for source in self._progress.sources.values():
            ahead = [span for span in source.doubt.spans if span.high > reached]
            source.unmade += tuple(
                Unmade(job.shape.id, max(s.low, reached), s.high + 1, State.LOST, _READ_BEFORE)
                for s in ahead
            )

    def _boundaries(self, jobs: Sequence[Job]) -> _Boundaries:
        """The first position behind all that was read where panes of all these jobs begin."""
        boundaries: _Boundaries = {}
        for axis in {job.shape.axis.column for job in jobs}:
            at = self._scoreboard.furthest(axis) + 1
            panes = (job.shape.pane or 1 for job in jobs if job.shape.axis.column == axis)
            size = lcm(*panes)
            boundaries[axis] = None if at <= NEVER + 1 else -(-at // size) * size
        return boundaries

    def last(self, job: Job) -> int | None:
        """The position at which the last window of a version ends that was replaced."""
        if job.term.upto is not None:
            return job.term.upto
        if job.term.before is None or not job.windows:
            return None
        before = job.term.before - 1
        return max(spec.last_end(before // spec.pane) * spec.pane for spec in job.windows)

    def over(
        self,
        catalog: Catalog,
        horizons: Mapping[str, int | None],
        open_sessions: Mapping[str, int],
    ) -> list[str]:
        """The versions that were replaced, and have no window left that anybody waits for.

        `open_sessions` says of jobs before which position none ends that is open; EVER: none is.
        """
        drawn = {
            shape.draws.shape
            for id_, shape in catalog.shapes.items()
            if shape.draws is not None and self._needs(catalog, id_, shape.draws.upper)
        }
        return [
            job.name
            for job in catalog.jobs.values()
            if not job.term.is_open
            and job.shape.id not in drawn
            and self._is_over(job, horizons.get(job.shape.axis.column), open_sessions)
        ]

    def _needs(self, catalog: Catalog, id_: str, upper: int) -> bool:
        """Whether windows to come hold panes of a shape from before a position."""
        first = self._departures.emitted(catalog.by_shape[id_]).needed_from
        return first is None or first < upper

    def _is_over(self, job: Job, horizon: int | None, open_sessions: Mapping[str, int]) -> bool:
        last = self.last(job)
        if not kind_of(job.shape).has_panes:
            passed = horizon is not None and horizon >= (job.term.before or NEVER)
            return passed and open_sessions.get(job.name) == EVER
        if last is None or horizon is None or horizon < last + (job.bounds.revise_us or 0):
            return False
        return not any(self._departures.open(job, spec) for spec in job.windows)


def _parts(catalog: Catalog, title: str) -> list[Job]:
    """What a job is in a catalog: one, or one for each shape that its windows have."""
    return [job for job in catalog.jobs.values() if job.title == title and job.term.is_open]


def _effect(
    does: str, job: Job, position: int | None, by: str = "start", moves: bool = False
) -> Effect:
    axis = job.shape.axis.kind
    return Effect(does, job.title, job.edition.number, position, by, axis, moves)


def _pure(job: Job) -> Job:
    """The job without what it has taken over from versions before it."""
    return replace(job, shape=job.shape.pure)


def _touched(job: Job, before: Job) -> Job:
    """The job with a note of what the program's file said of it before it was changed."""
    base = before.edition.base
    edition = replace(job.edition, base=digest(before) if base is None else base)
    return replace(job, edition=edition)
