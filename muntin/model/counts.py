"""What became of records: how many were read into which pane, and which have failed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True)
class Fault:
    """An error of a job: the method or expression, what it was given, and what it said.

    It counts for every window that ends after its position. One that `stops` the job does so
    however many are allowed. So many `records` of a source were left out because of it; windows
    that end at or before the position `not_before` would have left them out anyway, as late.
    """

    job: str
    method: str
    given: str
    reason: str
    position: int = 0
    stops: bool = False
    records: int = 1
    source: str = ""
    not_before: int | None = None
    errors: int = 1  # that it stands for; none: it is only told
    row: int | None = None  # in the piece of log it was met in, until that has a place

    def __str__(self) -> str:
        if not self.errors:
            return f"job '{self.job}': {self.method} of {self.given} {self.reason}"
        return f"job '{self.job}': {self.method} failed on {self.given}: {self.reason}"


class Tally(NamedTuple):  # there are very many of them
    """How many records of one source fell into one pane, and with which mark."""

    source: str
    axis: str  # the column of positions
    size: int  # of a pane
    pane: int
    not_before: int | None
    records: int
    bad: int
    reached: int  # how far the source had come

    def plus(self, other: Tally) -> Tally:
        """Both together, of the same source, pane and mark."""
        return self._replace(
            records=self.records + other.records,
            bad=self.bad + other.bad,
            reached=max(self.reached, other.reached),
        )


@dataclass(frozen=True)
class Counts:
    """Records read, bad, late, and dropped because the job failed on them, in a window."""

    read: int = 0
    bad: int = 0
    late: int = 0
    failed: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.read + other.read,
            self.bad + other.bad,
            self.late + other.late,
            self.failed + other.failed,
        )
