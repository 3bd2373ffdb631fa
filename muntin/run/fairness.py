"""Which of the due windows are answered now, where answers of a job would hold others up.

    due ──┬─ all that takes hardly any time, or is over before others have to set off: now
          ├─ what does not fit: after the others, some windows at a time, or when it is its turn
          └─ of a job that takes more than its share: windows that would be too late are shed

So a job whose answers do not fit its bound loses windows of its own, and the others keep theirs. A
window that is shed leaves as one of which nothing is there. Windows of jobs without WITHIN are late
at no time: they wait. So do those of a job that needs less time than those that hold others up may
take: it is late because all are, as after a pause of the machine, and catches up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from muntin.kernel.due import Due
from muntin.kernel.kinds import kind_of
from muntin.model.jobs import Job
from muntin.run.departures import Scores, Upto
from muntin.run.due import Agenda, Decision
from muntin.schedule.shares import NEGLIGIBLE, SHARE, Shares, fitting
from muntin.units import describe

_SLICE = 0.5  # seconds to plan with where others are too late anyway: all take turns
_Window = tuple[int, int, int]  # the position where it ends, which kind, and the pane


@dataclass(frozen=True)
class Parted:
    """What of a decision is done now: `decision` are all windows that leave.

    Of these, `due` are to be answered and `shed` are not. `held_up` has the jobs whose answers
    others have to wait for.
    """

    decision: Decision
    due: Due
    shed: Scores = field(default_factory=dict)
    held_up: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()

    @property
    def windows(self) -> dict[str, int]:
        """How many windows are answered, by job."""
        counts = {name: sum(map(len, kinds)) for name, kinds in self.due.ends.items()}
        return counts | dict.fromkeys(self.due.sessions, 1)


@dataclass(frozen=True)
class _Part:
    """What becomes of one job's due windows: how many at most are answered, and if any."""

    most: int | None = None  # None: all
    sheds: bool = False
    holds_up: bool = False


