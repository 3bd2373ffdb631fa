"""Where windows leave: in time, committed, and with a measure of how long that takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from muntin.logs.tail import FilePosition
from muntin.run.pipeline import Pipeline
from muntin.run.results import Emission
from muntin.schedule.pace import Pace
from muntin.store.journal import Journal
from muntin.units import describe

POLL_SECONDS = 0.1
Clock = Callable[[], float]  # seconds since the epoch


class Outlet:
    """What one stream's pipeline emits goes through here to its journal."""

    def __init__(self, pipeline: Pipeline, journal: Journal, follow: bool, clock: Clock) -> None:
        self.pace = Pace()
        self._pipeline = pipeline
        self._journal = journal
        self._follow = follow
        self._clock = clock
        self._behind: frozenset[str] = frozenset()
        self._cold = True  # until there was a batch: it takes longer, and tells how far all are
        self._warned: set[str] = set()

    def wake_at(self) -> float | None:
        """When windows with a deadline have to set off, if one is open."""
        deadline = self._pipeline.next_deadline() if self._follow else None
        return None if deadline is None else deadline - self.pace.leaving.high

    def most(self, started: float, wake_at: float | None) -> int | None:
        """How many bytes the next batch may have, so that all leaves in time; None: any number."""
        longest = self._pipeline.longest_batch(self._behind)
        rooms = [None if wake_at is None else wake_at - started, longest]
        found = [self.pace.most(room) for room in rooms if room is not None]
        return min(found, default=None)

    def leave_first(self, started: float, wake_at: float | None) -> Emission:
        """Lets windows leave whose deadline would pass while the next batch is read.

        Before the first one is read, nobody knows what there is of them.
        """
        if self._cold or wake_at is None or wake_at - started >= self.pace.batch.high:
            return Emission()
        return self.leave(started, behind=self._behind, ahead=self.pace.batch.high)

    def leave(
        self,
        started: float,
        final: bool = False,
        read: bool = False,
        behind: frozenset[str] = frozenset(),
        positions: tuple[FilePosition, ...] | None = None,
        ahead: float = 0.0,
    ) -> Emission:
        """Emits and commits what is due after a batch that has been `read`, or without one.

        `started` is when the files were looked at; sources that are `behind` have more to read.
        What is due so many seconds `ahead` leaves too.
        """
        self._behind = behind
        decided = self._clock()
        self._pipeline.lead_seconds = self.pace.leaving.high + ahead
        emission = self._pipeline.emit(decided, final, read, self._behind)
        emission = self._pipeline.leave(emission, self._clock())
        if read or emission.windows:
            self._journal.commit(emission, positions)
        if emission.windows and not self._cold:
            over = self._clock()
            self.pace.left(over - decided, over - started)
            emission.notes.extend(self._unreachable(emission) if self._follow else ())
        self._cold &= not read
        return emission

    def took(self, size: int, seconds: float) -> None:
        """Takes what reading and computing a batch took."""
        if not self._cold:
            self.pace.read(size, seconds)

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
