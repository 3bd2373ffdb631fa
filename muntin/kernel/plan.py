"""What runs for a job, and where: the value that `explain` prints and that runners go by.

An operator is one operation between records and results. Where an operator's SQL is given, that
statement is what runs: both are made by the same function of the job's kind. Statements differ in
one point from those of a run that has late records, which also compare each record with its mark.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from muntin.kernel.kinds import kind_of
from muntin.kernel.kinds.kind import Operator
from muntin.kernel.statements import Windows
from muntin.model.jobs import Job
from muntin.model.shapes import Shape
from muntin.units import describe, describe_window
from muntin.windows.choice import Choice
from muntin.windows.spec import WindowSpec


class Sharing(StrEnum):
    """Where partials of windows come from."""

    SHARED = "shared partials"
    SEPARATE = "separate state for each window"


@dataclass(frozen=True)
class Plan:
    """One job as it runs from here on. Sharing and algorithms may be others with the next batch."""

    job: Job
    sharing: Sharing
    reason: str
    operators: tuple[Operator, ...]

    @property
    def shape(self) -> Shape:
        return self.job.shape

    def algorithm(self, spec: WindowSpec) -> str:
        """How windows of one kind are made of panes, in words."""
        return kind_of(self.shape).algorithm(spec)


def hasty(job: Job, slack_us: int | None) -> str | None:
    """What there is to say of a job whose windows have to leave before they can be complete."""
    within = job.bounds.within_us
    if within is None or slack_us is None or within >= slack_us:
        return None
    bound, slack = describe(within).upper(), describe(slack_us).upper()
    return (
        f"job '{job.name}': WITHIN {bound} is shorter than SLACK {slack} of stream '{job.stream}', "
        f"for which sources are waited for after a window's end: so windows leave at their "
        f"deadline, incomplete; say WITHIN {slack} or more, or less SLACK"
    )


def skipping(job: Job) -> str | None:
    """What there is to say of a job of which no window holds some records."""
    if not job.windows or not all(spec.leaves_out for spec in job.windows):
        return None
    names = ", ".join(describe_window(job.shape.axis, spec) for spec in job.windows)
    return (
        f"job '{job.name}': its windows, {names}, start further apart than they are long; records "
        f"that lie between two of them are in none, and are not counted as late"
    )


def brief(job: Job) -> str | None:
    """What there is to say of a job whose panes are kept for less than a window is long."""
    longest = max((spec.range for spec in job.windows), default=0)
    if job.retain_us is None or job.is_keeper or job.retain_us >= longest:
        return None
    return (
        f"job '{job.name}': RETAIN {describe(job.retain_us).upper()} is shorter than its windows, "
        "so no question can be about a range as long as one of them"
    )


def plan_of(job: Job, windows: Windows, choice: Choice | None = None) -> Plan:
    """The plan of a job whose shape serves these windows, of the job and of others.

    `choice` is what was decided while running; without one, what a run begins with.
    """
    kind = kind_of(job.shape)
    decided = choice or Choice(reason="decided anew while running, by what is measured")
    if (shared := kind.always_shared(windows)) is not None:
        decided = Choice(False, shared)
    sharing = Sharing.SEPARATE if decided.separate else Sharing.SHARED
    operators = tuple(kind.operators(job, windows, decided.separate))
    return Plan(job, sharing, decided.reason, operators)
