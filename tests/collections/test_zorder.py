"""Z-order: one key for two coordinates, and ranges that hold a rectangle."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin.collections.zorder import ZOrder
from muntin.errors import InputError

PLANE = ZOrder(-10.0, -5.0, 10.0, 5.0, bits=6)
XS, YS = st.floats(-12, 12), st.floats(-6, 6)


def slowly(x: int, y: int, bits: int) -> int:
    """Bits of both in turn, one by one."""
    return sum(((x >> n & 1) << 2 * n) | ((y >> n & 1) << 2 * n + 1) for n in range(bits))


@given(st.integers(0, 63), st.integers(0, 63))
def test_bits_alternate(x: int, y: int) -> None:
    place = (-10.0 + (x + 0.5) * 20 / 64, -5.0 + (y + 0.5) * 10 / 64)
    assert PLANE.key(*place) == slowly(x, y, 6)


@given(st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 1))
def test_31_bits_fit(x: int, y: int) -> None:
    whole = ZOrder(0.0, 0.0, float(2**31), float(2**31), bits=31)
    assert whole.key(x + 0.5, y + 0.5) == slowly(x, y, 31)


@given(XS, XS, YS, YS, st.integers(1, 9), st.lists(st.tuples(XS, YS), max_size=20))
def test_a_cover_misses_no_place_of_its_rectangle(
    x1: float, x2: float, y1: float, y2: float, most: int, places: list[tuple[float, float]]
) -> None:
    (left, right), (bottom, top) = sorted([x1, x2]), sorted([y1, y2])
    cover = PLANE.cover(left, bottom, right, top, most)
    assert 1 <= len(cover) <= most
    assert all(lower < upper for lower, upper in cover)
    assert [each for pair in cover for each in pair] == sorted({e for p in cover for e in p})
    for x, y in [*places, (left, bottom), (right, top)]:
        if left <= x <= right and bottom <= y <= top:
            assert any(lower <= PLANE.key(x, y) < upper for lower, upper in cover)


def test_more_ranges_hold_fewer_other_places() -> None:
    box = (-9.0, -4.0, 3.0, 2.0)
    held = [sum(b - a for a, b in PLANE.cover(*box, most=most)) for most in (1, 4, 1000)]
    assert held[0] > held[1] > held[2]
    inside = PLANE.keys(np.linspace(-9, 3, 50).repeat(50), np.tile(np.linspace(-4, 2, 50), 50))
    assert held[2] == len(np.unique(inside))


def test_mistakes_are_told() -> None:
    with pytest.raises(InputError, match="is over a rectangle"):
        ZOrder(1.0, 0.0, 0.0, 1.0)
    with pytest.raises(InputError, match="a coordinate is missing"):
        PLANE.key(float("nan"), 0.0)
    with pytest.raises(InputError, match="is no rectangle"):
        PLANE.cover(1.0, 0.0, 0.0, 1.0)
