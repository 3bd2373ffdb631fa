"""Which windows have left: up to where, how often and why, and what came too late for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import reduce

from muntin.fidelity.score import C2, EVER, NEVER, Reason
from muntin.kernel.due import Due, Emitted
from muntin.logs.records import Report
from muntin.model import Bounds, Job, Shape
from muntin.run.progress import SESSION, JobKind, Lateness, Leaving, Progress
from muntin.windows.spec import WindowSpec

Scores = dict[tuple[str, int, int], C2]  # of a job, the number of its kind, and the end
Upto = dict[JobKind, int]  # the position up to which all windows of a kind have left


class Departures:
    """What a stream's jobs have sent off. All of it is in the given progress, which lives on."""

    def __init__(self, jobs: Mapping[str, Job], progress: Progress) -> None:
        self._jobs = jobs
        self._progress = progress
        self._touched: dict[tuple[str, int], set[int]] = {}  # windows that must leave again

    def open(self, job: Job, spec: WindowSpec, horizon: int = EVER) -> list[int]:
        """The ends, up to a position, of windows that hold records and have not left."""
        panes = self._progress.ledger.panes((job.shape.axis.column, job.shape.pane))
        ends = spec.ends(panes, self._upto(job, spec), horizon // spec.pane)
        begin, until = job.shape.begin, job.shape.until
        if begin is not None:
            ends = [end for end in ends if end * spec.pane > begin]
        if until is not None:
            ends = [end for end in ends if (end - spec.length) * spec.pane < until]
        left = self.left(job, spec)  # some ahead of others
        return [end for end in ends if end * spec.pane not in left] if left else ends

    def waiting(self, job: Job) -> tuple[int, int]:
        """Records of a job that no window has answered yet, and the windows they wait for."""
        grid, found = (job.shape.axis.column, job.shape.pane), [(0, 0)]
        for spec in job.windows:
            windows = len(self.open(job, spec))
            if windows:
                read = self._progress.ledger.read_since(grid, self._upto(job, spec))
                found.append((read, windows))
        return max(found)

    def emitted(self, shape: Shape) -> Emitted:
        """Up to which pane the windows of each kind will not leave again, for all its jobs."""
        left: dict[WindowSpec, int | None] = {}
        over: list[int | None] = []
        for job in self._jobs.values():
            if job.shape == shape:
                over.append(self._progress.emitted.get((job.name, SESSION)))
                for spec in job.windows:
                    mine = self._kept(job, spec)
                    left[spec] = _earlier(mine, left.get(spec, mine))
        return Emitted(left, reduce(_earlier, over))

    def left(self, job: Job, spec: WindowSpec) -> dict[int, Leaving]:
        """The newest windows that have left, where the job has bounds."""
        return self._progress.left.get((job.name, spec.key), {})

    def revision(self, job: Job, spec: WindowSpec, end: int) -> int:
        known = self.left(job, spec).get(end * spec.pane)
        return known.revision if known is not None and job.bounds.revise_us is not None else 0

    def note(self, due: Due, scores: Scores, upto: Upto) -> None:
        """Takes what leaves now."""
        emitted = self._progress.emitted
        for kind, position in upto.items():
            emitted[kind] = max(emitted.get(kind, NEVER), position)
        for name, (_, until) in due.sessions.items():
            emitted[name, SESSION] = until
        for name, kinds in due.ends.items():
            job = self._jobs[name]
            for which, (spec, ends) in enumerate(zip(job.windows, kinds, strict=True)):
                if ends and job.bounds != Bounds():
                    reasons = {end * spec.pane: scores[name, which, end].reason for end in ends}
                    self._note_left(job, spec, reasons)

    def _note_left(self, job: Job, spec: WindowSpec, reasons: Mapping[int, Reason]) -> None:
        """Remembers why windows have left, as long as somebody may want to know."""
        known = self._progress.left.setdefault((job.name, spec.key), {})
        kept = max(spec.range, job.bounds.revise_us or 0)
        oldest = self._progress.emitted.get((job.name, spec.key), NEVER) - kept
        for position in [p for p in known if p <= oldest and p not in reasons]:
            del known[position]
        for position, reason in reasons.items():
            before = known.get(position)
            known[position] = Leaving(0, reason)
            if before is not None:
                known[position] = replace(before, revision=before.revision + 1)

    def take(self, report: Report) -> None:
        """Notes what of a report came too late, and for which windows that may leave again."""
        self._count_late(report)
        self._touch(report)

    def touched(self, job: Job, which: int) -> list[int]:
        """The windows of one kind that late records have changed since this was last asked."""
        return sorted(self._touched.pop((job.name, which), ()))

    def _touch(self, report: Report) -> None:
        for job in self._jobs.values():
            for which, spec in enumerate(job.windows if job.shape.id in report.changed else ()):
                upto, kept = self._upto(job, spec), self._kept(job, spec)
                left = {position // spec.pane for position in self.left(job, spec)}
                for pane in report.changed[job.shape.id]:
                    ends = range(spec.first_end(pane), spec.last_end(pane) + 1, spec.stride)
                    again = {e for e in ends if e in left or (upto is not None and e <= upto)}
                    again = {e for e in again if kept is None or e > kept}
                    if again:
                        self._touched.setdefault((job.name, which), set()).update(again)

    def _count_late(self, report: Report) -> None:
        """A record is late for a job if at least one window it belongs to leaves it out."""
        for job in self._jobs.values():
            records, behind = report.late.get(job.shape.id, (0, 0))
            if records:
                self._late(job, records, behind)
            grid = job.shape.axis.column, job.shape.pane
            gone = max((self._gone(job, spec) for spec in job.windows), default=NEVER)
            for tally in report.tallies:
                in_time = tally.not_before is None and tally.pane >= gone
                if (tally.axis, tally.size) == grid and tally.records and not in_time:
                    missed = list(self._missed(job, tally.pane, tally.not_before))
                    if missed:
                        needed = tally.reached - min(missed) * job.shape.pane + 1
                        self._late(job, tally.records, needed if job.shape.axis.is_time else 0)

    def _gone(self, job: Job, spec: WindowSpec) -> int:
        """The pane at which the last window of a kind ended that does not leave again."""
        kept, last = self._kept(job, spec), max(self._for_good(job, spec), default=NEVER)
        return max(NEVER if kept is None else kept, last // spec.pane)

    def _for_good(self, job: Job, spec: WindowSpec) -> dict[int, Leaving]:
        """The newest windows that have left, unless they may leave again."""
        return {} if job.bounds.revise_us is not None else self.left(job, spec)

    def _late(self, job: Job, records: int, slack_us: int) -> None:
        late = self._progress.late.setdefault(job.name, Lateness())
        late.records += records
        late.slack_us = max(late.slack_us, slack_us)

    def _missed(self, job: Job, pane: int, not_before: int | None) -> Iterator[int]:
        """The first windows of each kind that a record came too late for.

        Windows that left because they were good enough needed no more.
        """
        revised = job.bounds.revise_us is not None
        for spec in job.windows:
            first, left = spec.first_end(pane), self._for_good(job, spec)
            marks = [self._kept(job, spec), None if revised else not_before]
            over = max((mark for mark in marks if mark is not None), default=NEVER)
            if first <= max(over, self._gone(job, spec)):
                for end in range(first, spec.last_end(pane) + 1, spec.stride):
                    known = left.get(end * spec.pane)
                    enough = known is not None and known.reason == Reason.FIDELITY
                    if not enough and (end <= over or known is not None):
                        yield end
                        break

    def _upto(self, job: Job, spec: WindowSpec) -> int | None:
        """The pane number up to which a job's windows of one kind have left."""
        end = self._progress.emitted.get((job.name, spec.key))
        return None if end is None else end // spec.pane

    def _kept(self, job: Job, spec: WindowSpec) -> int | None:
        """The same less the windows that are kept, because they may be revised."""
        end = self._upto(job, spec)
        return None if end is None else end - (job.bounds.revise_us or 0) // spec.pane


def _earlier(a: int | None, b: int | None) -> int | None:
    """The earlier of two ends, where None is before all."""
    return None if a is None or b is None else min(a, b)
