"""Results as JSON, and their positions."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from muntin.control.told import FIRST, Position

NUMBERS = st.integers(-(1 << 62), 1 << 62)
POSITIONS = st.builds(Position, NUMBERS, NUMBERS, NUMBERS, st.integers(0, 9), st.text())


@given(POSITIONS)
def test_a_position_comes_back_from_its_text(position: Position) -> None:
    assert Position.of(str(position)) == position
    assert str(position).isascii()
    assert not set(str(position)) & set("\r\n ")
    assert FIRST < position < Position.behind(position.at_us)
    assert position < Position.behind(position.at_us) < Position.behind(position.at_us + 1)
