"""How long answers of jobs take here, and when one may hold up other jobs.

Jobs of a stream are answered by one loop. An answer that is over before anybody else has to set
off costs nobody anything. One that is not holds others up, whenever it is made; so all of these
together get a small share of the time, and whoever waited longest comes first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from statistics import median_low

NEGLIGIBLE = 0.05  # seconds that an answer may always take
_SAFE = 0.5  # how much of the time that is left may be planned with
SHARE = 0.03  # of the time, for answers that hold others up
_LAST = 3  # answers that tell what the next one takes: of one that was slow, nobody is to blame


class Shares:
    """What is measured of the answers of one stream's jobs."""

    def __init__(self) -> None:
        self._last: dict[str, deque[float]] = {}  # by job, seconds a window
        self._answered_at: dict[str, float] = {}
        self.free_at = 0.0  # from when on an answer may hold others up

    def seconds(self, job: str) -> float:
        """What one window of a job takes; no time as long as that is not known."""
        last = self._last.get(job)
        return median_low(last) if last else 0.0

    def waited_since(self, job: str) -> float:
        """When a job had its last answer that took any time."""
        return self._answered_at.get(job, 0.0)

    def take(self, now: float, windows: Mapping[str, int], seconds: Mapping[str, float]) -> float:
        """Takes what an answer took, of each job for so many windows.

        Returns how much of that was of jobs whose answers take long.
        """
        dear = 0.0
        for job, took in seconds.items():
            each = took / max(1, windows.get(job, 1))
            self._last.setdefault(job, deque(maxlen=_LAST)).append(each)
            if took > NEGLIGIBLE:
                self._answered_at[job] = now
                dear += took
        return dear

    def hold_up(self, now: float, seconds: float) -> None:
        """Takes that others were held up for so long: that is paid for by waiting."""
        self.free_at = now + seconds / SHARE

    def keep(self, jobs: Mapping[str, object]) -> None:
        """Forgets all jobs but these."""
        for job in self._last.keys() - jobs.keys():
            del self._last[job]
            self._answered_at.pop(job, None)


def fitting(room: float | None, each: float) -> int | None:
    """How many windows that take so long fit into the time there is; None: any number."""
    if room is None or each <= 0:
        return None
    return max(0, int(_SAFE * room / each))
