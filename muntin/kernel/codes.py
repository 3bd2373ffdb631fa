"""Numbers that stand for groups of rows, from zero on, without sorting where that can be."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]


def compact(codes: Numbers, count: int) -> tuple[Numbers, int]:
    """Codes below `count` in the same order, without those that nothing has; and how many."""
    if count > 16 * len(codes) + 1024:
        values, codes = np.unique(codes, return_inverse=True)
        return codes, len(values)
    seen = np.zeros(count, np.int64)
    seen[codes] = 1
    places = np.cumsum(seen) - 1
    return places[codes], int(places[-1]) + 1 if count else 0


def first_rows(codes: Numbers, count: int) -> Numbers:
    """The first row that has each of so many codes."""
    first = np.zeros(count, np.int64)
    first[codes[::-1]] = np.arange(len(codes))[::-1]
    return first
