"""Which windows leave at one moment, each with its score.

A window is due when every source that holds it back has passed its end, on time's axis by the
slack. Sources that ended, or are dead, hold nothing back. Bounds of a job may let it leave
before. On finite input without SLACK nothing is late, so no window of time is due before
everything was read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from muntin.fidelity.eviction import Policy
from muntin.fidelity.score import C2, EVER, NEVER, Board, Reason
from muntin.fidelity.scoreboard import Moment, Scoreboard
from muntin.kernel.due import Due
from muntin.kernel.kinds import kind_of
from muntin.model.jobs import Bounds, Job
from muntin.model.records import TIME
from muntin.model.shapes import Sample
from muntin.run.catalog import Catalog
from muntin.run.departures import Departures, Scores, Upto
from muntin.run.progress import SESSION, Progress
from muntin.windows.spec import WindowSpec

EMPTIED = "the job was emptied by RESET JOB"
_Asked = tuple[str, int, Sample | None, bool, frozenset[str], str, bool, int | None]


@dataclass(frozen=True)
class Times:
    """What a moment is compared with: deadlines before `started_us` do not count.

    `lead_us` is how long before a deadline a window has to set off to be there in time.
    """

    follow: bool
    started_us: int
    lead_us: int = 0
    leads: Mapping[str, int] = field(default_factory=dict)
    """By job, how much longer that is where its answers take long."""

    def lead_of(self, job: Job) -> int:
        return self.lead_us + self.leads.get(job.name, 0)


@dataclass(frozen=True)
class Decision:
    """The windows that leave, their scores, and up to where all windows of a kind have left."""

    due: Due
    scores: Scores
    upto: Upto


@dataclass
class Agenda:
    """One stream at one moment. What jobs have in common is worked out once."""

    catalog: Catalog
    progress: Progress
    departures: Departures
    scoreboard: Scoreboard
    at: Moment
    times: Times
    open_sessions: Mapping[str, int] = field(default_factory=dict)
    """Of jobs with sessions: no open one ends before this, as far as is known."""
    left_out: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Of jobs that take some sources of finite input: the others."""
    _boards: dict[_Asked, Board] = field(default_factory=dict)
    _scores: dict[_Asked, dict[tuple[int, int], C2]] = field(default_factory=dict)

    @cached_property
    def horizons(self) -> dict[str, int | None]:
        """By axis, the position before which no record is awaited; None where that is unknown."""
        return {axis: self.scoreboard.horizon(axis, self.at) for axis in self.catalog.axes}

    def decide(self) -> Decision:
        """The windows that hold records and leave now."""
        ends: dict[str, list[list[int]]] = {}
        over: dict[str, tuple[int, int]] = {}
        scores: Scores = {}
        upto: Upto = {}
        for name, job in self.catalog.jobs.items():
            if not kind_of(job.shape).has_panes:
                after, until = self._sessions_until(job)
                if until > after and until >= self.open_sessions.get(name, NEVER):
                    over[name] = after, until
                continue
            kinds = []
            for which, spec in enumerate(job.windows):
                leaving, last = self._kind_due(job, spec)
                if last is not None:
                    upto[name, spec.key] = last * spec.pane
                leaving |= self._again(job, which)
                kinds.append(sorted(leaving))
                scores |= {(name, which, end): c2 for end, c2 in leaving.items()}
            if any(kinds):
                ends[name] = kinds
        upto |= self._kept()
        only = {window: c2.only for window, c2 in scores.items() if c2.only is not None}
        return Decision(Due(ends, over, not self.at.final, only), scores, upto)

    def _kept(self) -> Upto:
        """Up to where records that are kept for questions have settled: no answer is made then."""
        keeper = self.catalog.keeper
        horizon = None if keeper is None else self.horizons[keeper.shape.axis.column]
        if keeper is None or horizon is None:
            return {}
        (spec,) = keeper.windows
        ends = self.departures.open(keeper, spec, horizon)
        return {(keeper.name, spec.key): ends[-1] * spec.pane} if ends else {}

    def _kind_due(self, job: Job, spec: WindowSpec) -> tuple[dict[int, C2], int | None]:
        """The windows of one kind that leave, and the last before which none stays.

        They leave in order. When one has to leave at its deadline, those before it do too, unless
        they wait for a log that is still being read: then it goes ahead of them.
        """
        axis = job.shape.axis.column
        if _is_plain(job.bounds):
            horizon = self.horizons[axis]
            ends = [] if horizon is None else self.departures.open(job, spec, horizon)
            return self._scored(job, spec, ends), ends[-1] if ends else None
        policy, ends = self._policy(job), self.departures.open(job, spec)
        overdue = max((end for end in ends if policy.is_due(end * spec.pane)), default=NEVER)
        read = self.scoreboard.read_up_to(axis, self.at)
        leaving: dict[int, C2] = {}
        last, stays = None, False
        for end in ends:
            start, position = spec.start(end), end * spec.pane
            c2 = policy.decide(start, end, position)
            if c2 is None and end < overdue and position <= read:
                c2 = policy.scored(start, end, Reason.DEADLINE)
            if c2 is None or (stays and c2.reason is not Reason.DEADLINE):
                stays = True
                if end >= overdue:
                    break
                continue
            leaving[end] = c2
            if not stays and position <= read:
                last = end
        return leaving, last

    def _policy(self, job: Job) -> Policy:
        started_us = self.times.started_us if self.times.follow else EVER
        is_time = job.shape.axis.is_time
        board, lead_us = self.board(*self._asked(job)), self.times.lead_of(job)
        has_windows = kind_of(job.shape).has_windows
        finite = has_windows and not self.times.follow
        return Policy(job.bounds, board, self.at, is_time, started_us, lead_us, finite)

    def board(
        self,
        axis: str,
        pane: int,
        sample: Sample | None = None,
        leap: bool = False,
        left_out: frozenset[str] = frozenset(),
        shape: str = "",
        late: bool = False,
        since: int | None = None,
    ) -> Board:
        """What is known of the sources; jobs with the same panes share it.

        With what came too late, unless windows take that in: they are revised. Of a job that was
        emptied, nothing is there from before the position `since`.
        """
        asked = axis, pane, sample, leap, left_out, shape, late, since
        if asked not in self._boards:
            board = self.scoreboard.board(self.at, axis, pane, sample, leap, left_out, shape)
            if late:
                board = replace(board, late=self.progress.ledger.late((axis, pane)))
            if since is not None:
                board = board.emptied(since // pane, EMPTIED)
            self._boards[asked] = board
        return self._boards[asked]

    def _scored(self, job: Job, spec: WindowSpec, ends: Sequence[int]) -> dict[int, C2]:
        """The windows with their scores, if they leave because nothing more is awaited."""
        if not ends:
            return {}
        asked, scores = self._asked(job), {}
        board, known = self.board(*asked), self._scores.setdefault(asked, {})
        for end in ends:
            start = spec.start(end)
            c2 = known.get((start, end))
            if c2 is None:
                c2 = known[start, end] = _score(board, start, end)
            scores[end] = c2
        return scores

    def _asked(self, job: Job) -> _Asked:
        shape, left_out = job.shape, self.left_out.get(job.name, frozenset())
        of_shape = shape.axis.column, shape.pane, shape.sample
        mine = shape.id if self.scoreboard.unmade(shape.id) else ""  # others share their boards
        late = shape.revise_us is None
        return *of_shape, job.bounds.leap, left_out, mine, late, shape.since

    def board_of(self, job: Job) -> Board:
        """What is known of the sources for a job, in its panes."""
        return self.board(*self._asked(job))

    def _again(self, job: Job, which: int) -> dict[int, C2]:
        """The windows that have left, and that late records have changed."""
        touched, spec = self.departures.touched(job, which), job.windows[which]
        if not touched:
            return {}
        policy, scores = self._policy(job), self._scored(job, spec, touched)
        for end in scores:
            known = self.departures.left(job, spec).get(end * spec.pane)
            if known is not None and known.reason not in (Reason.COMPLETE, Reason.EXHAUSTED):
                scores[end] = policy.scored(spec.start(end), end, Reason(known.reason))
        return scores

    def changed(self) -> Scores:
        """Windows that are open and may have changed, of jobs that show them, as they are so far.

        On finite input, nobody waits for them.
        """
        scores: Scores = {}
        shown = [job for job in self.catalog.jobs.values() if job.bounds.changes]
        for job in shown if self.times.follow else ():
            board = self.board(*self._asked(job))
            for which, spec in enumerate(job.windows):
                for end in self.departures.changed(job, which):
                    c2 = board.score(spec.start(end), end, Reason.OPEN)
                    scores[job.name, which, end] = c2
        return scores

    def _sessions_until(self, job: Job) -> tuple[int, int]:
        """After which position and up to which one sessions that end there leave."""
        horizon = self.horizons[job.shape.axis.column]
        after = self.progress.emitted.get((job.name, SESSION), NEVER)
        upto = NEVER if horizon is None else horizon
        if horizon == EVER:
            upto = self.scoreboard.last(job.shape.axis.column) + job.shape.reach
        if self.has_session_bound(job):
            due = self.at.now_us + self.times.lead_of(job) - (job.bounds.within_us or 0)
            upto = max(upto, min(self.at.now_us, due))
        return after, upto

    def has_session_bound(self, job: Job) -> bool:
        """Whether sessions leave by the clock now.

        What was written before the run began is not late for that.
        """
        within, axis = job.bounds.within_us, job.shape.axis.column
        if within is None or kind_of(job.shape).has_panes or not self.times.follow:
            return False
        return self.scoreboard.read_up_to(axis, self.at) >= self.times.started_us - within

    def longest_batch(self) -> float | None:
        """How long a batch may take, as sessions with a deadline may end at any time."""
        bounded = (job for job in self.catalog.jobs.values() if self.has_session_bound(job))
        bounds = [job.bounds.within_us for job in bounded]
        return min((within / 1e6 for within in bounds if within is not None), default=None)

    def next_deadline(self, but: Collection[str] = ()) -> float | None:
        """When the next window with a deadline has to have left, open or about to be.

        Of a job whose answers take long it is so much sooner. Jobs that are named do not count.
        """
        deadlines = [
            deadline - self.times.leads.get(name, 0)
            for name, job in self.catalog.jobs.items()
            if job.bounds.within_us is not None and name not in but
            for spec in job.windows
            for deadline in self._deadlines(job, spec, job.bounds.within_us)
        ]
        return min(deadlines) / 1e6 if deadlines else None

    def next_end(self, after: float) -> float | None:
        """When the first window with a deadline is over after some time, slack included.

        Then is the time to read: a batch that begins sooner cannot complete it, and the next may
        come too late for that.
        """
        slack_us = self.catalog.stream.slack(self.times.follow) or 0
        before = int(after * 1e6) - slack_us
        ends = [
            spec.first_end(before // spec.pane) * spec.pane + slack_us
            for job in self.catalog.jobs.values()
            if job.bounds.within_us is not None and job.shape.axis.is_time and job.term.is_open
            for spec in job.windows
        ]
        return min(ends) / 1e6 if ends else None

    def patience(self) -> float | None:
        """In how many seconds what waits has to be read, where no window has a deadline ahead.

        Then all of them have passed, as logs are read behind the clock: one window and its bound
        later, windows are to be in time again. What was written before the run began has time.
        """
        if not self.times.follow or self.scoreboard.furthest(TIME.column) < self.times.started_us:
            return None
        bounds = [
            spec.range + job.bounds.within_us
            for job in self.catalog.jobs.values()
            if job.bounds.within_us is not None and job.shape.axis.is_time
            for spec in job.windows
        ]
        return min(bounds) / 1e6 if bounds else None

    def room(self, jobs: Collection[str], lead: float, others_at: float | None) -> float | None:
        """How many seconds there are before other jobs than these have to set off.

        That is `lead` seconds before their deadlines; others yet do so at `others_at`.
        """
        deadline = self.next_deadline(jobs)
        times = (None if deadline is None else deadline - lead, others_at)
        rooms = [at - self.at.now for at in times if at is not None]
        return min(rooms, default=None)

    def _deadlines(self, job: Job, spec: WindowSpec, within: int) -> Iterator[int]:
        """The first deadline of open windows, and that of the next one that may still be read."""
        axis, now_us = job.shape.axis.column, self.at.now_us
        ends = (end * spec.pane + within for end in self.departures.open(job, spec))
        first = next((end for end in ends if end > self.times.started_us), None)
        if first is not None:
            yield first
        if not job.term.is_open:
            return
        if self.scoreboard.furthest(axis) > now_us - spec.range - within:  # its logs are live
            after = max(now_us - within, self.progress.emitted.get((job.name, spec.key), NEVER))
            yield spec.first_end(after // spec.pane) * spec.pane + within


def _is_plain(bounds: Bounds) -> bool:
    """Whether windows leave when they are complete, and only then."""
    return bounds.within_us is None and bounds.fidelity is None and not bounds.leap


def _score(board: Board, start: int, end: int) -> C2:
    c2 = board.score(start, end, Reason.COMPLETE)
    return c2 if c2.area == 1.0 else replace(c2, reason=Reason.EXHAUSTED)
