"""Days and months against the clocks of their zone, as zoneinfo has them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin.windows.calendar import DAY_US, Calendar, Unit, grain

ZONES = ["Europe/Berlin", "America/New_York", "America/Sao_Paulo", "Asia/Kolkata", "Asia/Beirut",
         "Australia/Lord_Howe", "Africa/Casablanca", "Pacific/Chatham", "UTC"]  # fmt: skip
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
moments = st.integers(63_072_000, 4_000_000_000)  # from 1972 on, in seconds


@given(zone=st.sampled_from(ZONES), unit=st.sampled_from(["day", "month"]), moment=moments)
def test_a_moment_lies_in_the_day_or_month_that_clocks_show(
    zone: str, unit: Unit, moment: int
) -> None:
    calendar = Calendar(unit, zone)
    number = calendar.number(moment * 1_000_000)
    shown = (EPOCH + timedelta(seconds=moment)).astimezone(ZoneInfo(zone))
    wanted = (shown.date() - EPOCH.date()).days
    assert number == (wanted if unit == "day" else 12 * (shown.year - 1970) + shown.month - 1)
    assert calendar.at(number) <= moment * 1_000_000 < calendar.at(number + 1)
    assert calendar.at(number) % grain(zone) == 0


@given(zone=st.sampled_from([*ZONES, "Pacific/Apia"]), us=st.integers(-(1 << 62), 1 << 62))
def test_there_is_one_for_every_moment_of_64_bits(zone: str, us: int) -> None:
    for unit in ("day", "month"):
        calendar = Calendar(unit, zone)
        number = calendar.number(us)
        assert calendar.at(number) <= us < calendar.at(number + 1)


@pytest.mark.parametrize(
    ("zone", "minutes"), [("UTC", 1440), ("Europe/Berlin", 60), ("Asia/Kolkata", 30),
                          ("Asia/Tokyo", 180), ("Pacific/Chatham", 15)],
)  # fmt: skip
def test_grain_fits_all_offsets(zone: str, minutes: int) -> None:
    assert grain(zone) == minutes * 60_000_000


def test_a_day_that_is_skipped_has_no_moment() -> None:
    """Samoa went from the 29th of December 2011 to the 31st."""
    calendar = Calendar("day", "Pacific/Apia")
    skipped = (datetime(2011, 12, 30) - datetime(1970, 1, 1)).days
    assert calendar.at(skipped) == calendar.at(skipped + 1)
    assert calendar.number(calendar.at(skipped)) == skipped + 1
    assert calendar.at(skipped + 2) - calendar.at(skipped + 1) == DAY_US
