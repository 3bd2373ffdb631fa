"""What of the logs is not read, where all of it would take longer than windows wait.

    read so far      unread                                    now
    ────────────┬──────────────────────────────┬───────────────┤
                └ would be read too late: shed └ the next pane that is read in time

Where every job has a bound, records of windows that have left are of no use to anybody, and whoever
reads them falls behind for good. So where more is written than can be read, reading goes on with
the next pane that can be made in time. What is skipped is noted as shed, in the commit of the
batch that follows. Where a job has no bound, all is read, and windows leave as they are.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from muntin.fidelity import shedding
from muntin.fidelity.losses import Unmade, joined
from muntin.fidelity.score import State
from muntin.fidelity.scoreboard import Source
from muntin.fidelity.shedding import Backlog, Speed, Wanted
from muntin.kernel.compute import Recipe

_MEASURED_SECONDS = 0.5  # of batches that each left something, which tell how fast it goes


class Skipping:
    """Decides for one stream, by how fast it was read lately while there was more to be read."""

    def __init__(self) -> None:
        self._speed = Speed()
        self._since: float | None = None  # when a batch has left something
        self._bytes = 0  # read from then on

    def read(self, size: int, remaining: int, now: float) -> None:
        """Takes that a batch is over, which has read so many bytes and left so many."""
        if not remaining:
            self._since = None
        elif self._since is None:
            self._since, self._bytes = now, 0
        else:
            self._bytes += size
            if now - self._since >= _MEASURED_SECONDS:
                self._speed.take(self._bytes, now - self._since, {})
                self._since, self._bytes = now, 0

    def begin(self, backlog: Backlog, recipes: Sequence[Recipe]) -> int | None:
        """Where to go on reading, if that is not where it has come to."""
        if any(recipe.useful is None for recipe in recipes):
            return None
        wanted = {r.shape.id: Wanted(r.shape.pane, r.useful) for r in recipes if r.useful}
        ends, unread = shedding.plan(backlog, self._speed, wanted, others=False)
        return min(ends.values()) if unread else None


def note_skipped(
    sources: Mapping[str, Source],
    behind: Collection[str],
    recipes: Sequence[Recipe],
    begin: int,
    slack_us: int,
) -> None:
    """Notes of sources that are behind what they will not give: all before a position."""
    for name in behind:
        source = sources[name]
        lower = begin if source.time is None else source.time - slack_us
        new = [Unmade(r.shape.id, lower, begin, State.SHED) for r in recipes if lower < begin]
        source.unmade = joined((*source.unmade, *new))
