"""What users are told of a stream while it runs: each thing once, or anew when it has changed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from muntin.fidelity.scoreboard import Moment, Scoreboard
from muntin.kernel.plan import brief, hasty, skipping
from muntin.model.jobs import Job
from muntin.model.streams import Stream
from muntin.units import describe
from muntin.windows.choice import Choice


class Notices:
    """Remembers what was told of one stream."""

    def __init__(self, stream: Stream, follow: bool) -> None:
        self._stream = stream
        self._follow = follow
        self._told_unseen = self._told_skipped = False
        self._unreached = ""  # why the last batch could not be fetched, if so
        self._warned: set[str] = set()  # jobs whose deadlines are too short

    def advice(self, jobs: Iterable[Job]) -> list[str]:
        """What there is to say of new jobs before they have answered."""
        slack_us = self._stream.slack_us
        told = (
            (hasty(job, slack_us) if self._follow else None, skipping(job), brief(job))
            for job in jobs
        )
        return [note for notes in told for note in notes if note is not None]

    def skipped(self) -> list[str]:
        """Tells once that something was not read because it would have come too late."""
        if self._told_skipped:
            return []
        self._told_skipped = True
        return [
            f"stream '{self._stream.name}': more is written than can be read in time; what would "
            "come too late is not read, and C² tells it as shed: give it more cores, or agents"
        ]

    def fetched(self) -> None:
        """Takes that a batch could be fetched."""
        self._unreached = ""

    def unfetched(self, reason: str) -> list[str]:
        """Tells once that a batch could not be fetched, until one can be again."""
        known, self._unreached = self._unreached, reason
        note = f"stream '{self._stream.name}': {reason}; it is asked again"
        return [note] if reason != known else []

    def unseen(self, scoreboard: Scoreboard, at: Moment) -> list[str]:
        """Tells once of sources that are declared and have not come in time."""
        unseen = [] if self._told_unseen else scoreboard.unseen(at)
        if not unseen:
            return []
        self._told_unseen = True
        known = ", ".join(sorted(scoreboard.sources)) or "none yet"
        missing = ", ".join(f"'{name}'" for name in unseen)
        message = f"stream '{self._stream.name}' has no source {missing}, which SOURCES declares"
        return [f"{message}: results count it as missing; there are: {known}"]

    def unreachable(self, jobs: Iterable[Job], least: float) -> Iterator[str]:
        """Tells once of each job whose deadline is shorter than any batch, of so many seconds."""
        for job in jobs:
            within = job.bounds.within_us
            if within is not None and within < least * 1e6 and job.name not in self._warned:
                self._warned.add(job.name)
                reachable = describe(-(-int(least * 1000) // 10) * 10_000)
                yield (
                    f"job '{job.name}': WITHIN {describe(within).upper()} is shorter than one "
                    f"batch takes here; the smallest bound that can be kept is {reachable}"
                )


def chosen(jobs: Sequence[Job], choice: Choice) -> str:
    """Tells how windows of these jobs, which are of one shape, are computed from now on."""
    names = [job.name for job in jobs]
    told = f"jobs {', '.join(names)} go" if len(names) > 1 else f"job {names[0]} goes"
    sharing = "separate state for each window" if choice.separate else "shared partials"
    return f"{told} on with {sharing}: {choice.reason}"
