"""When steps begin, and which are in a range; everything else is told."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from muntin.collections.grid import Grid, moments
from muntin.errors import InputError

GRID = Grid.of("5 minutes", "it")
NOON = GRID.start("2026-03-01 12:00")
MINUTE = 60_000_000


def test_a_step_begins_at_a_multiple_of_its_length() -> None:
    berlin = timezone(timedelta(hours=1))
    for same in (
        "2026-03-01T12:00:00Z",
        datetime(2026, 3, 1, 12),
        datetime(2026, 3, 1, 12, tzinfo=UTC),
        datetime(2026, 3, 1, 13, tzinfo=berlin),
    ):
        assert GRID.start(same) == NOON
    assert moments([NOON]) == [datetime(2026, 3, 1, 12, tzinfo=UTC)]


def test_ranges_are_half_open() -> None:
    there = [NOON, NOON + 5 * MINUTE, NOON + 15 * MINUTE]
    assert GRID.between(None, None, there) == tuple(there)
    assert GRID.between("2026-03-01 12:00", "2026-03-01 12:05", there) == (NOON,)
    assert GRID.between("2026-03-01 12:05", None, there) == tuple(there[1:])
    assert GRID.between("2026-03-01 12:05", "2026-03-01 12:15", there) == (there[1],)


@pytest.mark.parametrize(
    ("lower", "upper", "message"),
    [
        (
            "12:00",
            "12:35",
            "has steps from 2026-03-01 12:00:00 to 2026-03-01 12:30:00, and .* beyond",
        ),
        ("11:55", "12:05", "it has steps from 2026-03-01 12:00:00"),
        ("12:05", "12:05", "holds no step; the end is not part of a range"),
        ("12:10", "12:20", "no step from .*; the nearest begin at .* 12:05:00 and .* 12:25:00"),
        ("12:02", "12:20", "no step begins at .* 12:02:00, as steps take 5 minutes; .* 12:00:00"),
    ],
)
def test_ranges_outside_of_what_is_there_are_told(lower: str, upper: str, message: str) -> None:
    there = [NOON, NOON + 5 * MINUTE, NOON + 25 * MINUTE]
    with pytest.raises(InputError, match=message):
        GRID.between(f"2026-03-01 {lower}", f"2026-03-01 {upper}", there)


def test_mistakes_are_told() -> None:
    with pytest.raises(InputError, match="it has no steps; add some"):
        GRID.between(None, None, [])
    with pytest.raises(InputError, match="it: 'noon' is no time; give a datetime, or a text such"):
        GRID.start("noon")
    with pytest.raises(InputError, match="it: '7' is no time"):
        GRID.start(7)  # type: ignore[arg-type]
    with pytest.raises(
        InputError, match=r"unknown unit 'fortnights'; .* say for example '5 minutes'"
    ):
        Grid.of("2 fortnights", "it")
    with pytest.raises(InputError, match="a step takes some time, not '0 s'"):
        Grid.of("0 s", "it")
