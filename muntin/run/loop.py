"""One stream, turn by turn: the same for logs and frames, in this process and on Spark.

    next batch ─► blocks and readings ─► what is due ─► answer ─► commit

A turn reads what its intake has, lets windows leave that are due, and makes both final. Between
turns the catalog may be exchanged for another one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from muntin.errors import WireError
from muntin.fidelity.score import EVER, NEVER
from muntin.fidelity.scoreboard import Moment, Scoreboard
from muntin.fidelity.shedding import Backlog
from muntin.kernel.compute import Recipe
from muntin.kernel.due import Due
from muntin.kernel.kinds import kind_of
from muntin.kernel.reading import Cost, Reading, costs_of
from muntin.language.orders import Order
from muntin.model.jobs import Job
from muntin.model.records import TIME
from muntin.model.shapes import Shape
from muntin.run.answers import (
    computing,
    emission_of,
    note_seconds,
    note_timing,
    still_leaving,
)
from muntin.run.catalog import Catalog
from muntin.run.chooser import Chooser
from muntin.run.contracts import AHEAD_US, Batch, Collection, Intake, Journal, Request, Skips
from muntin.run.departures import Departures, Scores
from muntin.run.derived import Standing
from muntin.run.due import Agenda, Times
from muntin.run.fairness import Fairness, Parted
from muntin.run.needs import Needs
from muntin.run.notices import Notices, chosen
from muntin.run.omissions import Omissions
from muntin.run.previous import kept_of, previous_of
from muntin.run.progress import SESSION
from muntin.run.receipt import Receipt
from muntin.run.recipes import Recipes
from muntin.run.results import Emission
from muntin.run.retention import Retention
from muntin.run.skipping import Skipping, note_skipped
from muntin.run.succession import Effect, Succession
from muntin.run.tables import Tables
from muntin.run.unread import Unread
from muntin.schedule.pace import TOO_SOON, Pace, rest_towards
from muntin.windows.choice import Sharing

POLL_SECONDS = 0.1
_LIVE_US = 60_000_000  # how far behind the clock logs are that are written now
_TOLD_US = 500_000  # in which agents hear what they are told
_NOTED_SECONDS = 30.0  # after which it is noted again that agents are there
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
        started: float | None = None,
    ) -> None:
        """One that goes on for another in the same program has `started` when that one did."""
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
        self._tables = Tables(self.progress, journal.keep_rows)
        self._scoreboard = Scoreboard(
            catalog.stream,
            self.progress.sources,
            rules.follow,
            rules.idle_seconds,
        )
        self._receipt = Receipt(self.progress, self.departures, self._scoreboard, rules.follow)
        self._open_sessions: dict[str, int] = {}  # where the next ends, as long as nothing is read
        self._behind: frozenset[str] = frozenset()
        self._notes = list(journal.notes)
        self._unsaved = False  # whether something was read since the last commit
        self._cold = True  # until there was a batch: it takes longer, and tells how far all are
        self._unread = Unread(catalog.stream)
        self._names: frozenset[str] | None = None  # of all sources of finite input
        self._notices = Notices(catalog.stream, rules.follow)
        self.started = started  # by the clock, with the first turn: earlier deadlines do not count
        self._now = 0.0
        self._looked: float | None = None  # when somebody last looked for what was written
        self._asked: float | None = None  # when the intake was last asked, before it was read
        self._remaining = 0
        self._decided: Agenda | None = None  # when it was last asked what is due
        self._fairness = Fairness()
        self._omissions = Omissions(catalog.stream, pace)
        self._costs: Mapping[str, Cost] = {}  # of the last batch, by shape
        self._skipping = Skipping()
        self._computed: Counter[str] = Counter()  # seconds by job, since its last window
        self._room: float | None = None  # seconds in which a batch is to be over
        self._others_at: float | None = None  # when other streams have something to do
        self._succession = Succession(
            self.progress,
            self.departures,
            self._scoreboard,
            self._chooser,
            self._retention,
            collection,
        )
        self._recipes = Recipes(self.progress, self.departures, self._chooser, self._succession)
        self._notes += self._succession.adopt(self.catalog, journal.before)
        self._retention.watch(self.catalog)
        self._notes += self._notices.advice(self.catalog.jobs.values())

    @property
    def in_order(self) -> bool:
        return self.catalog.in_order(self._follow)

    def turn(self, wake_at: float | None = None, others_at: float | None = None) -> Turn:
        """Reads, decides and commits, a short batch where windows have to set off soon.

        That is at `wake_at`, of whichever stream, and of others than this one at `others_at`.
        """
        started, self._others_at = self._clock(), others_at
        takes = self.pace.least(self._unread_at(started))
        if not self._cold and wake_at is not None and wake_at - started < takes:
            # Their deadline would pass while the next batch is read.
            first = self.leave(started, ahead=takes)
            self._notes += first.notes
            if first.windows:
                return self._told(first, 0)
        self._look_at_tables()
        if self._names is None:
            self._names = frozenset() if self._follow else self._intake.names(started)
        self._skip(started)
        batch = self._intake.next(self._request(started, wake_at))
        self._notes += batch.notes
        self._notes += self._omissions.plan(self.catalog, batch, self._room, started)
        try:
            delivered = self._delivered(batch)
            self._notices.fetched()
        except WireError as error:  # somebody has gone meanwhile: nothing of the batch counts
            self._notes += self._notices.unfetched(str(error))
            batch, delivered = replace(batch, work=None, bytes=0, touched=None), []
        self._notes += self._read(batch, delivered, started)
        self._find(batch, started)
        self._skipping.read(batch.bytes, batch.remaining, self._clock())
        if batch.work is not None:
            self._unsaved = True
            took = self._clock() - started
            self.progress.recovery.read(batch.bytes, took)
            dear = self._omissions.took(batch, self._costs, took)
            if not self._cold:
                self.pace.read(batch.bytes, max(0.0, took - dear))
        final, emission = not self._follow and not batch.remaining, Emission()
        # Where order does not matter, a finite run emits at its end only.
        if final or self.in_order:
            self._behind = self._intake.behind(self.progress.sources)
            emission = self._leave(started, final, batch)
        elif self.progress.recovery.is_due and self._unsaved:
            self._save(batch)
        self._notes += emission.notes
        if final:
            self.tidy()
        return self._told(emission, batch.bytes)

    def _find(self, batch: Batch, started: float) -> None:
        """Notes how much was written since it was asked before, and what of that is left."""
        if self._asked is not None:
            self.pace.found(
                max(0, batch.bytes + batch.remaining - self._remaining), started - self._asked
            )
        self._asked, self._remaining = started, batch.remaining

    def _unread_at(self, now: float) -> float:
        """How many bytes there are to be read by now, at a guess."""
        since = now if self._asked is None else self._asked
        return self._remaining + self.pace.written * max(0.0, now - since)

    def leave(self, started: float, ahead: float = 0.0, looked: bool = False) -> Emission:
        """Lets windows leave that are due, without reading; what is due so far ahead leaves too.

        `looked` says that there was nothing to read.
        """
        self._looked = self._tick(started) if looked else self._looked
        self._behind = self._intake.behind(self.progress.sources)
        return self._leave(started, False, None, ahead)

    def wake_at(self) -> float | None:
        """When windows with a deadline have to set off, if one is open."""
        if not self._follow:
            return None
        waiting = self._fairness.waiting
        deadline = self._agenda(self._moment()).next_deadline(waiting)
        times = [*waiting.values(), *([] if deadline is None else [deadline])]
        return min(times) - self.pace.leaving.high if times else None

    def rest(self, seconds: float, takes: float) -> float:
        """How long to rest rather than so long, if a batch of any stream takes so much time.

        The next batch is to begin where it can complete windows that have a deadline.
        """
        now = self._clock()
        asked = now if self._asked is None else self._asked
        # One that was over just before the last batch began, or since, is to be looked for again.
        after = asked - TOO_SOON
        end = self._agenda(self._moment(now)).next_end(after) if self._follow else None
        if end is None:
            return seconds
        reading = self.pace.written * (end - asked) * self.pace.byte_seconds
        return rest_towards(seconds, end - now, takes, reading)

    def tidy(self, room: float | None = None) -> None:
        """Does what can wait until there is nothing to read, in so many seconds if they are few."""
        self._notes += self._journal.tidy(room)

    def notes(self) -> list[str]:
        """What there is to say already: before the next turn, or in place of one that failed."""
        notes, self._notes = self._notes, []
        return notes

    def waiting(self, name: str) -> tuple[int, int]:
        """Records of a job that no window has answered yet, and the windows they wait for."""
        return self.departures.waiting(self.catalog.jobs[name])

    def standing(self, name: str) -> Standing:
        """Where a job stands, for whoever reads its results."""
        job = self.catalog.jobs[name]
        axis, passed = job.shape.axis.column, self._decided
        # Versions that were replaced may have windows to send off.
        versions = [each for each in self.catalog.jobs.values() if each.title == name]
        emitted = [
            self.progress.emitted.get((each.name, kind), NEVER)
            for each in versions
            for kind in ([spec.key for spec in each.windows] or [SESSION])
        ]
        upto, stopped = min(emitted), self.progress.failures.stopped_at(name)
        # Sessions that end there may still get a record.
        open_end = 0 if kind_of(job.shape).has_panes else 1
        if passed is None or name not in passed.catalog.jobs:
            return Standing(upto - open_end, {}, stopped)
        horizon = passed.horizons[axis]
        put_off = self._fairness.waiting.keys() & {each.name for each in versions}
        if horizon is not None and horizon != EVER and not put_off:
            # Windows without records have passed, too.
            free = [] if stopped is not None else versions
            upto = max(upto, self.departures.passed(free, horizon))
        tracks = passed.board(axis, 1, shape=job.shape.id).tracks
        shed, lapsed = self.departures.shed(job), self.departures.lapsed(job)
        return Standing(upto - open_end, tracks, stopped, shed, lapsed)

    def exchange(self, catalog: Catalog) -> None:
        """Goes on with other jobs. Those that stay keep all they have, on whatever panes."""
        before, known, self.catalog = self.catalog.in_force, self.catalog.jobs, catalog
        self._succession.adopt(catalog, before)
        self._retention.watch(catalog)
        self._fairness.keep(catalog.jobs)
        self._omissions.keep(catalog)
        changed = [job for job in catalog.jobs.values() if known.get(job.name) != job]
        self._notes += self._notices.advice(changed)

    def obey(self, orders: Sequence[Order]) -> list[Effect]:
        """Does what is ordered, in one commit, and says from where on that holds."""
        effects, known = [], self.catalog.jobs
        for order in orders:
            self.catalog, effect = self._succession.obey(self.catalog, order)
            effects.append(effect)
        self._retention.watch(self.catalog)
        self._open_sessions.clear()
        self._omissions.keep(self.catalog)
        self._journal.commit(self.catalog, Emission(), whole=any(e.moves for e in effects))
        self._notes += map(str, effects)
        jobs = self.catalog.jobs.values()
        new = [job for job in jobs if job.name not in known and job.term.is_open]
        self._notes += self._notices.advice(new)
        return effects

    def require(self, job: Job) -> None:
        """Raises what would be raised if results of this job had to be stored."""
        self._journal.require(job)

    def _retire(self, agenda: Agenda) -> None:
        """Lets go of versions that have brought all of their windows to an end."""
        while over := self._succession.over(self.catalog, agenda.horizons, self._open_sessions):
            self.exchange(self.catalog.without(*over))  # one that others drew on may follow

    def hear(self, job: str, rows: Callable[[], Iterable[pa.Table]]) -> None:
        """Takes results of any job, by its title, for queries that look at the newest."""
        if job in self.catalog.looked_at:
            self._notes += self._tables.hear(self.catalog, job, rows())

    def _look_at_tables(self) -> None:
        """Goes on with the tables that jobs join as their files are now."""

        def behind(axis: str) -> int:
            sources = self.progress.sources.values() if axis == TIME.column else ()
            doubted = (span.high for source in sources for span in source.doubt.spans)
            reached = self._scoreboard.furthest(axis)
            now_us = int(self._clock() * 1e6)
            ahead = NEVER
            if self.catalog.stream.agents and axis == TIME.column and reached > now_us - _LIVE_US:
                ahead = now_us + _TOLD_US  # agents read on, and hear of it a moment later
            return max(reached, *doubted, ahead) + 1

        def needed(shape: Shape) -> int | None:
            return self.departures.emitted(self.catalog.by_shape[shape.id]).needed_from

        before = self.catalog
        self.catalog, notes = self._tables.look(before, behind, needed)
        self._notes += notes
        if self.catalog is not before and self.catalog.stream.agents and not self._unsaved:
            self._journal.commit(self.catalog, Emission())  # before agents hear of it

    def _skip(self, started: float) -> None:
        """Gives up what is unread and would come too late, where that is of use to nobody then."""
        sources, intake = self.progress.sources, self._intake
        known = [sources[name].time for name in self._behind if name in sources]
        times = [time for time in known if time is not None]
        if not self._remaining or not isinstance(intake, Skips) or not self._follow:
            return
        if not times or len(times) < len(self._behind) or min(times) < (self.started or 0.0) * 1e6:
            return  # what was written before the run began has time
        shipping = int((self.pace.leaving.high + self.pace.batch.high) * 1e6)
        slack_us = self.catalog.stream.slack(self._follow) or 0
        backlog = Backlog(min(times), int(started * 1e6), self._remaining, shipping, slack_us)
        recipes = self._next_recipes()
        begin = self._skipping.begin(backlog, recipes)
        if begin is not None:
            intake.skip(begin, slack_us, sources)
            note_skipped(sources, self._behind, recipes, begin, slack_us)
            self._unsaved = True
            self._notes += self._notices.skipped()

    def _request(self, started: float, wake_at: float | None) -> Request:
        agenda = self._agenda(self._moment())
        rooms = [None if wake_at is None else wake_at - started, agenda.longest_batch()]
        room = min((room for room in rooms if room is not None), default=None)
        self._room = agenda.patience() if room is None else room
        sizes = [self.progress.recovery.most]
        if self._room is not None:
            sizes.append(self._omissions.most(self.catalog, self._room, started))
        return Request(
            started,
            self.in_order,
            min((size for size in sizes if size is not None), default=None),
            self.progress.sources,
            self.catalog.stream.slack(self._follow),
            int(started * 1e6) + AHEAD_US if self._follow else None,
            self.progress.released,
            self._scoreboard.falls_silent(self._moment(), started),
            self._next_recipes(),
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
        recipes = self._omissions.recipes(self._next_recipes())
        return self.collection.add(batch.work, recipes, final)

    def _read(self, batch: Batch, delivered: Sequence[Reading], started: float) -> Iterator[str]:
        """Notes what came of a batch; tells what the user should know."""
        self._looked = now = self._tick(started)
        self._unsaved |= bool(batch.lost)
        self._receipt.lose(batch.lost)
        readings: list[Reading] = []
        if batch.work is not None:
            readings = list(self._receipt.fresh(delivered))
            self.progress.bytes += batch.bytes
            told = self._unread.told(readings, self._follow)
            yield from dict.fromkeys([*told, *self._take(readings, now)])
            self._computed.update(computing(self.catalog, self._costs))
            furthest = self._scoreboard.furthest(TIME.column)
            self._omissions.note(self.catalog, readings, self.progress.sources, furthest)
            for shape, choice in self._chooser.choose(self.catalog):
                yield chosen(self.catalog.by_shape[shape.id], choice)
        if batch.number is not None:
            self.progress.frame_batch = batch.number
        read = {reading.source for reading in readings}
        if batch.touched is not None:
            self._scoreboard.seen(batch.touched, read, now, batch.unreadable)
        for name in batch.answered & self.progress.sources.keys():
            source = self.progress.sources[name]
            if name in read or not 0 <= now - source.answered_at < _NOTED_SECONDS:
                source.answered_at = now
                self._unsaved |= not self._cold  # somebody may want to know who is there

    def _take(self, readings: Sequence[Reading], now: float) -> list[str]:
        """Notes what was read, and what that has cost; returns what there is to say of it."""
        if readings:
            self._open_sessions.clear()
        notes = self._receipt.take(self.catalog, readings, self._behind, now)
        self._retention.miss(self.catalog, readings)
        self._costs = costs_of(readings)
        self._chooser.computed(self.catalog, readings, self._costs)
        return notes

    @property
    def stopped(self) -> list[str]:
        """The jobs that have had more errors than they may."""
        failures = self.progress.failures
        return [name for name in self.catalog.jobs if failures.stopped_at(name) is not None]

    def _next_recipes(self) -> list[Recipe]:
        return self._recipes.next(self.catalog, self._names or frozenset())

    def _leave(
        self, started: float, final: bool, batch: Batch | None, ahead: float = 0.0
    ) -> Emission:
        """Emits and commits what is due after a batch, or without one."""
        decided = self._clock()
        save = batch is not None and self._unsaved
        moment = self._moment(decided, final)
        agenda = self._agenda(moment, self.pace.leaving.high + ahead)
        emission, dear = self._emit(agenda, save)
        emission = self._journal.store(self.catalog, self._dated(emission))
        self.progress.windows += sum(left.final.num_windows for left in emission.windows)
        note_timing(self.progress, emission, self.progress.left_at, agenda, self._computed)
        if save or emission.windows:
            positions = batch.positions if batch else None
            # What was saved on the way is of no use any more.
            whole = final and not self.in_order and self.progress.recovery.saved > 0
            emission = self._journal.commit(self.catalog, emission, positions, whole)
        if emission.windows and not self._cold:
            over = self._clock()
            self.pace.left(max(0.0, over - decided - dear), max(0.0, over - started - dear))
            if self._follow:
                jobs = [windows.job for windows in emission.windows]
                least = (self.pace.shortest or 0.0) + POLL_SECONDS
                emission = emission.with_notes(self._notices.unreachable(jobs, least))
        if save:
            self._cold = self._unsaved = False
        self._retire(agenda)
        return emission

    def _save(self, batch: Batch) -> None:
        """Commits what was read, so that it is not read again: nothing leaves yet."""
        if any(recipe.sources is not None for recipe in self._next_recipes()):
            return  # which ones are wanted is known by who has not begun to read
        emitted = self._retention.emitted(self.catalog)
        to_save = self._retention.to_save(self.catalog, emitted)
        answer = self.collection.answer(self.catalog, Due(), to_save)
        self._journal.commit(self.catalog, Emission(to_save=answer.to_save), batch.positions)
        self._unsaved = False

    def _emit(self, agenda: Agenda, save: bool) -> tuple[Emission, float]:
        """The windows that are due, and what has to be saved of what was read.

        And how long the answers took that take long, which is no measure for others.
        """
        if agenda.at.final and (refusal := self._unread.refusal(self.progress)) is not None:
            self._notes = [note for note in self._notes if note not in str(refusal)]
            raise refusal
        self._scoreboard.awaken(agenda.at.now)
        emission, dear = Emission(), 0.0
        parted = self._parted(agenda)
        decision, self._decided = parted.decision, agenda
        self.departures.note(self.catalog.jobs, decision.due, decision.scores, decision.upto)
        shown = self._shown(agenda) if save else {}
        if decision.due or save:
            parted = replace(parted, due=parted.due.showing(self.catalog.jobs, shown))
            emitted = self._retention.emitted(self.catalog)
            leaving = still_leaving(self.catalog.jobs, self.progress.failures, parted.due)
            leaving = replace(leaving, previous=previous_of(self.catalog, self.progress.previous))
            to_save = self._retention.to_save(self.catalog, emitted) if save else None
            answer = self.collection.answer(self.catalog, leaving, to_save)
            for name in decision.due.sessions:
                self._open_sessions[name] = answer.ends.get(name, EVER)
            for name, late in answer.missed.items():
                slack_us = (self.catalog.stream.slack(self._follow) or 0) + late.slack_us
                self.departures.miss(self.catalog.jobs[name], late.records, slack_us)
            if not self._cold:
                dear = self._fairness.took(parted, answer.seconds, self._clock())
            note_seconds(self.progress, self.catalog.jobs, answer.seconds)
            scores = decision.scores | shown
            emission = emission_of(agenda, answer, parted.due, scores, parted.shed)
            self.progress.previous |= kept_of(emission)
            self._chooser.merged(answer.costs)
            ends = self._recipes.ends(self.catalog) if self.catalog.retained else {}
            self._retention.note(self.catalog, emitted, agenda, ends)
            self._retention.forget(self.catalog, emitted, self.collection, agenda.at.now)
        now = agenda.at.now
        self._retention.forget_bounded(self.catalog, agenda.horizons, self.collection, now)
        told = [*parted.notes, *self._notices.unseen(self._scoreboard, agenda.at)]
        told += self._missing(agenda.at)
        return emission.with_notes(told), dear

    def _parted(self, agenda: Agenda) -> Parted:
        """What is due, and which of it is answered now."""
        decision = agenda.decide()
        if not self._follow:
            return Parted(decision, decision.due)
        lead = self.pace.leaving.high
        return self._fairness.part(agenda, decision, lead, self._others_at)

    def _shown(self, agenda: Agenda) -> Scores:
        """The open windows that are shown as they are so far."""
        return self._fairness.showing(agenda, self.pace.leaving.high, self._others_at)

    def _dated(self, emission: Emission) -> Emission:
        """The emission with the time at which it is made, which is no other's."""
        if not emission.windows:
            return emission
        # A microsecond later by any way of rounding, where the clock stands still or has gone back.
        at = max(self._tick(self._clock()), self.progress.left_at + 2e-6)
        self.progress.left_at = at
        return replace(emission, windows=tuple(left.left_at(at) for left in emission.windows))

    def _missing(self, at: Moment) -> Iterator[str]:
        """Tells of sources and columns of which nothing could be read."""
        if at.final:
            yield from self._unread.at_end()
        used = {name for shape in self.catalog.shapes.values() for name in shape.uses}
        yield from self._unread.columns(used, at.final)

    def _moment(self, now: float | None = None, final: bool = False) -> Moment:
        at = self._now if now is None else self._tick(now)
        return Moment(at, final, self._behind, self._looked)

    def _agenda(self, at: Moment, lead_seconds: float = 0.0) -> Agenda:
        leads = self._fairness.lead_us(self.catalog.jobs) if self._follow else {}
        started_us, lead_us = int((self.started or 0.0) * 1e6), int(lead_seconds * 1e6)
        times = Times(self._follow, started_us, lead_us, leads)
        jobs, names = self.catalog.jobs.items(), self._names or frozenset()
        return Agenda(
            self.catalog,
            self.progress,
            self.departures,
            self._scoreboard,
            at,
            times,
            self._open_sessions,
            {name: self._recipes.left_out(self.catalog, job, names) for name, job in jobs},
        )

    def _tick(self, now: float) -> float:
        """The clock of decisions never goes back, whatever that of the machine does."""
        self.started = now if self.started is None else self.started
        self._now = max(self._now, now)
        return self._now

    def _told(self, emission: Emission, size: int) -> Turn:
        stream, records = self.catalog.stream.name, self.progress.records
        return Turn(stream, emission, size, self._remaining, records, self.notes())
