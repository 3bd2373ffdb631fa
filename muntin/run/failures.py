"""What jobs have failed on: which windows still leave, and what was left out of them.

A window leaves if at most `max_errors` errors count before its end. So it does not depend on
batches or on the order of sources which window is the first that does not, and other jobs know
nothing of it. What a job dropped within its limit is counted by position and source, until no
window to come holds it.
"""

from __future__ import annotations

import pickle
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from muntin.fidelity.score import C2
from muntin.kernel.statements import FAULT, WINDOW, WINDOW_END
from muntin.model.counts import Fault
from muntin.model.jobs import Job

Place = tuple[int, str, int | None]  # position, source, and up to where it was late anyway
Windows = dict[tuple[int, int], int]  # records of a kind of windows and an end
_TOLD = 3  # errors of a job in a run, beside the one that is too much


@dataclass
class Failures:
    """The first positions at which errors of each job count: one more than it may have.

    And by job the records that it dropped: where they were, and how many in all.
    """

    positions: dict[str, list[int]] = field(default_factory=dict)
    dropped: dict[str, dict[Place, int]] = field(default_factory=dict)
    totals: dict[str, int] = field(default_factory=dict)
    texts: dict[str, tuple[str, int]] = field(default_factory=dict)
    """The version and the limit that a job had when it failed."""
    _ordered: dict[str, list[Place]] = field(default_factory=dict, compare=False)
    _told: dict[str, int] = field(default_factory=dict, compare=False)  # in this run, by job
    _hinted: dict[str, int] = field(default_factory=dict, compare=False)  # the same

    def read(self, job: Job, fault: Fault) -> Iterator[str]:
        """Notes a fault that left out records as they were read; tells what `add` does."""
        if self._counts(job, fault):
            places = self.dropped.setdefault(job.name, {})
            place = fault.position, fault.source, fault.not_before
            places[place] = places.get(place, 0) + fault.records
            self._ordered.pop(job.name, None)
            yield from self._notes(job, fault)

    def records(self, job: Job, which: int, end: int, c2: C2) -> int:
        """Records of a window that the job dropped when they were read, late ones aside."""
        places = self.dropped.get(job.name)
        if not places:
            return 0
        if job.name not in self._ordered:
            self._ordered[job.name] = sorted(places, key=_position)
        ordered, spec, found = self._ordered[job.name], job.windows[which], 0
        start, until = spec.bounds(end)
        inside = None if c2.only is None else dict(zip(c2.names, c2.inside, strict=True))
        low, high = (bisect_left(ordered, at, key=_position) for at in (start, until))
        for place in ordered[low:high]:
            position, source, not_before = place
            if not_before is not None and until <= not_before:
                continue
            if inside is None or (
                source in inside and inside[source][(position - start) // spec.pane]
            ):
                found += places[place]
        return found

    def forget(self, name: str, before: int) -> None:
        """Drops what lies before a position that no window of a job holds any more."""
        places = self.dropped.get(name, {})
        for place in [place for place in places if place[0] < before]:
            del places[place]
            self._ordered.pop(name, None)

    def add(self, job: Job, faults: Iterable[Fault]) -> Iterator[str]:
        """Notes faults; tells of the first ones, and of the one that is too much."""
        for fault in faults:
            if not fault.errors:
                yield from self._hints(job, fault)
            elif self._counts(job, fault):
                yield from self._notes(job, fault)

    def _hints(self, job: Job, fault: Fault) -> Iterator[str]:
        """What costs nothing is told a few times."""
        hinted = self._hinted[job.name] = self._hinted.get(job.name, 0) + 1
        if hinted <= _TOLD:
            yield str(fault)
        if hinted == _TOLD:
            yield f"job '{job.name}': other lists that end at their limit are not told of"

    def _counts(self, job: Job, fault: Fault) -> bool:
        """Notes where a fault counts, unless the job had stopped before.

        What came too late for a window is nothing that the window could have failed on.
        """
        limit, known = job.max_errors, self.positions.setdefault(job.name, [])
        late = fault.not_before
        position = fault.position if late is None else max(late, fault.position)
        if len(known) > limit and position >= known[-1]:
            return False
        known += [position] * (limit + 1 if fault.stops else min(fault.errors, limit + 1))
        known.sort()
        del known[limit + 1 :]
        self.totals[job.unversioned] = self.totals.get(job.unversioned, 0) + fault.records
        self.texts[job.name] = job.version, limit
        return True

    def _notes(self, job: Job, fault: Fault) -> Iterator[str]:
        limit = job.max_errors
        told = self._told[job.name] = self._told.get(job.name, 0) + 1
        stopped = len(self.positions[job.name]) > limit
        if stopped or told <= _TOLD:
            yield str(fault)
        if told == _TOLD and not stopped:
            yield f"job '{job.name}': what else it fails on is counted, up to {limit:,} times"
        if stopped:
            yield _stopped(job, "" if fault.stops else _allowed(job))

    def stopped_at(self, name: str) -> int | None:
        """The position from which on windows of a job do not leave."""
        known, (_, limit) = self.positions.get(name, []), self.texts.get(name, ("", 0))
        return known[limit] if len(known) > limit else None

    def rename(self, name: str, now: str) -> None:
        """Takes that a job goes on under another name, with what it has failed on."""
        by_jobs: tuple[dict[str, Any], ...] = (
            self.positions, self.dropped, self.texts, self._ordered, self._told
        )  # fmt: skip
        for by_job in by_jobs:
            if name in by_job:
                by_job[now] = by_job.pop(name)

    def resume(self, jobs: Iterable[Job], changed: Collection[str]) -> tuple[list[str], list[str]]:
        """Gives another chance to jobs whose text or limit has changed.

        Of jobs that are `changed` so that they begin anew, nothing is left. Returns what there is
        to say of jobs that have stopped, and the names of those that begin anew because they had.
        """
        notes, revived = [], []
        for name in changed:
            self.dropped.pop(name, None)
            self.positions.pop(name, None)
        for job in jobs:
            version, limit = self.texts.get(job.name, (job.version, 0))
            stopped = self.stopped_at(job.name) is not None
            if version != job.version or (stopped and job.max_errors > limit):
                self.positions.pop(job.name, None)
                revived += [job.name] if stopped else []
            elif stopped:
                notes.append(
                    f"job '{job.name}' stopped in an earlier run; its windows from there on are "
                    "left out until its text has changed; then it goes on with what is read next"
                )
            if job.name in self.positions:
                self.texts[job.name] = job.version, job.max_errors
                del self.positions[job.name][job.max_errors + 1 :]
        return notes, revived

    def leaves(self, job: Job, which: int, end: int) -> bool:
        """Whether a window is not yet behind one error too many."""
        if job.name not in self.positions:
            return True
        position = job.windows[which].bounds(end)[1] if job.windows else end  # of a session
        return bisect_left(self.positions[job.name], position) <= job.max_errors

    def sift(
        self, job: Job, rows: pa.Table, shown: Collection[tuple[int, int]] = ()
    ) -> tuple[pa.Table, Met]:
        """The rows of windows that leave, and what was met on the way to them.

        What has failed in windows that are only `shown` counts when they leave.
        """
        if FAULT not in rows.column_names:
            return rows, Met()
        told = rows.filter(pc.is_valid(rows[FAULT]))
        faults = [pickle.loads(data) for data in told[FAULT].to_pylist()]
        met = self.meet(job, list(zip(_windows(told), faults, strict=True)), shown)
        rows = rows.filter(pc.is_null(rows[FAULT])).drop_columns([FAULT])
        if job.name in self.positions:
            leaves = [self.leaves(job, *each) for each in _windows(rows)]
            rows = rows.filter(pa.array(leaves, pa.bool_()))
        return rows, met

    def meet(
        self,
        job: Job,
        faults: Sequence[tuple[tuple[int, int], Fault]],
        shown: Collection[tuple[int, int]] = (),
    ) -> Met:
        """Notes what has failed in windows that are due, but in those that are only `shown`."""
        failed: Windows = {}
        for window, fault in faults:
            if fault.records:
                failed[window] = failed.get(window, 0) + fault.records
        counting = (fault for window, fault in faults if window not in shown)
        return Met(list(self.add(job, counting)), failed)


@dataclass(frozen=True)
class Met:
    """What there is to say, and by window records that are left out."""

    notes: Sequence[str] = ()
    failed: Windows = field(default_factory=dict)


def _position(place: Place) -> int:
    return place[0]


def _windows(rows: pa.Table) -> list[tuple[int, int]]:
    """The kind and end of the window of each row."""
    return list(zip(rows[WINDOW].to_pylist(), rows[WINDOW_END].to_pylist(), strict=True))


def _allowed(job: Job) -> str:
    limit, in_python = job.max_errors, job.shape.code is not None or bool(job.shape.states)
    said = f"max_errors = {limit}" if in_python and job.allowed is None else f"MAX ERRORS {limit}"
    allowed = "none is" if limit == 0 else "1 is" if limit == 1 else f"{limit:,} are"
    return f": {allowed} allowed ({said})"


def _stopped(job: Job, why: str) -> str:
    return (
        f"job '{job.name}' stops{why}; its windows from there on are left out, and other jobs go on"
    )
