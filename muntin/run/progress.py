"""All that has to survive a restart, besides the blocks."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import chain
from secrets import token_hex

from muntin.fidelity.score import NEVER
from muntin.fidelity.scoreboard import Source
from muntin.fidelity.timing import Timing
from muntin.model import TIME
from muntin.run.failures import Failures
from muntin.windows.choice import Choice
from muntin.windows.ledger import Ledger

SESSION = "session"  # the kind of window that sessions are
GONE_SECONDS = 3600.0  # after which a source whose files are gone is not expected back
JobKind = tuple[str, str]  # a job, and one kind of its windows


@dataclass
class Lateness:
    """Late records of one job, and the slack that would have kept them all."""

    records: int = 0
    slack_us: int = 0


@dataclass(frozen=True)
class Leaving:
    """How often a window has left before, and why it did first."""

    revision: int
    reason: str


@dataclass
class Progress:
    sources: dict[str, Source] = field(default_factory=dict)
    emitted: dict[JobKind, int] = field(default_factory=dict)
    """Where the last window of a job and kind ended, as a position."""
    began: dict[JobKind, int] = field(default_factory=dict)
    """Where windows end that a job does not answer for, as it was added or changed later."""
    left: dict[JobKind, dict[int, Leaving]] = field(default_factory=dict)
    """The newest windows of jobs with bounds that have left, by the position where they end."""
    left_at: float = 0.0  # when the last windows have left
    ledger: Ledger = field(default_factory=Ledger)
    late: dict[str, Lateness] = field(default_factory=dict)
    timings: dict[str, Timing] = field(default_factory=dict)
    choices: dict[str, Choice] = field(default_factory=dict)
    frame_batch: int = -1  # the last of an attached DataFrame, by Spark's count
    records: int = 0
    bad: int = 0
    bytes: int = 0
    windows: int = 0
    failures: Failures = field(default_factory=Failures)
    pipeline: str = field(default_factory=lambda: token_hex(8))
    """A name for this state, by which agents know whom they have counted for."""
    released: int = 0
    """The largest number of a delivery of sources that were let go: if one returns, it goes on."""

    def forget_jobs(self, jobs: Collection[str]) -> None:
        """Drops what is known of other jobs than these."""
        for known in (self.emitted, self.began, self.left):
            for kind in [kind for kind in known if kind[0] not in jobs]:
                del known[kind]
        failures = self.failures
        of_failures = (failures.positions, failures.dropped, failures.totals, failures.texts)
        of_jobs = (self.late, self.timings, *of_failures)
        for job in {*chain.from_iterable(of_jobs)} - {*jobs}:
            for by_job in of_jobs:
                by_job.pop(job, None)

    def let_go(self, needed: Mapping[str, int], now: float) -> None:
        """Drops sources that are gone for good: long ago, and no window to come has their panes.

        `needed` says from which position on each axis something is. A source that counts its own
        records is kept: if it came back, it would have to go on counting. What was lost of the
        others goes as well once no window has it.
        """
        for source in self.sources.values():
            source.lost = tuple(loss for loss in source.lost if loss.is_needed(needed))
            oldest = min(needed.values(), default=NEVER)
            source.unmade = tuple(each for each in source.unmade if each.upper > oldest)
        for name in [n for n, s in self.sources.items() if s.ended and _is_over(s, needed, now)]:
            self.released = max(self.released, self.sources.pop(name).sequence)


def _is_over(source: Source, needed: Mapping[str, int], now: float) -> bool:
    heard = max(now if source.heard_at is None else source.heard_at, source.touched_at)
    return now - heard > GONE_SECONDS and all(
        axis == TIME.column and reached < needed.get(axis, reached)
        for axis, reached in source.reached.items()
    )
