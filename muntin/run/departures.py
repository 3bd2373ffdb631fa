"""Which windows have left: up to where, how often and why, and what came too late for them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce

from muntin.fidelity.score import C2, EVER, NEVER, Reason
from muntin.kernel.due import Due, Emitted
from muntin.kernel.reading import Reading
from muntin.model.counts import Tally
from muntin.model.jobs import Bounds, Job
from muntin.run.catalog import Catalog
from muntin.run.progress import SESSION, JobKind, Lateness, Leaving, Progress, Shown
from muntin.windows.ledger import Grid
from muntin.windows.spec import WindowSpec

Scores = dict[tuple[str, int, int], C2]  # of a job, the number of its kind, and the end
_WHOLE = (Reason.COMPLETE, Reason.SHED)  # the latter are told apart
Upto = dict[JobKind, int]  # the position up to which all windows of a kind have left
_UNSEEN = Shown(0, "")
_Asked = tuple[str, WindowSpec, int | None, int, int | None, int | None]


class Departures:
    """What a stream's jobs have sent off. All that lives on is in the given progress."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._touched: dict[tuple[str, int], set[int]] = {}  # windows that must leave again
        # Where windows end that may have changed since they were shown; nothing: all that are open.
        self._changed: dict[tuple[str, int], set[int]] = {}
        # As long as the ledger is the same, jobs with the same windows share the answer.
        self._open: tuple[int, dict[_Asked, list[int]]] = (-1, {})

    def open(self, job: Job, spec: WindowSpec, horizon: int = EVER) -> list[int]:
        """The ends, up to a position, of windows that hold records and have not left."""
        ledger, axis = self._progress.ledger, job.shape.axis.column
        if self._open[0] != ledger.version:
            self._open = ledger.version, {}
        known = self._open[1]
        begin, until, upto = job.shape.begin, job.shape.until, self._upto(job, spec)
        asked = axis, spec, upto, horizon, begin, until
        ends = known.get(asked)
        if ends is None:
            ends = spec.ends(ledger.panes((axis, spec.pane)), upto, horizon // spec.pane)
            if begin is not None:
                ends = [end for end in ends if end * spec.pane > begin]
            if until is not None:
                ends = [end for end in ends if spec.start(end) * spec.pane < until]
            known[asked] = ends
        if not job.term.is_open:
            ends = [end for end in ends if job.term.has(*spec.bounds(end))]
        left = self.left(job, spec)  # some ahead of others
        return [end for end in ends if end * spec.pane not in left] if left else ends

    def passed(self, jobs: Iterable[Job], horizon: int) -> int:
        """Up to where no window of jobs is open, at most to a position.

        One may be open though it is due: its answer takes long, and others are made first.
        """
        firsts = (
            end * spec.pane - 1
            for job in jobs
            for spec in job.windows
            for end in self.open(job, spec, horizon)[:1]
        )
        return min([horizon, *firsts])

    def waiting(self, job: Job) -> tuple[int, int]:
        """Records of a job that no window has answered yet, and the windows they wait for."""
        grid, waiting = (job.shape.axis.column, job.shape.pane), [(0, 0)]
        for spec in job.windows:
            windows = len(self.open(job, spec))
            if windows:
                read = self._progress.ledger.read_since(grid, self._upto(job, spec))
                waiting.append((read, windows))
        return max(waiting)

    def emitted(self, jobs: Iterable[Job]) -> Emitted:
        """Up to which pane the windows of each kind will not leave again, for jobs of one shape."""
        ends: dict[WindowSpec, int | None] = {}
        over: list[int | None] = []
        for job in jobs:
            over.append(self._progress.emitted.get((job.name, SESSION)))
            for spec in job.windows:
                mine = self._final(job, spec)
                ends[spec] = _earlier(mine, ends.get(spec, mine))
        return Emitted(ends, reduce(_earlier, over))

    def left(self, job: Job, spec: WindowSpec) -> dict[int, Leaving]:
        """The newest windows that have left, where the job has bounds."""
        return self._progress.left.get((job.name, spec.key), {})

    def shed(self, job: Job) -> tuple[int, ...]:
        """Where the newest windows end that have left without an answer."""
        kinds = (self.left(job, spec).items() for spec in job.windows)
        return tuple(end for kind in kinds for end, left in kind if left.reason == Reason.SHED)

    def lapsed(self, job: Job) -> tuple[int, ...]:
        """Where the newest windows end that have left with something missing."""
        kinds = (self.left(job, spec).items() for spec in job.windows)
        ends = (end for kind in kinds for end, left in kind if left.reason not in _WHOLE)
        return tuple(sorted({*ends}))

    def revisions(self, job: Job, spec: WindowSpec) -> Callable[[int], int]:
        """Tells how often a window of one kind has left before, or was shown."""
        left, shown = self.left(job, spec), self._shown(job, spec)
        again = job.bounds.revise_us is not None or job.bounds.changes

        def revision(end: int) -> int:
            position = end * spec.pane
            known = left.get(position)
            if known is not None:
                return known.revision if again else 0
            return shown.get(position, _UNSEEN).times

        return revision

    def is_again(self, job: Job, which: int, end: int) -> bool:
        """Whether a window that leaves has left before, as more than was shown of it."""
        spec = job.windows[which]
        known = self.left(job, spec).get(end * spec.pane)
        return known is not None and known.revision > known.shown

    def changed(self, job: Job, which: int) -> list[int]:
        """The windows of one kind that are open, and may be others than they were shown last."""
        spec = job.windows[which]
        changed = self._changed.get((job.name, which))
        ends = self.open(job, spec)
        return ends if changed is None else [end for end in ends if end * spec.pane in changed]

    def show(self, job: Job, which: int, end: int, digest: str) -> bool:
        """Takes what tells the rows of an open window; whether they are to be shown.

        They are if they are others than before. A window that has had none so far is not.
        """
        spec = job.windows[which]
        position, known = end * spec.pane, self._shown(job, spec)
        self._changed.setdefault((job.name, which), set()).discard(position)
        before = known.get(position, _UNSEEN)
        if digest == before.digest:
            return False
        kind = self._progress.shown.setdefault((job.name, spec.key), {})
        kind[position] = Shown(before.times + 1, digest)
        return True

    def _shown(self, job: Job, spec: WindowSpec) -> Mapping[int, Shown]:
        return self._progress.shown.get((job.name, spec.key), {})

    def begin(self, job: Job, windows: Iterable[WindowSpec], position: int) -> None:
        """Has a job answer only for those of its new windows that start at a position or later."""
        for spec in windows:
            first = -(-position // spec.pane)  # the first pane that lies behind it as a whole
            before = spec.last_end(first - 1) * spec.pane
            self._progress.emitted[job.name, spec.key] = before
            self._progress.began[job.name, spec.key] = before

    def begin_sessions(self, job: Job, position: int) -> None:
        """The same of sessions: one that starts within the gap may go on from before."""
        self._progress.emitted[job.name, SESSION] = position
        self._progress.began[job.name, SESSION] = position - 1 + job.shape.reach

    def rename(self, name: str, now: str) -> None:
        """Takes that a job goes on under another name."""
        self._progress.rename(name, now)
        for windows in (self._touched, self._changed):
            for kind in [kind for kind in windows if kind[0] == name]:
                windows[now, kind[1]] = windows.pop(kind)

    def go_on(self, before: Job, job: Job, position: int) -> None:
        """Has a job answer for the windows of another that end behind a position.

        Those that have left ahead of it do not leave again.
        """
        emitted, began = self._progress.emitted, self._progress.began
        for spec in job.windows:
            kind, known = (job.name, spec.key), (before.name, spec.key)
            emitted[kind] = max(position, emitted.get(known, NEVER))
            began[kind] = max(position, began.get(known, NEVER))
            ahead = self._progress.left.get(known, {})
            self._progress.left[kind] = {
                end: leaving for end, leaving in ahead.items() if end > position
            }
            shown = self._progress.shown.get(known, {})
            if shown:
                later = {end: each for end, each in shown.items() if end > position}
                self._progress.shown[kind] = later

    def note(self, jobs: Mapping[str, Job], due: Due, scores: Scores, upto: Upto) -> None:
        """Takes what leaves now."""
        emitted = self._progress.emitted
        for kind, position in upto.items():
            emitted[kind] = max(emitted.get(kind, NEVER), position)
        for name, (_, until) in due.sessions.items():
            emitted[name, SESSION] = until
        for name, kinds in due.ends.items():
            job = jobs[name]
            for which, (spec, ends) in enumerate(zip(job.windows, kinds, strict=True)):
                self._touched.get((name, which), set()).difference_update(ends)
                gone = (end * spec.pane for end in ends)
                self._changed.get((name, which), set()).difference_update(gone)
                reasons = {end * spec.pane: scores[name, which, end].reason for end in ends}
                if job.bounds == Bounds():  # the others matter to none but who reads its results
                    reasons = {e: why for e, why in reasons.items() if why is Reason.EXHAUSTED}
                if reasons:
                    self._note_left(job, spec, reasons)

    def _note_left(self, job: Job, spec: WindowSpec, reasons: Mapping[int, Reason]) -> None:
        """Remembers why windows have left, as long as somebody may want to know."""
        known = self._progress.left.setdefault((job.name, spec.key), {})
        remembered = max(spec.range, job.bounds.revise_us or 0)
        oldest = self._progress.emitted.get((job.name, spec.key), NEVER) - remembered
        for position in [p for p in known if p <= oldest and p not in reasons]:
            del known[position]
        shown = self._progress.shown.get((job.name, spec.key), {})
        for position, reason in reasons.items():
            before = known.get(position)
            times = shown.pop(position, _UNSEEN).times
            known[position] = Leaving(times, reason, times)
            if before is not None:
                known[position] = replace(before, revision=before.revision + 1)

    def take(self, catalog: Catalog, readings: Sequence[Reading]) -> None:
        """Notes what came too late, and which windows it may have leave again."""
        self._count_late(catalog, readings)
        self._note_changes(catalog, readings)
        changed: dict[str, set[int]] = {}
        for reading in readings:
            for shape, panes in reading.changed.items():
                changed.setdefault(shape, set()).update(panes)
        for shape, touched in changed.items():
            for job in catalog.by_shape.get(shape, ()):
                self._touch(job, touched)

    def _note_changes(self, catalog: Catalog, readings: Sequence[Reading]) -> None:
        """Notes which windows have got records, of jobs that show them while they are open."""
        jobs = [job for job in catalog.jobs.values() if job.bounds.changes]
        panes: dict[Grid, set[int]] = {}
        for tally in (t for reading in readings if jobs for t in reading.tallies):
            if tally.records:
                panes.setdefault((tally.axis, tally.size), set()).add(tally.pane)
        for job in jobs:
            for which, spec in enumerate(job.windows):
                changed = self._changed.get((job.name, which))
                touched = panes.get((job.shape.axis.column, spec.pane))
                if changed is not None and touched:
                    ends = (end for pane in touched for end in spec.ends_holding(pane))
                    changed.update(end * spec.pane for end in ends)

    def miss(self, job: Job, records: int, slack_us: int) -> None:
        """Notes records that sessions of a job leave out, and the slack that keeps them."""
        if records:
            self._late(job, records, slack_us)

    def touched(self, job: Job, which: int) -> list[int]:
        """The windows of one kind that late records have changed since they left."""
        return sorted(self._touched.get((job.name, which), ()))

    def _touch(self, job: Job, panes: Iterable[int]) -> None:
        for which, spec in enumerate(job.windows):
            upto, final = self._upto(job, spec), self._final(job, spec)
            left = {position // spec.pane for position in self.left(job, spec)}
            for pane in panes:
                ends = spec.ends_holding(pane)
                again = {e for e in ends if e in left or (upto is not None and e <= upto)}
                again = {e for e in again if final is None or e > final}
                if again:
                    self._touched.setdefault((job.name, which), set()).update(again)

    def _count_late(self, catalog: Catalog, readings: Sequence[Reading]) -> None:
        """A record is late for a job if at least one window it belongs to leaves it out."""
        grids = _by_grid(readings)
        for shape, grid in catalog.grids.items():
            if grid not in grids:
                continue
            tallies, panes, marked = grids[grid]
            for job in catalog.by_shape[shape]:
                if job.is_keeper:
                    continue  # the score of whatever is asked tells
                gone = max((self._gone(job, spec) for spec in job.windows), default=NEVER)
                early = tallies[: bisect_left(panes, gone)]
                for tally in (*early, *(m for m in marked if m.pane >= gone)):
                    missed = list(self._missed(job, tally.pane, tally.not_before))
                    if missed:
                        needed = tally.reached - min(missed) * job.shape.pane + 1
                        self._late(job, tally.records, needed if job.shape.axis.is_time else 0)

    def _gone(self, job: Job, spec: WindowSpec) -> int:
        """The pane at which the last window of a kind ended that does not leave again."""
        final, last = self._final(job, spec), max(self._for_good(job, spec), default=NEVER)
        return max(NEVER if final is None else final, last // spec.pane)

    def _for_good(self, job: Job, spec: WindowSpec) -> dict[int, Leaving]:
        """The newest windows that have left, unless they may leave again."""
        return {} if job.bounds.revise_us is not None else self.left(job, spec)

    def _late(self, job: Job, records: int, slack_us: int) -> None:
        late = self._progress.late.setdefault(job.unversioned, Lateness())
        late.records += records
        late.slack_us = max(late.slack_us, slack_us)

    def _missed(self, job: Job, pane: int, not_before: int | None) -> Iterator[int]:
        """The first windows of each kind that a record came too late for.

        Windows that left because they were good enough needed no more, and nothing is too late
        for windows from before the job began.
        """
        revised = job.bounds.revise_us is not None
        for spec in job.windows:
            first, left = spec.first_end(pane), self._for_good(job, spec)
            limits = [self._final(job, spec), None if revised else not_before]
            over = max((limit for limit in limits if limit is not None), default=NEVER)
            if first <= max(over, self._gone(job, spec)):
                begun = self._progress.began.get((job.name, spec.key), NEVER) // spec.pane
                ends = spec.ends_holding(pane)
                for end in ends[bisect_left(ends, spec.first_end(begun)) :]:
                    known = left.get(end * spec.pane)
                    enough = known is not None and known.reason == Reason.FIDELITY
                    if not enough and (end <= over or known is not None):
                        yield end
                        break

    def _upto(self, job: Job, spec: WindowSpec) -> int | None:
        """The pane number up to which a job's windows of one kind have left."""
        end = self._progress.emitted.get((job.name, spec.key))
        return None if end is None else end // spec.pane

    def _final(self, job: Job, spec: WindowSpec) -> int | None:
        """The same less the windows that may still be revised."""
        end = self._upto(job, spec)
        return None if end is None else end + -(job.bounds.revise_us or 0) // spec.pane


_Tallies = tuple[list[Tally], list[int], list[Tally]]


def _by_grid(readings: Iterable[Reading]) -> dict[Grid, _Tallies]:
    """The tallies with records of each grid in the order of panes, these panes, and the marked."""
    grids: dict[Grid, list[Tally]] = {}
    for reading in readings:
        for tally in reading.tallies:
            if tally.records:
                grids.setdefault((tally.axis, tally.size), []).append(tally)
    sorted_ = {grid: sorted(tallies, key=_pane) for grid, tallies in grids.items()}
    return {
        grid: (tallies, [t.pane for t in tallies], [t for t in tallies if t.not_before is not None])
        for grid, tallies in sorted_.items()
    }


def _pane(tally: Tally) -> int:
    return tally.pane


def _earlier(a: int | None, b: int | None) -> int | None:
    """The earlier of two ends, where None is before all."""
    return None if a is None or b is None else min(a, b)
