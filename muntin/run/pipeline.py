"""One stream's data path, a batch at a time; the runners differ only in the collection.

    next batch ─► compute ─► note what was read ─► which windows are due ─► finish ─► emit

A window is due when every source that holds it back has passed its end, on time's axis by the
slack. Sources that ended, or are dead, hold nothing back. Bounds of a job may let it leave
before. On finite input without SLACK nothing is late, so no window of time is due before
everything was read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import pyarrow as pa

from muntin.errors import InputError
from muntin.fidelity.eviction import Policy
from muntin.fidelity.score import C2, EVER, NEVER, Board, Reason
from muntin.fidelity.scoreboard import Moment, Scoreboard, Source
from muntin.fidelity.timing import Timing
from muntin.kernel.block import Block
from muntin.kernel.compute import Cost, Recipe
from muntin.kernel.due import Due, Emitted
from muntin.logs.records import Report
from muntin.logs.tail import Batch, Lane
from muntin.model import Bounds, Counts, Job, Sample, Shape, Stream
from muntin.run.chooser import Chooser
from muntin.run.departures import Departures, Scores, Upto
from muntin.run.progress import SESSION, Progress
from muntin.run.results import Emission, JobWindows, Kind, sessions
from muntin.windows.choice import Sharing
from muntin.windows.spec import WindowSpec

_DAY_US = 86_400_000_000


@dataclass
class Answer:
    """Ordered rows of due windows by job, and by shape blocks to save and what merging took."""

    rows: dict[str, pa.Table] = field(default_factory=dict)
    blocks: dict[str, list[Block]] = field(default_factory=dict)
    costs: dict[str, Cost] = field(default_factory=dict)
    ends: dict[str, int] = field(default_factory=dict)
    """Of jobs with sessions: no open one ends before this."""


class Collection(Protocol):
    """Where blocks are computed and kept until their windows are due."""

    def read(
        self, lanes: Sequence[Lane], recipes: Sequence[Recipe], slack_us: int | None
    ) -> list[Report]:
        """Computes the lanes' blocks and keeps them as one more step."""

    def answer(
        self, jobs: Mapping[str, Job], due: Due, save: Mapping[str, Emitted] | None
    ) -> Answer:
        """The due windows and, if asked, the blocks of the newest step that have to be saved.

        Of these, what no window after the emitted ones holds is left out.
        """

    def forget(self, jobs: Mapping[str, Job], emitted: Mapping[str, Emitted]) -> None:
        """Drops what no window after `emitted` holds, by shape."""


