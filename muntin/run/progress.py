"""All that has to survive a restart, besides the blocks."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import chain
from secrets import token_hex
from typing import Any

from muntin.fidelity.score import NEVER
from muntin.fidelity.scoreboard import Source
from muntin.fidelity.timing import Timing
from muntin.model.jobs import VERSIONED
from muntin.model.records import TIME
from muntin.model.tables import TableVersion
from muntin.run.failures import Failures
from muntin.run.past import Past
from muntin.run.previous import Kept
from muntin.schedule.recovery import Recovery
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
    """How often a window has left before, and why it did first.

    `shown` is how often it was shown while it was open, which counts as having left.
    """

    revision: int
    reason: str
    shown: int = 0


@dataclass(frozen=True)
class Shown:
    """How often a window was shown while it is open, and what tells its rows from others."""

    times: int
    digest: str


@dataclass
class Progress:
    sources: dict[str, Source] = field(default_factory=dict)
    emitted: dict[JobKind, int] = field(default_factory=dict)
    """Where the last window of a job and kind ended, as a position."""
    began: dict[JobKind, int] = field(default_factory=dict)
    """Where windows end that a job does not answer for, as it was added or changed later."""
    left: dict[JobKind, dict[int, Leaving]] = field(default_factory=dict)
    """The newest windows of jobs with bounds that have left, by the position where they end."""
    shown: dict[JobKind, dict[int, Shown]] = field(default_factory=dict)
    """Windows of jobs with EMIT CHANGES that are open, by the position where they end."""
    previous: dict[JobKind, Kept] = field(default_factory=dict)
    """The last results of jobs that look back at them."""
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
    tables: dict[str, tuple[TableVersion, ...]] = field(default_factory=dict)
    """What the files of joined tables have held, as far as windows to come are made with it."""
    past: dict[str, Past] = field(default_factory=dict)
    """By shape, what is known of panes that are kept for questions."""
    recovery: Recovery = field(default_factory=Recovery)
    released: int = 0
    """The largest number of a delivery of sources that were let go: if one returns, it goes on."""

    def forget_jobs(self, jobs: Collection[str]) -> None:
        """Drops what is known of other jobs than these."""
        for kinds in (self.emitted, self.began, self.left, self.shown, self.previous):
            for kind in [kind for kind in kinds if kind[0] not in jobs]:
                del kinds[kind]
        failures = self.failures
        of_failures = (failures.positions, failures.dropped, failures.totals, failures.texts)
        of_jobs = (self.late, self.timings, *of_failures)
        known = {*jobs, *(job.partition(VERSIONED)[0] for job in jobs)}
        for job in {*chain.from_iterable(of_jobs)} - known:
            for by_job in of_jobs:
                by_job.pop(job, None)

    def rename(self, name: str, now: str) -> None:
        """Takes that a job goes on under another name; what it was in all stays with the name."""
        for known in (self.emitted, self.began, self.left, self.shown, self.previous):
            of_kinds: dict[JobKind, Any] = known
            for kind in [kind for kind in of_kinds if kind[0] == name]:
                of_kinds[now, kind[1]] = of_kinds.pop(kind)
        self.failures.rename(name, now)

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
