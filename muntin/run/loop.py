"""One stream, turn by turn: the same for logs and frames, in this process and on Spark.

    next batch ─► blocks and readings ─► what is due ─► answer ─► commit

A turn reads what its intake has, lets windows leave that are due, and makes both final. Between
turns the catalog may be exchanged for another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from muntin.errors import WireError
from muntin.fidelity.losses import Loss
from muntin.fidelity.sampling import picked, sufficient
from muntin.fidelity.score import EVER, NEVER
from muntin.fidelity.scoreboard import Moment, Scoreboard, Source
from muntin.fidelity.shedding import Use
from muntin.fidelity.stream_time import STEP_US
from muntin.kernel.compute import Recipe
from muntin.kernel.kinds import kind_of
from muntin.kernel.plan import hasty, skipping
from muntin.kernel.reading import Reading
from muntin.model import TIME, Fault, Job
from muntin.run.answers import emission_of, note_timing, still_leaving
from muntin.run.catalog import Catalog, InForce
from muntin.run.chooser import Chooser
from muntin.run.contracts import AHEAD_US, Batch, Collection, Intake, Journal, Request
from muntin.run.departures import Departures
from muntin.run.due import Agenda, Times
from muntin.run.needs import Needs
from muntin.run.results import Emission
from muntin.run.retention import Retention
from muntin.run.unread import Unread
from muntin.schedule.pace import Pace
from muntin.units import describe, describe_time
from muntin.windows.choice import Sharing
from muntin.windows.spec import WindowSpec

POLL_SECONDS = 0.1
Clock = Callable[[], float]  # seconds since the epoch


@dataclass(frozen=True)
class Rules:
    """How to run. `follow` waits for more; otherwise the input is finite."""

    follow: bool
    idle_seconds: float = 10.0
    sharing: Sharing = "auto"


@dataclass(frozen=True)
class Turn:
    """What one turn of one stream came to, for whoever watches."""

    stream: str
    emission: Emission
    bytes: int
    remaining: int
    records: int  # of the stream so far
    notes: Sequence[str]


class Loop:
    """The state of one stream and what follows from it, a turn at a time."""

    def __init__(
        self,
        catalog: Catalog,
        intake: Intake,
        collection: Collection,
        journal: Journal,
        rules: Rules,
        clock: Clock,
        pace: Pace,
    ) -> None:
        self.catalog = catalog.after(journal.before)
        self.collection = collection
        self.progress = journal.progress
        self.pace = pace
        self.departures = Departures(self.progress)
        self._intake = intake
        self._journal = journal
        self._follow = rules.follow
        self._clock = clock
        self._chooser = Chooser(rules.sharing, self.progress.choices)
        self._retention = Retention(self.progress, self.departures)
        self._scoreboard = Scoreboard(
            catalog.stream,
            self.progress.sources,
            rules.follow,
            self.slack_us,
            rules.idle_seconds,
        )
        self._open_sessions: dict[str, int] = {}  # where the next ends, as long as nothing is read
        self._behind: frozenset[str] = frozenset()
        self._notes = list(journal.notes)
        self._unsaved = False  # whether something was read since the last commit
        self._cold = True  # until there was a batch: it takes longer, and tells how far all are
        self._unread = Unread(catalog.stream)
        self._names: frozenset[str] | None = None  # of all sources of finite input
        self._told_unseen = False
        self._unreached = ""  # why the last batch could not be fetched, if so
        self._warned: set[str] = set()
        self._started: float | None = None
        self._now = 0.0
        self._looked: float | None = None  # when somebody last looked for what was written
        self._remaining = 0
        self._adopt(journal.before)
        self._notes += self._advice(self.catalog.jobs.values())

    @property
    def slack_us(self) -> int | None:
        """None means that nothing can be late."""
        if self.catalog.stream.slack_us is None and self._follow:
            return 0
        return self.catalog.stream.slack_us

    @property
    def in_order(self) -> bool:
        return self.catalog.in_order(self._follow)

    def turn(self, wake_at: float | None = None) -> Turn:
        """Reads, decides and commits, a short batch where windows have to set off soon."""
        started = self._clock()
        if not self._cold and wake_at is not None and wake_at - started < self.pace.batch.high:
            # Their deadline would pass while the next batch is read.
            first = self.leave(started, ahead=self.pace.batch.high)
            self._notes += first.notes
            if first.windows:
                return self._told(first, 0)
        if self._names is None:
            self._names = frozenset() if self._follow else self._intake.names(started)
        batch = self._intake.next(self._request(started, wake_at))
        self._notes += batch.notes
        try:
            delivered = self._delivered(batch)
            self._unreached = ""
        except WireError as error:  # somebody has gone meanwhile: nothing of the batch counts
            self._notes += self._unfetched(str(error))
            batch, delivered = replace(batch, work=None, bytes=0, touched=None), []
        self._notes += self._read(batch, delivered, started)
        self._remaining = batch.remaining
        if batch.work is not None:
            self._unsaved = True
            if not self._cold:
                self.pace.read(batch.bytes, self._clock() - started)
        final, emission = not self._follow and not batch.remaining, Emission()
        # Where order does not matter, a finite run emits at its end only, and until then has
        # nothing to save.
        if final or self.in_order:
            self._behind = self._intake.behind(self.progress.sources)
            emission = self._leave(started, final, batch)
        self._notes += emission.notes
        if final:
            self.tidy()
        return self._told(emission, batch.bytes)

    def leave(self, started: float, ahead: float = 0.0, looked: bool = False) -> Emission:
        """Lets windows leave that are due, without reading; what is due so far ahead leaves too.

        `looked` says that there was nothing to read.
        """
        self._looked = self._tick(started) if looked else self._looked
        self._behind = self._intake.behind(self.progress.sources)
        return self._leave(started, False, None, ahead)

    def wake_at(self) -> float | None:
        """When windows with a deadline have to set off, if one is open."""
        deadline = self._agenda(self._moment()).next_deadline() if self._follow else None
        return None if deadline is None else deadline - self.pace.leaving.high

    def tidy(self) -> None:
        """Does what can wait until there is nothing to read."""
        self._notes += self._journal.tidy()

    def notes(self) -> list[str]:
        """What there is to say already: before the next turn, or in place of one that failed."""
        notes, self._notes = self._notes, []
        return notes

    def waiting(self, name: str) -> tuple[int, int]:
        """Records of a job that no window has answered yet, and the windows they wait for."""
        return self.departures.waiting(self.catalog.jobs[name])

    def exchange(self, catalog: Catalog) -> None:
        """Goes on with other jobs. Those that stay keep all they have, on whatever panes."""
        before, known, self.catalog = self.catalog.in_force, self.catalog.jobs, catalog
        self._adopt(before)
        self._notes += self._advice(j for j in catalog.jobs.values() if known.get(j.name) != j)

    def _advice(self, jobs: Iterable[Job]) -> list[str]:
        """What there is to say of new jobs before they have answered."""
        slack_us = self.catalog.stream.slack_us
        told = ((hasty(job, slack_us) if self._follow else None, skipping(job)) for job in jobs)
        return [note for notes in told for note in notes if note is not None]

    def _adopt(self, before: InForce) -> None:
        """Takes up what was read for the jobs that were in force before.

        Windows that are new, or of a job that means something else now, begin with their first
        whole pane: the first that is kept for others of their shape, if its panes fit, or else the
        first behind all that was read.
        """
        for id_, grid in self.catalog.grids.items():
            known = before.grids.get(id_)
            if known is not None and known != grid:
                self.progress.ledger.regrid(known, grid)
        self.progress.ledger.keep(self.catalog.grids.values())
        self.progress.forget_jobs(self.catalog.jobs)
        jobs = self.catalog.jobs.values()
        notes, revived = self.progress.failures.resume(jobs, before.changed(jobs))
        self._notes += notes if self._started is None else []
        before = before.without(revived)
        for job in jobs:
            behind = self._scoreboard.furthest(job.shape.axis.column) + 1
            if behind <= NEVER + 1:
                continue  # nothing was read
            if not kind_of(job.shape).has_panes:
                if not before.had(job):
                    self.departures.begin_sessions(job, behind)
            elif new := before.new_windows(job):
                self.departures.begin(job, new, min(behind, self._kept_from(job, new, before)))

    def _kept_from(self, job: Job, new: Sequence[WindowSpec], before: InForce) -> int:
        """The position from which on panes are kept that new windows can be made of; EVER: none.

        They are kept for windows of the same shape that were there before. These must be shared
        partials, on a grid that fits, and of windows that are at least as long: what came too late
        for all windows was not kept.
        """
        known = []
        for other in self.catalog.by_shape[job.shape.id]:
            if self.progress.failures.stopped_at(other.name) is not None:
                continue  # of what it has stopped before, not all is kept
            fresh = before.new_windows(other)
            windows = tuple(spec for spec in other.windows if spec not in fresh)
            known += [replace(other, windows=windows)] if windows else []
        size = before.grids.get(job.shape.id, ("", 0))[1]
        windows = self.catalog.windows[job.shape.id]
        if not known or not size or self._chooser.choice(job.shape, windows).separate:
            return EVER
        longest = max(spec.range for other in known for spec in other.windows)
        if not all(spec.fits(size) and spec.range <= longest for spec in new):
            return EVER
        oldest = self._retention.oldest_pane(job.shape, self.departures.emitted(known))
        return oldest * job.shape.pane

    def _request(self, started: float, wake_at: float | None) -> Request:
        longest = self._agenda(self._moment()).longest_batch()
        rooms = [None if wake_at is None else wake_at - started, longest]
        room = min((room for room in rooms if room is not None), default=None)
        return Request(
            started,
            self.in_order,
            None if room is None else self.pace.most(room),
            self.progress.sources,
            self.slack_us,
            int(started * 1e6) + AHEAD_US if self._follow else None,
            self.progress.released,
            self._scoreboard.falls_silent(self._moment(), started),
            self._recipes(),
            None if self._follow else Needs.of(self.catalog),
            self._wanted(started),
            room,
        )

    def _wanted(self, started: float) -> dict[str, int]:
        """Before which positions windows with a deadline have to set off before the next batch."""
        bounds = (job.bounds.within_us for job in self.catalog.jobs.values())
        soonest = min((within for within in bounds if within is not None), default=None)
        if soonest is None or not self._follow:
            return {}
        lead = 2 * (self.pace.batch.high + self.pace.leaving.high)
        return {TIME.column: int((started + lead) * 1e6) - soonest}

    def _delivered(self, batch: Batch) -> list[Reading]:
        """Has a batch read, and its blocks kept."""
        if batch.work is None:
            return []
        final = {name: s.sequence for name, s in self.progress.sources.items() if s.sequence}
        return self.collection.add(batch.work, self._recipes(), final)

    def _unfetched(self, reason: str) -> list[str]:
        """Tells once that a batch could not be fetched, until one can be again."""
        known, self._unreached = self._unreached, reason
        note = f"stream '{self.catalog.stream.name}': {reason}; it is asked again"
        return [note] if reason != known else []

    def _read(self, batch: Batch, delivered: Sequence[Reading], started: float) -> Iterator[str]:
        """Notes what came of a batch; tells what the user should know."""
        self._looked = now = self._tick(started)
        self._unsaved |= bool(batch.lost)
        self._lose(batch.lost)
        readings: list[Reading] = []
        if batch.work is not None:
            readings = list(self._fresh(delivered))
            self.progress.bytes += batch.bytes
            told = self._unread.told(readings, self._follow)
            yield from dict.fromkeys([*told, *self._take(readings, now)])
            yield from self._choose()
        if batch.number is not None:
            self.progress.frame_batch = batch.number
        if batch.touched is not None:
            read = {reading.source for reading in readings}
            self._scoreboard.seen(batch.touched, read, now, batch.unreadable)

    @property
    def stopped(self) -> list[str]:
        """The jobs that have had more errors than they may."""
        failures = self.progress.failures
        return [name for name in self.catalog.jobs if failures.stopped_at(name) is not None]

    def _recipes(self) -> list[Recipe]:
        """What to compute of the next records, and from where on somebody needs it."""
        recipes = []
        for recipe in self._chooser.recipes(self.catalog):
            jobs = self.catalog.by_shape[recipe.shape.id]
            emitted = self.departures.emitted(jobs)
            stopped = [self.progress.failures.stopped_at(job.name) for job in jobs]
            until = max(stopped, key=lambda at: EVER if at is None else at)
            recipes.append(
                replace(
                    recipe,
                    over=emitted.sessions,
                    needs=emitted.needed_from,
                    until=until,
                    sources=self._sources_of(jobs),
                    useful=_useful(jobs),
                )
            )
        return recipes

    def _sources_of(self, jobs: Sequence[Job]) -> frozenset[str] | None:
        """The sources that some of these jobs take; None: all."""
        names = self._names or frozenset()
        left_out = [self._left_out(job) for job in jobs]
        return names - frozenset.intersection(*left_out) if all(left_out) else None

    def _left_out(self, job: Job) -> frozenset[str]:
        """The sources of finite input that a job does without, as FIDELITY OF TIME has others."""
        share, names = job.bounds.fidelity, self._names
        if share is None or job.bounds.form != "time" or not names:
            return frozenset()
        every = names.union(self.catalog.stream.sources, self.progress.sources)
        return names - picked(names, sufficient(share, len(every)))

    def _fresh(self, readings: Sequence[Reading]) -> Iterator[Reading]:
        """The readings that were not delivered before."""
        seen: set[tuple[str, int]] = set()
        for reading in readings:
            source = self.progress.sources.get(reading.source, Source())
            delivery = reading.source, reading.sequence
            if not reading.sequence or (
                reading.sequence > source.sequence and delivery not in seen
            ):
                seen.add(delivery)
                yield reading

    def _take(self, readings: Sequence[Reading], now: float) -> list[str]:
        """Notes what was read; returns what has failed."""
        if readings:
            self._open_sessions.clear()
        progress = self.progress
        faults: list[Fault] = []
        known = {r.source for r in readings} & progress.sources.keys()
        before = {name: replace(progress.sources[name]) for name in known}
        for reading in readings:
            source = progress.sources.setdefault(reading.source, Source())
            source.heard_at = now
            source.ended = False
            source.sequence = max(source.sequence, reading.sequence)
            source.advance(reading.first, reading.reached, reading.doubt, reading.loose, now)
            source.unmade += reading.unmade
            progress.records += reading.records
            progress.bad += reading.bad
            faults += reading.faults
        self._lose([loss for reading in readings for loss in reading.lost])
        damaged = {loss.file for reading in readings for loss in reading.lost}
        for reading in readings:
            for log, file, at in reading.begun:
                if file not in damaged:
                    self._scoreboard.resume(reading.source, log, at)
        self.departures.take(self.catalog, readings)
        progress.ledger.add(tally for reading in readings for tally in reading.tallies)
        self._chooser.computed(self.catalog, readings)
        jobs = self.catalog.jobs
        # Agents may have met one for a job that is gone.
        met = (fault for fault in faults if fault.job in jobs)
        notes = [note for f in met for note in progress.failures.read(jobs[f.job], f)]
        return [*self._leaps(before, now), *notes]

    def _leaps(self, before: Mapping[str, Source], now: float) -> Iterator[str]:
        """Tells of sources that came further ahead than time has passed: what they skip is late.

        In logs of before there are gaps, of which nothing is told unless they lead to the future.
        """
        for name, source in sorted(before.items()) if self._follow else ():
            start, reached = source.time, self.progress.sources[name].time
            if start is None or reached is None or reached - start <= STEP_US:
                continue
            explained = EVER
            if source.moved_at is not None and name not in self._behind:
                explained = int((now - source.moved_at) * 1e6)
            ahead = int(now * 1e6) - start if start <= now * 1e6 else EVER
            if reached - start > min(explained, ahead) + STEP_US:
                skipped = describe((reached - start) // 1_000_000 * 1_000_000)
                yield (
                    f"source '{name}' of stream '{self.catalog.stream.name}' leaps ahead by "
                    f"{skipped}, from {describe_time(start)} to {describe_time(reached)}: what it "
                    "still writes of the time between is late; see whether its clock is right"
                )

    def _lose(self, losses: Iterable[Loss]) -> None:
        for loss in losses:
            new = Source(sequence=self.progress.released)
            self.progress.sources.setdefault(loss.source, new)
            self._scoreboard.lose(loss)

    def _choose(self) -> Iterator[str]:
        """Decides anew how windows are computed; tells of changes."""
        for shape, choice in self._chooser.choose(self.catalog):
            names = [job.name for job in self.catalog.by_shape[shape.id]]
            jobs = f"jobs {', '.join(names)} go" if len(names) > 1 else f"job {names[0]} goes"
            sharing = "separate state for each window" if choice.separate else "shared partials"
            yield f"{jobs} on with {sharing}: {choice.reason}"

    def _leave(
        self, started: float, final: bool, batch: Batch | None, ahead: float = 0.0
    ) -> Emission:
        """Emits and commits what is due after a batch, or without one."""
        decided = self._clock()
        save = batch is not None and self._unsaved
        moment = self._moment(decided, final)
        agenda = self._agenda(moment, self.pace.leaving.high + ahead)
        emission = self._dated(self._emit(agenda, save), agenda)
        if save or emission.windows:
            self._journal.commit(self.catalog, emission, batch.positions if batch else None)
        if emission.windows and not self._cold:
            over = self._clock()
            self.pace.left(over - decided, over - started)
            if self._follow:
                emission = emission.with_notes(self._unreachable(emission))
        if save:
            self._cold = self._unsaved = False
        return emission

    def _emit(self, agenda: Agenda, save: bool) -> Emission:
        """The windows that are due, and what has to be saved of what was read."""
        if agenda.at.final and (refusal := self._unread.refusal(self.progress)) is not None:
            self._notes = [note for note in self._notes if note not in str(refusal)]
            raise refusal
        self._scoreboard.awaken(agenda.at.now)
        decision, emission = agenda.decide(), Emission()
        self.departures.note(self.catalog.jobs, decision.due, decision.scores, decision.upto)
        if decision.due or save:
            emitted = self._retention.emitted(self.catalog)
            leaving = still_leaving(self.catalog.jobs, self.progress.failures, decision.due)
            answer = self.collection.answer(self.catalog, leaving, emitted if save else None)
            for name in decision.due.sessions:
                self._open_sessions[name] = answer.ends.get(name, EVER)
            emission = emission_of(agenda, answer, decision.due, decision.scores)
            self.progress.windows += sum(len(left.counts) for left in emission.windows)
            self._chooser.merged(answer.costs)
            self._retention.forget(self.catalog, emitted, self.collection, agenda.at.now)
        now = agenda.at.now
        self._retention.forget_bounded(self.catalog, agenda.horizons, self.collection, now)
        return emission.with_notes([*self._unseen(agenda.at), *self._missing(agenda.at)])

    def _dated(self, emission: Emission, agenda: Agenda) -> Emission:
        """The emission with the time at which it is made, which is no other's."""
        if not emission.windows:
            return emission
        at = max(self._tick(self._clock()), self.progress.left_at + 1e-6)
        self.progress.left_at = at
        note_timing(self.progress, emission, at, agenda)
        return replace(emission, windows=tuple(replace(left, at=at) for left in emission.windows))

    def _unseen(self, at: Moment) -> list[str]:
        """Tells once of sources that are declared and have not come in time."""
        unseen = [] if self._told_unseen else self._scoreboard.unseen(at)
        if not unseen:
            return []
        self._told_unseen = True
        known = ", ".join(sorted(self.progress.sources)) or "none yet"
        missing = ", ".join(f"'{name}'" for name in unseen)
        stream = self.catalog.stream.name
        message = f"stream '{stream}' has no source {missing}, which SOURCES declares"
        return [f"{message}: results count it as missing; there are: {known}"]

    def _missing(self, at: Moment) -> Iterator[str]:
        """Tells of sources and columns of which nothing could be read."""
        if at.final:
            yield from self._unread.at_end()
        used = {name for shape in self.catalog.shapes.values() for name in shape.uses}
        yield from self._unread.columns(used, at.final)

    def _unreachable(self, emission: Emission) -> Iterator[str]:
        """Tells of deadlines that are shorter than any batch has been."""
        least = (self.pace.shortest or 0.0) + POLL_SECONDS
        for job in (windows.job for windows in emission.windows):
            within = job.bounds.within_us
            if within is not None and within < least * 1e6 and job.name not in self._warned:
                self._warned.add(job.name)
                reachable = describe(-(-int(least * 1000) // 10) * 10_000)
                yield (
                    f"job '{job.name}': WITHIN {describe(within).upper()} is shorter than one "
                    f"batch takes here; the smallest bound that can be kept is {reachable}"
                )

    def _moment(self, now: float | None = None, final: bool = False) -> Moment:
        at = self._now if now is None else self._tick(now)
        return Moment(at, final, self._behind, self._looked)

    def _agenda(self, at: Moment, lead_seconds: float = 0.0) -> Agenda:
        times = Times(self._follow, int((self._started or 0.0) * 1e6), int(lead_seconds * 1e6))
        return Agenda(
            self.catalog,
            self.progress,
            self.departures,
            self._scoreboard,
            at,
            times,
            self._open_sessions,
            {name: self._left_out(job) for name, job in self.catalog.jobs.items()},
        )

    def _tick(self, now: float) -> float:
        """The clock of decisions never goes back, whatever that of the machine does."""
        self._started = now if self._started is None else self._started
        self._now = max(self._now, now)
        return self._now

    def _told(self, emission: Emission, size: int) -> Turn:
        stream, records = self.catalog.stream.name, self.progress.records
        return Turn(stream, emission, size, self._remaining, records, self.notes())


def _useful(jobs: Sequence[Job]) -> tuple[Use, ...] | None:
    """What panes of these jobs, which are of one shape, are of use for; None: for ever."""
    shape = jobs[0].shape
    if shape.revise_us is not None or not shape.axis.is_time or not shape.pane:
        return None
    uses = [(job.bounds.within_us, spec) for job in jobs for spec in job.windows]
    if any(within is None for within, _ in uses):
        return None
    return tuple(Use(spec, within or 0) for within, spec in uses)