class Pipeline:
    """The state of one stream and the decisions that follow from it."""

    def __init__(
        self,
        stream: Stream,
        jobs: Sequence[Job],
        collection: Collection,
        follow: bool,
        idle_seconds: float = 10.0,
        progress: Progress | None = None,
        sharing: Sharing = "auto",
    ) -> None:
        self.stream = stream
        self.jobs = {job.name: job for job in jobs}
        self.collection = collection
        self.progress = progress or Progress()
        self.in_order = in_order(stream, jobs, follow)
        self.lead_seconds = 0.0
        """How long it takes from the decision that a window leaves until it is committed."""
        self._follow = follow
        self._shapes = {job.shape.id: job.shape for job in jobs}
        self._passed: dict[str, int] = {}
        self._chooser = Chooser(recipes_of(jobs), sharing, self.progress.choices)
        self._scoreboard = Scoreboard(
            stream, self.progress.sources, follow, self.slack_us, idle_seconds
        )
        self._departures = Departures(self.jobs, self.progress)
        self._boards: dict[tuple[str, int, Sample | None, bool], Board] = {}  # of one emission
        self._next_ends: dict[str, int] = {}  # of sessions of jobs, as long as nothing is read
        self._timeless = False
        self._told_unseen = False
        self._started: float | None = None
        self._now = 0.0

    @property
    def slack_us(self) -> int | None:
        """None means that nothing can be late."""
        if self.stream.slack_us is None and self._follow:
            return 0
        return self.stream.slack_us

    def recipes(self) -> list[Recipe]:
        """What to compute of the next records, and from where on somebody needs it."""
        found = []
        for recipe in self._chooser.recipes():
            emitted = self._departures.emitted(recipe.shape)
            found.append(replace(recipe, over=emitted.sessions, needs=emitted.needed_from))
        return found

    def read(self, batch: Batch, now: float) -> tuple[str, ...]:
        """Reads a batch into the collection; returns what the user should know."""
        now = self._tick(now)
        notes = list(batch.notes)
        if batch.lanes:
            lanes = [self._dated(lane, now) for lane in batch.lanes]
            reports = self.collection.read(lanes, self.recipes(), self.slack_us)
            self.progress.bytes += batch.bytes
            told = [note for report in reports for note in report.notes]
            notes += dict.fromkeys([*told, *self.take(reports, now)])
            notes += self._choose()
        if batch.touched is not None:
            read = {lane[0].source for lane in batch.lanes}
            self._scoreboard.seen(batch.touched, read, now)
        return tuple(notes)

    def take(self, reports: Sequence[Report], now: float) -> list[str]:
        """Notes what was read; returns what has failed."""
        now = self._tick(now)
        if reports:
            self._next_ends.clear()
        for report in reports:
            source = self.progress.sources.setdefault(report.source, Source())
            source.heard_at = now
            source.ended = False
            source.advance(report.first, report.reached)
            self.progress.records += report.records
            self.progress.bad += report.bad
            self._timeless |= report.timeless
            self._departures.take(report)
            self.progress.ledger.add(report.tallies)
            self._chooser.computed(report)
        faults = [fault for report in reports for fault in report.faults]
        failures = self.progress.failures
        return [note for f in faults for note in failures.add(self.jobs[f.job], [f])]

    def emit(
        self, now: float, final: bool, save: bool = False, behind: frozenset[str] = frozenset()
    ) -> Emission:
        """The windows that are due after a batch; `final` when nothing more will come.

        Sources that are `behind` have more to be read at once, and so hold windows back.
        """
        if final and self._timeless and not self.progress.records:
            raise InputError(
                f"stream '{self.stream.name}': TIMESTAMP {self.stream.timestamp} gave no time for "
                f"any row"
            )
        at = Moment(self._tick(now), final, behind)
        self._scoreboard.awaken(at.now)
        self._boards.clear()
        axes = {shape.axis.column for shape in self._shapes.values()}
        horizons = {axis: self._scoreboard.horizon(axis, at) for axis in axes}
        due, scores, upto = self._due(horizons, at)
        self._departures.note(due, scores, upto)
        emission = self._answer(due, scores, at, save) if due or save else Emission()
        emission.notes.extend(self._unseen(at))
        self._forget_unbounded(horizons)
        return emission

    def waiting(self, name: str) -> tuple[int, int]:
        """Records of a job that no window has answered yet, and the windows they wait for."""
        return self._departures.waiting(self.jobs[name])

    def _tick(self, now: float) -> float:
        """The clock of decisions never goes back, whatever that of the machine does."""
        self._started = now if self._started is None else self._started
        self._now = max(self._now, now)
        return self._now

    def next_deadline(self) -> float | None:
        """When the next window with a deadline has to have left, open or about to be."""
        found = [
            deadline
            for job in self.jobs.values()
            if job.bounds.within_us is not None
            for spec in job.windows
            for deadline in self._deadlines(job, spec, job.bounds.within_us)
        ]
        return min(found) / 1e6 if found else None

    def longest_batch(self, behind: frozenset[str]) -> float | None:
        """How long a batch may take, as sessions with a deadline may end at any time."""
        at = Moment(self._now, False, behind)
        bounds = [j.bounds.within_us for j in self.jobs.values() if self._has_session_bound(j, at)]
        return min((within / 1e6 for within in bounds if within is not None), default=None)

    def _deadlines(self, job: Job, spec: WindowSpec, within: int) -> Iterator[int]:
        """The first deadline of open windows, and that of the next one that may still be read."""
        axis, now_us = job.shape.axis.column, int(self._now * 1e6)
        ends = (end * spec.pane + within for end in self._departures.open(job, spec))
        yield from [end for end in ends if end > self._started_us][:1]
        if self._scoreboard.furthest(axis) > now_us - spec.range - within:  # its logs are live
            after = max(now_us - within, self.progress.emitted.get((job.name, spec.key), NEVER))
            yield spec.first_end(after // spec.pane) * spec.pane + within

    def _answer(self, due: Due, scores: Scores, at: Moment, save: bool) -> Emission:
        emitted = self._emitted()
        leaving = self._leaving(due)
        answer = self.collection.answer(self.jobs, leaving, emitted if save else None)
        self._next_ends |= {name: answer.ends.get(name, EVER) for name in due.sessions}
        emission = Emission(blocks=answer.blocks)
        for name, rows in answer.rows.items():
            left, notes = self.progress.failures.sift(self.jobs[name], rows)
            emission.notes.extend(notes)
            kinds = self._leaving_kinds(name, due)  # of what was due, less what failed just now
            if any(kinds) or name in due.sessions:
                windows = self._windows_of(name, kinds, left, scores, at)
                if windows.counts:  # of sessions, there may be none that end here
                    emission.windows.append(windows)
        self.progress.windows += sum(len(windows.counts) for windows in emission.windows)
        self._chooser.merged(answer.costs)
        self._forget(emitted)
        return emission

    def leave(self, emission: Emission, now: float) -> Emission:
        """The emission with the time at which it is made, which is no other's."""
        if not emission.windows:
            return emission
        at = self.progress.left_at = max(self._tick(now), self.progress.left_at + 1e-6)
        self._note_timing(emission, at)
        windows = [replace(left, at=at) for left in emission.windows]
        return replace(emission, windows=windows)

    def _note_timing(self, emission: Emission, now: float) -> None:
        for windows in emission.windows:
            timing = self.progress.timings.setdefault(windows.job.name, Timing())
            within = windows.job.bounds.within_us
            for kind, c2 in windows.scores.items():
                if windows.revisions.get(kind):
                    continue
                lag = int(now * 1e6) - windows.bounds(kind)[1]
                lived = windows.job.shape.axis.is_time and (
                    windows.bounds(kind)[1] + (within or 0) > self._started_us
                )
                timing.add(c2.area, lag if lived and self._follow else None, within)

    def _unseen(self, at: Moment) -> list[str]:
        """Tells once of sources that are declared and have not come in time."""
        unseen = [] if self._told_unseen else self._scoreboard.unseen(at)
        if not unseen:
            return []
        self._told_unseen = True
        known = ", ".join(sorted(self.progress.sources)) or "none yet"
        missing = ", ".join(f"'{name}'" for name in unseen)
        message = f"stream '{self.stream.name}' has no source {missing}, which SOURCES declares"
        return [f"{message}: results count it as missing; there are: {known}"]

    def _choose(self) -> Iterator[str]:
        """Decides anew how windows are computed; tells of changes."""
        for shape, choice in self._chooser.choose():
            names = [job.name for job in self.jobs.values() if job.shape == shape]
            jobs = f"jobs {', '.join(names)} go" if len(names) > 1 else f"job {names[0]} goes"
            way = "separate state for each window" if choice.separate else "shared partials"
            yield f"{jobs} on with {way}: {choice.reason}"

    def _leaving(self, due: Due) -> Due:
        """The due windows of jobs that have not failed before them."""
        ends = {name: self._leaving_kinds(name, due) for name in due.ends}
        return replace(due, ends={name: kinds for name, kinds in ends.items() if any(kinds)})

    def _leaving_kinds(self, name: str, due: Due) -> list[list[int]]:
        leaves, job = self.progress.failures.leaves, self.jobs[name]
        return [
            [end for end in ends if leaves(job, which, end)]
            for which, ends in enumerate(due.ends.get(name, ()))
        ]

    def _windows_of(
        self, name: str, ends: list[list[int]], rows: pa.Table, scores: Scores, at: Moment
    ) -> JobWindows:
        job = self.jobs[name]
        if job.shape.gap is not None:
            board = self._scoreboard.board(at, job.shape.axis.column, 1)
            return sessions(job, rows, board)
        kinds: list[Kind] = [(which, end) for which, kind in enumerate(ends) for end in kind]
        found = {(i, end): scores[name, i, end] for i, end in kinds}
        counts = {(i, end): self._counts(job, job.windows[i], end, c2)
                  for (i, end), c2 in found.items()}  # fmt: skip
        revisions = {
            (i, end): self._departures.revision(job, job.windows[i], end) for i, end in kinds
        }
        return JobWindows(job, rows, counts, found, revisions)

    def _counts(self, job: Job, spec: WindowSpec, end: int, c2: C2) -> Counts:
        """Records read, bad and late of what a window is made of."""
        ledger, axis = self.progress.ledger, job.shape.axis.column
        if c2.only is not None or job.shape.sample is not None:
            counts = ledger.counts_of(axis, spec, end, c2.names, c2.inside)
        else:
            counts = ledger.counts(axis, spec, end)
        return counts if job.shape.revise_us is None else replace(counts, late=0)

    def _due(self, horizons: Mapping[str, int | None], at: Moment) -> tuple[Due, Scores, Upto]:
        """Windows that hold records and leave now, each with its score.

        Also told is up to where all windows of a kind have left then.
        """
        ends: dict[str, list[list[int]]] = {}
        over: dict[str, tuple[int, int]] = {}
        scores: Scores = {}
        upto: Upto = {}
        for name, job in self.jobs.items():
            horizon = horizons[job.shape.axis.column]
            if job.shape.gap is not None:
                after, until = self._sessions_until(job, horizon, at)
                if until > after and until >= self._next_ends.get(name, NEVER):
                    over[name] = after, until
                continue
            ends[name] = []
            for which, spec in enumerate(job.windows):
                found, last = self._kind_due(job, spec, horizon, at)
                if last is not None:
                    upto[name, spec.key] = last * spec.pane
                found |= self._again(job, which, at)
                ends[name].append(sorted(found))
                scores |= {(name, which, end): c2 for end, c2 in found.items()}
        ends = {name: kinds for name, kinds in ends.items() if any(kinds)}
        only = {window: c2.only for window, c2 in scores.items() if c2.only is not None}
        return Due(ends, over, not at.final, only), scores, upto

    def _kind_due(
        self, job: Job, spec: WindowSpec, horizon: int | None, at: Moment
    ) -> tuple[dict[int, C2], int | None]:
        """The windows of one kind that leave, and the last before which none stays.

        They leave in order. When one has to leave at its deadline, those before it do too, unless
        they wait for a log that is still being read: then it goes ahead of them.
        """
        if _is_plain(job.bounds):
            ends = [] if horizon is None else self._departures.open(job, spec, horizon)
            return self._scored(job, spec, ends, at), ends[-1] if ends else None
        policy, ends = self._policy(job, at), self._departures.open(job, spec)
        overdue = max((end for end in ends if policy.is_due(end * spec.pane)), default=NEVER)
        read = self._scoreboard.read_up_to(job.shape.axis.column, at)
        found: dict[int, C2] = {}
        last, stays = None, False
        for end in ends:
            start, position = end - spec.length, end * spec.pane
            c2 = policy.decide(start, end, position)
            if c2 is None and end < overdue and position <= read:
                c2 = policy.scored(start, end, Reason.DEADLINE)
            if c2 is None or (stays and c2.reason is not Reason.DEADLINE):
                stays = True
                if end >= overdue:
                    break
                continue
            found[end] = c2
            if not stays and position <= read:
                last = end
        return found, last

    def _policy(self, job: Job, at: Moment) -> Policy:
        return Policy(
            job.bounds,
            self._board(job, at),
            at,
            job.shape.axis.is_time,
            self._started_us if self._follow else EVER,
            int(self.lead_seconds * 1e6),
        )

    def _board(self, job: Job, at: Moment) -> Board:
        """What is known of the sources; jobs with the same panes share it."""
        shape = job.shape
        asked = shape.axis.column, shape.pane, shape.sample, job.bounds.leap
        if asked not in self._boards:
            self._boards[asked] = self._scoreboard.board(at, *asked)
        return self._boards[asked]

    def _scored(self, job: Job, spec: WindowSpec, ends: Sequence[int], at: Moment) -> dict[int, C2]:
        """The windows with their scores, if they leave because nothing more is awaited."""
        return {end: _score(self._board(job, at), end - spec.length, end) for end in ends}

    def _again(self, job: Job, which: int, at: Moment) -> dict[int, C2]:
        """The windows that have left, and that late records have changed."""
        touched, spec = self._departures.touched(job, which), job.windows[which]
        if not touched:
            return {}
        policy, found = self._policy(job, at), self._scored(job, spec, touched, at)
        for end in found:
            known = self._departures.left(job, spec).get(end * spec.pane)
            if known is not None and known.reason not in (Reason.COMPLETE, Reason.EXHAUSTED):
                found[end] = policy.scored(end - spec.length, end, Reason(known.reason))
        return found

    def _sessions_until(self, job: Job, horizon: int | None, at: Moment) -> tuple[int, int]:
        """After which position and up to which one sessions that end there leave."""
        after = self.progress.emitted.get((job.name, SESSION), NEVER)
        upto = NEVER if horizon is None else horizon
        if horizon == EVER:
            upto = self._scoreboard.furthest(job.shape.axis.column) + (job.shape.gap or 0)
        if self._has_session_bound(job, at):
            due = at.now_us + int(self.lead_seconds * 1e6) - (job.bounds.within_us or 0)
            upto = max(upto, min(at.now_us, due))
        return after, upto

    def _has_session_bound(self, job: Job, at: Moment) -> bool:
        """Whether sessions leave by the clock now.

        History is not late for having been written before there was anybody to read it.
        """
        within, axis = job.bounds.within_us, job.shape.axis.column
        if within is None or job.shape.gap is None or not self._follow:
            return False
        return self._scoreboard.read_up_to(axis, at) >= self._started_us - within

    def _forget(self, emitted: Mapping[str, Emitted]) -> None:
        """Drops what nobody needs any more."""
        self.collection.forget(self.jobs, emitted)
        grids: dict[tuple[str, int], list[int]] = {}
        for shape in self._shapes.values():
            if shape.pane:
                oldest = self._oldest_pane(shape, emitted[shape.id])
                grids.setdefault((shape.axis.column, shape.pane), []).append(oldest)
        for grid, needed in grids.items():
            self.progress.ledger.forget(grid, min(needed))

    def _forget_unbounded(self, horizons: Mapping[str, int | None]) -> None:
        """Drops tallies outside of the bounds of jobs, for which no window will ever leave."""
        bounded = [s for s in self._shapes.values() if s.begin is not None and s.pane]
        if bounded and any(horizons.values()):
            self._passed = {axis: at for axis, at in horizons.items() if at is not None}
            self._forget(self._emitted())

    def _emitted(self) -> dict[str, Emitted]:
        return {shape.id: self._departures.emitted(shape) for shape in self._shapes.values()}

    def _oldest_pane(self, shape: Shape, emitted: Emitted) -> int:
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

    @property
    def _started_us(self) -> int:
        return int((self._started or 0.0) * 1e6)

    def _dated(self, lane: Lane, now: float) -> Lane:
        known = self.progress.sources.get(lane[0].source)
        since = dict(known.reached) if known else {}
        latest = int(now * 1e6) + _DAY_US if self._follow else None
        return (replace(lane[0], since=since, latest=latest), *lane[1:])


def _is_plain(bounds: Bounds) -> bool:
    """Whether windows leave when they are complete, and only then."""
    return bounds.within_us is None and bounds.fidelity is None and not bounds.leap


def _score(board: Board, start: int, end: int) -> C2:
    c2 = board.score(start, end, Reason.COMPLETE)
    return c2 if c2.area == 1.0 else replace(c2, reason=Reason.EXHAUSTED)


def in_order(stream: Stream, jobs: Iterable[Job], follow: bool) -> bool:
    """Whether the records of a source have to be read one after another."""
    counted = any(not axis.is_time for job in jobs for axis in job.shape.axes)
    return counted or follow or stream.slack_us is not None


def recipes_of(jobs: Iterable[Job]) -> list[Recipe]:
    """One for each shape, with all kinds of windows that are made of its blocks."""
    windows: dict[Shape, set[WindowSpec]] = {}
    for job in jobs:
        windows.setdefault(job.shape, set()).update(job.windows)
    return [Recipe(shape, tuple(sorted(specs))) for shape, specs in windows.items()]
