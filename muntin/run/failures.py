"""What jobs have failed on: which windows still leave, and what was left out of them.

A window leaves if at most `max_errors` exceptions count before its end. So it does not depend on
batches or on the order of sources which window is the first that does not, and other jobs know
nothing of it. What a job dropped within its limit is counted by position and source, until no
window to come holds it.
"""

from __future__ import annotations

import pickle
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from muntin.fidelity.score import C2
from muntin.kernel.statements import FAULT, WINDOW, WINDOW_END
from muntin.model import Fault, Job

Place = tuple[int, str, int | None]  # position, source, and up to where it was late anyway
Windows = dict[tuple[int, int], int]  # records of a kind of windows and an end


@dataclass
class Failures:
    """The first positions at which exceptions of each job count: one more than it may have.

    And by job the records that it dropped: where they were, and how many in all.
    """

    positions: dict[str, list[int]] = field(default_factory=dict)
    dropped: dict[str, dict[Place, int]] = field(default_factory=dict)
    totals: dict[str, int] = field(default_factory=dict)
    _ordered: dict[str, list[Place]] = field(default_factory=dict, compare=False)

    def read(self, job: Job, fault: Fault) -> Iterator[str]:
        """Notes a fault that left out records as they were read; tells what `add` does."""
        told = list(self.add(job, [fault]))
        if told:
            places = self.dropped.setdefault(job.name, {})
            place = fault.position, fault.source, fault.not_before
            places[place] = places.get(place, 0) + fault.records
            self._ordered.pop(job.name, None)
        yield from told

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
        """Notes faults; tells of each that matters, and of the one that is too much."""
        limit = job.max_errors
        for fault in faults:
            known = self.positions.setdefault(job.name, [])
            if len(known) > limit and fault.position >= known[-1]:
                continue  # the job had stopped before
            known += [fault.position] * (limit + 1 if fault.stops else 1)
            known.sort()
            del known[limit + 1 :]
            self.totals[job.name] = self.totals.get(job.name, 0) + fault.records
            yield str(fault)
            if len(known) > limit:
                yield _stopped(job, "" if fault.stops else _allowed(limit))

    def resume(self, jobs: Iterable[Job], changed: Collection[str]) -> Iterator[str]:
        """Gives jobs that have changed another chance, and tells of those that have stopped."""
        for name in changed:
            self.positions.pop(name, None)
            self.dropped.pop(name, None)
        for job in jobs:
            if len(self.positions.get(job.name, ())) > job.max_errors:
                yield (
                    f"job '{job.name}' stopped in an earlier run; its windows from there on are "
                    "left out until its code has changed; then it goes on with what is read next"
                )

    def leaves(self, job: Job, which: int, end: int) -> bool:
        """Whether a window is not yet behind one exception too many."""
        if job.name not in self.positions:
            return True
        position = job.windows[which].bounds(end)[1]
        return bisect_left(self.positions[job.name], position) <= job.max_errors

    def sift(self, job: Job, rows: pa.Table) -> Sifted:
        """The rows of windows that leave, and what there is to say about the others."""
        if FAULT not in rows.column_names:
            return Sifted(rows)
        told = rows.filter(pc.is_valid(rows[FAULT]))
        faults = [pickle.loads(data) for data in told[FAULT].to_pylist()]
        failed: Windows = {}
        for window, fault in zip(_windows(told), faults, strict=True):
            failed[window] = failed.get(window, 0) + fault.records
        notes = list(self.add(job, faults))
        rows = rows.filter(pc.is_null(rows[FAULT])).drop_columns([FAULT])
        if job.name in self.positions:
            leaves = [self.leaves(job, *each) for each in _windows(rows)]
            rows = rows.filter(pa.array(leaves, pa.bool_()))
        return Sifted(rows, notes, failed)


@dataclass(frozen=True)
class Sifted:
    """Rows of windows that leave, what there is to say, and by window records that are left out."""

    rows: pa.Table
    notes: Sequence[str] = ()
    failed: Windows = field(default_factory=dict)


def _position(place: Place) -> int:
    return place[0]


def _windows(rows: pa.Table) -> list[tuple[int, int]]:
    """The kind and end of the window of each row."""
    return list(zip(rows[WINDOW].to_pylist(), rows[WINDOW_END].to_pylist(), strict=True))


def _allowed(limit: int) -> str:
    allowed = "none is allowed" if limit == 0 else f"{limit:,} are allowed"
    return f": {allowed} (max_errors = {limit})"


def _stopped(job: Job, why: str) -> str:
    return (
        f"job '{job.name}' stops{why}; its windows from there on are left out, and other jobs go on"
    )
