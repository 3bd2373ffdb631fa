"""How late results come, in few numbers: counts of windows, and of lags in buckets 2 % wide."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field

from muntin.fidelity.score import C2, Reason, State, word

_SHED = word(State.SHED)
_WIDTH = math.log(1.02)
_LEAST_US = 1_000


@dataclass
class Timing:
    """The windows of one job that have left: how many, how complete, how long after their end.

    Lags are those of windows whose deadline, or end, came during a run. A window that leaves
    before its end has a lag of zero.
    """

    windows: int = 0
    area: float = 0.0  # of all windows together
    misses: int = 0
    within_us: int | None = None  # the bound they had last
    lags: dict[int, int] = field(default_factory=dict)  # bucket -> windows
    shed: int = 0  # windows of these that were not answered
    seconds: float = 0.0  # that answering took
    thinned: int = 0  # windows of these that lack panes which were shed
    computing: float = 0.0  # seconds that its records took, where jobs share them its part

    def leave(self, c2: C2, lag_us: int | None, within_us: int | None) -> None:
        """Takes a window with its score; what was not answered has no lag."""
        if c2.reason is Reason.SHED:
            self.shed += 1
            lag_us = None
        elif c2.missing:
            self.thinned += any(missing.why.startswith(_SHED) for missing in c2.missing)
        self.add(c2.area, lag_us, within_us)

    def add(self, area: float, lag_us: int | None, within_us: int | None) -> None:
        """Takes a window, with its lag where that is of interest."""
        self.windows += 1
        self.within_us = within_us
        self.area += area
        if lag_us is None:
            return
        bucket = max(0, math.ceil(math.log(max(1, lag_us) / _LEAST_US) / _WIDTH))
        self.lags[bucket] = self.lags.get(bucket, 0) + 1
        self.misses += within_us is not None and lag_us > within_us

    def plus(self, other: Timing) -> Timing:
        """Of the windows of both; the bound is that of the other, if it has any windows."""
        return Timing(
            self.windows + other.windows,
            self.area + other.area,
            self.misses + other.misses,
            other.within_us if other.windows else self.within_us,
            dict(Counter(self.lags) + Counter(other.lags)),
            self.shed + other.shed,
            self.seconds + other.seconds,
            self.thinned + other.thinned,
            self.computing + other.computing,
        )

    @property
    def mean_seconds(self) -> float | None:
        """What answering a window took, of those that were answered."""
        answered = self.windows - self.shed
        return self.seconds / answered if answered else None

    @property
    def mean_area(self) -> float:
        return self.area / self.windows if self.windows else 1.0

    def lag_us(self, share: float) -> int | None:
        """The lag that so many windows have at most, up to 2 % too high."""
        left = math.ceil(share * sum(self.lags.values()))
        for bucket, count in sorted(self.lags.items()):
            left -= count
            if left <= 0:
                return round(_LEAST_US * math.exp(bucket * _WIDTH)) if bucket else _LEAST_US
        return None