class Fairness:
    """Parts what is due, by what answers have taken so far."""

    def __init__(self) -> None:
        self._shares = Shares()
        self._told: set[str] = set()
        self.waiting: dict[str, float] = {}
        """Jobs that have windows due and were not answered, and when to look at them again."""

    def lead_us(self, jobs: Mapping[str, Job]) -> dict[str, int]:
        """How much sooner than others jobs have to set off, as their answers take long."""
        each = ((name, self._shares.seconds(name)) for name in jobs)
        return {name: int(s * 1e6) for name, s in each if s > NEGLIGIBLE}

    def part(
        self, agenda: Agenda, decision: Decision, lead: float, others_at: float | None
    ) -> Parted:
        """What of a decision is done now.

        Windows set off so many seconds before their deadline as `lead` says. Other streams have
        something to do at `others_at`.
        """
        self.waiting, due = {}, decision.due
        stopped = agenda.progress.failures.stopped_at
        counts = Parted(decision, due).windows
        takes = {
            name: count * self._shares.seconds(name)
            for name, count in counts.items()
            if stopped(name) is None
        }
        dear = [name for name, seconds in takes.items() if seconds > NEGLIGIBLE]
        if not dear:
            return Parted(decision, due)
        dear.sort(key=self._shares.waited_since)
        parts = self._parts(agenda, dear, counts, lead, others_at)
        return self._apply(agenda, decision, parts)

    def showing(self, agenda: Agenda, lead: float, others_at: float | None) -> Scores:
        """The open windows that are shown now.

        Those of a job whose answers take long are when they are over before others have to set off.
        """
        scores = agenda.changed()
        counts = Counter(name for name, _, _ in scores)
        skipped = set()
        for name, count in counts.items():
            each = self._shares.seconds(name)
            if count * each > NEGLIGIBLE:
                fits = fitting(agenda.room([name], lead, others_at), each)
                if name in self.waiting or (fits is not None and fits < count):
                    skipped.add(name)
        return {window: c2 for window, c2 in scores.items() if window[0] not in skipped}

    def took(self, parted: Parted, seconds: Mapping[str, float], now: float) -> float:
        """Takes what an answer took; returns how much of that was of jobs that take long.

        One that took longer than anybody knew may have held others up, too.
        """
        windows = parted.windows
        held_up = sum(
            took
            for name, took in seconds.items()
            if name in parted.held_up
            or took > 2 * windows.get(name, 1) * self._shares.seconds(name) + NEGLIGIBLE
        )
        if held_up:
            self._shares.hold_up(now, held_up)
        return self._shares.take(now, parted.windows, seconds)

    def keep(self, jobs: Mapping[str, Job]) -> None:
        """Forgets all jobs but these."""
        self._shares.keep(jobs)

    def _parts(
        self,
        agenda: Agenda,
        dear: Sequence[str],
        counts: Mapping[str, int],
        lead: float,
        others: float | None,
    ) -> dict[str, _Part]:
        """What becomes of the windows of jobs whose answers take long, in their order."""
        now, parts = agenda.at.now, dict[str, _Part]()
        room = agenda.room(dear, lead, others)
        if room is not None and room < -lead:  # they are too late, and so may wait for us
            room = _SLICE
        company = len(counts) > len(dear)  # which would be committed with it
        for name in dear:
            job, each = agenda.catalog.jobs[name], self._shares.seconds(name)
            fits, own, sheds = fitting(room, each), _own(job, each), _load(job, each) > SHARE
            if (fits is None or counts[name] <= fits) and (own is None or counts[name] <= own):
                parts[name] = _Part()
            elif fits is None or (fits and not company):  # at least one window, and nobody waits
                most = min(n for n in (fits, own, counts[name]) if n is not None)
                parts[name] = _Part(most, sheds)
            elif not company and self._shares.free_at <= now:
                parts[name] = _Part(1, sheds, holds_up=True)
            else:
                self.waiting[name] = now if company else self._shares.free_at
                parts[name] = _Part(0, sheds)
                continue
            company, answered = True, parts[name].most
            if room is not None:
                room -= (counts[name] if answered is None else answered) * each
        return parts

    def _apply(self, agenda: Agenda, decision: Decision, parts: Mapping[str, _Part]) -> Parted:
        """The decision without what waits, and apart from the rest what is shed."""
        due, upto = decision.due, decision.upto
        leaves, answered = dict(due.ends), dict(due.ends)
        shed: Scores = {}
        sessions = {n: s for n, s in due.sessions.items() if n not in parts or parts[n].most != 0}
        notes: list[str] = []
        for name, part in parts.items():
            job = agenda.catalog.jobs[name]
            if name not in due.ends or part.most is None:
                continue
            gone = self._too_late(agenda, job, due.ends[name]) if part.sheds else set()
            kept = [w for w in _in_order(job, due.ends[name]) if w not in gone]
            now = set(kept[: part.most])
            answered[name] = _only(job, due.ends[name], now)
            leaves[name] = _only(job, due.ends[name], now | gone)
            upto = _shortened(upto, job, due.ends[name], kept[part.most :])
            windows = ((name, which, end) for _, which, end in gone)
            shed |= {window: decision.scores[window].shed() for window in windows}
            if gone or (part.most == 0 and job.bounds.within_us is None):
                notes += self._note(job)
        leaving = {name: kinds for name, kinds in leaves.items() if any(kinds)}
        asked = {name: kinds for name, kinds in answered.items() if any(kinds)}
        noted = replace(due, ends=leaving, sessions=sessions)
        return Parted(
            Decision(noted, decision.scores | shed, upto),
            replace(due, ends=asked, sessions=sessions),
            shed,
            frozenset(name for name, part in parts.items() if part.holds_up),
            tuple(notes),
        )

    def _too_late(self, agenda: Agenda, job: Job, kinds: Sequence[Sequence[int]]) -> set[_Window]:
        """The windows whose deadline passes before they can be answered.

        If these are all, the newest stays: a job that is always too late has results now and then.
        """
        within, kind = job.bounds.within_us, kind_of(job.shape)
        if within is None or not kind.has_windows or not job.shape.axis.is_time:
            return set()
        done_us = agenda.at.now_us + int(self._shares.seconds(job.name) * 1e6)
        every = _in_order(job, kinds)
        late = [
            (at, which, end)
            for at, which, end in every
            if agenda.times.started_us < at + within < done_us
            and at not in agenda.departures.left(job, job.windows[which])  # a revision
        ]
        return set(late[:-1] if len(late) == len(every) else late)

    def _note(self, job: Job) -> Iterator[str]:
        """Tells once that a job cannot keep up."""
        if job.name not in self._told:
            self._told.add(job.name)
            seconds = describe(round(self._shares.seconds(job.name) * 100) * 10_000)
            if job.bounds.within_us is None:
                yield (
                    f"job '{job.title}' has no WITHIN, and a window takes {seconds} to answer: it "
                    "waits for others, which have bounds to keep, and may fall behind for good; "
                    "with a WITHIN it would shed windows instead"
                )
                return
            within = describe(job.bounds.within_us).upper()
            yield (
                f"job '{job.title}': a window takes {seconds} to answer, too long for WITHIN "
                f"{within} beside what else is due; windows that would be too late are shed, and "
                "`muntin status` counts them: let windows leave less often, or give it more time"
            )


def _own(job: Job, each: float) -> int | None:
    """How many windows a job can answer within its bound, at least one; None: any number."""
    within = job.bounds.within_us
    return None if within is None else max(1, int(within / 1e6 / each))


def _load(job: Job, each: float) -> float:
    """The share of the time that a job's answers take, if each window takes so many seconds."""
    return sum(each * 1e6 / spec.slide for spec in job.windows) if job.shape.axis.is_time else 0.0


def _in_order(job: Job, kinds: Sequence[Sequence[int]]) -> list[_Window]:
    """The windows of one job, by where they end."""
    ends = ((which, end) for which, ends in enumerate(kinds) for end in ends)
    return sorted((end * job.windows[which].pane, which, end) for which, end in ends)


def _only(job: Job, kinds: Sequence[Sequence[int]], some: set[_Window]) -> list[list[int]]:
    """The same lists with these windows alone."""
    return [
        [end for end in ends if (end * spec.pane, which, end) in some]
        for which, (spec, ends) in enumerate(zip(job.windows, kinds, strict=True))
    ]


def _shortened(
    upto: Upto, job: Job, kinds: Sequence[Sequence[int]], stays: Sequence[_Window]
) -> Upto:
    """Up to where all windows have left, if some of a job's stay."""
    upto = dict(upto)
    for which, (spec, ends) in enumerate(zip(job.windows, kinds, strict=True)):
        first = min((end for _, kind, end in stays if kind == which), default=None)
        if first is None or (job.name, spec.key) not in upto:
            continue
        before = [end for end in ends if end < first]
        known = upto.pop((job.name, spec.key))
        if before:
            upto[job.name, spec.key] = min(known, max(before) * spec.pane)
    return upto
