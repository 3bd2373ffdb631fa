"""When a job in Python has failed too often: which of its windows still leave.

A window leaves if at most `max_errors` exceptions count before its end. So it does not depend on
batches or on the order of sources which window is the first that does not, and other jobs know
nothing of it.
"""

from __future__ import annotations

import pickle
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from muntin.kernel.statements import FAULT, WINDOW, WINDOW_END
from muntin.model import Fault, Job


@dataclass
class Failures:
    """The first positions at which exceptions of each job count: one more than it may have."""

    positions: dict[str, list[int]] = field(default_factory=dict)

    def add(self, job: Job, faults: Iterable[Fault]) -> Iterator[str]:
        """Notes faults; tells of each that matters, and of the one that is too much."""
        limit = job.max_errors
        for fault in faults:
            known = self.positions.setdefault(job.name, [])
            if len(known) > limit and fault.position >= known[-1]:
                continue  # the job had stopped before
            known += [fault.position] * (limit + 1 if fault.stops else min(fault.errors, limit + 1))
            known.sort()
            del known[limit + 1 :]
            yield str(fault)
            if len(known) > limit:
                yield _stopped(job, "" if fault.stops else _allowed(limit))

    def resume(self, jobs: Iterable[Job], changed: Collection[str]) -> Iterator[str]:
        """Gives jobs that have changed another chance, and tells of those that have stopped."""
        for name in changed:
            self.positions.pop(name, None)
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
        position = job.windows[which].bounds(end)[1] if job.windows else end  # of a session
        return bisect_left(self.positions[job.name], position) <= job.max_errors

    def sift(self, job: Job, rows: pa.Table) -> tuple[pa.Table, list[str]]:
        """The rows of windows that leave, and what there is to say about the others."""
        if FAULT not in rows.column_names:
            return rows, []
        told = rows[FAULT].drop_null().to_pylist()
        notes = list(self.add(job, (pickle.loads(data) for data in told)))
        rows = rows.filter(pc.is_null(rows[FAULT])).drop_columns([FAULT])
        if job.name not in self.positions:
            return rows, notes
        windows = zip(rows[WINDOW].to_pylist(), rows[WINDOW_END].to_pylist(), strict=True)
        return rows.filter(
            pa.array([self.leaves(job, *each) for each in windows], pa.bool_())
        ), notes


def _allowed(limit: int) -> str:
    allowed = "none is allowed" if limit == 0 else f"{limit:,} are allowed"
    return f": {allowed} (max_errors = {limit})"


def _stopped(job: Job, why: str) -> str:
    return (
        f"job '{job.name}' stops{why}; its windows from there on are left out, and other jobs go on"
    )
