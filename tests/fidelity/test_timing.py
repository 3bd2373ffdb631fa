"""Lags in buckets: never told lower than they were, and at most 2 % higher."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from muntin.fidelity.timing import Timing


@given(lags=st.lists(st.integers(0, 10**9), min_size=1), share=st.sampled_from([0.5, 0.99, 1.0]))
def test_a_lag_is_that_of_so_many_windows(lags: list[int], share: float) -> None:
    timing = Timing()
    for lag in lags:
        timing.add(1.0, lag, None)
    exact = sorted(lags)[math.ceil(share * len(lags)) - 1]
    told = timing.lag_us(share)
    assert told is not None
    assert exact <= told + 1 <= max(1_000, 1.02 * exact) + 2


def test_windows_without_a_lag_count_as_windows_only() -> None:
    timing = Timing()
    timing.add(0.5, None, 1_000_000)
    timing.add(1.0, 1_000_000, 1_000_000)
    timing.add(1.0, 1_000_001, 1_000_000)
    assert (timing.windows, timing.misses, timing.mean_area) == (3, 1, 2.5 / 3)
    assert sum(timing.lags.values()) == 2


def test_nothing_has_left_yet() -> None:
    assert (Timing().mean_area, Timing().lag_us(0.5)) == (1.0, None)
