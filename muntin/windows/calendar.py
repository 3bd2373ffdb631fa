"""Days and months by the clocks of a time zone: where each begins, in microseconds UTC.

They are numbered as days and months since 1970-01-01 are. One begins when the clocks there first
show its midnight or, where that is skipped, when they are put forward over it. So a day may have 23
or 25 hours, and follows the one before it without a gap.

All begin at multiples of the zone's grain, the largest pane that fits each of its offsets since
1972. Until then some had odd seconds, and what began there begins up to a grain earlier here.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from math import gcd
from typing import Literal
from zoneinfo import ZoneInfo

import numpy as np

Unit = Literal["day", "month"]

DAY_US = 86_400_000_000
MONDAY = 4  # the number of the first one
_EPOCH = datetime(1970, 1, 1)
_US = timedelta(microseconds=1)
# Zones are asked about these years only; before and after, clocks show UTC.
_FIRST_US = (datetime(2, 1, 1) - _EPOCH) // _US
_LAST_US = (datetime(9999, 1, 1) - _EPOCH) // _US


@dataclass(frozen=True)
class Calendar:
    """The days or months of one zone."""

    unit: Unit
    zone: str

    def at(self, number: int) -> int:
        """Where one begins."""
        return _begin(self.unit, self.zone, number)

    def number(self, us: int) -> int:
        """The one that a moment lies in."""
        local = _local(self.zone, us)
        found = local // DAY_US if self.unit == "day" else _month(local)
        while self.at(found) > us:
            found -= 1
        while self.at(found + 1) <= us:  # clocks were put back over midnight, or the day is skipped
            found += 1
        return found


@lru_cache
def grain(zone: str) -> int:
    """The longest stretch of time that divides all days of a zone since 1972, and what is between.

    Raises ValueError or ZoneInfoNotFoundError if there is no such zone.
    """
    info = ZoneInfo(zone)
    weeks = (datetime(1972, 2, 1, tzinfo=UTC) + timedelta(weeks=n) for n in range(6_700))
    offsets = {week.astimezone(info).utcoffset() or timedelta() for week in weeks}
    return gcd(DAY_US, *(offset // _US for offset in offsets))


@lru_cache(maxsize=1 << 16)
def _begin(unit: Unit, zone: str, number: int) -> int:
    local = number * DAY_US if unit == "day" else _month_begin(number)
    if zone == "UTC" or not _FIRST_US <= local < _LAST_US:
        return local
    begin = (_EPOCH + local * _US).replace(tzinfo=ZoneInfo(zone)).astimezone(UTC)
    us = (begin.replace(tzinfo=None) - _EPOCH) // _US
    return us // grain(zone) * grain(zone)


def _local(zone: str, us: int) -> int:
    """What clocks show at a moment, as if it were UTC."""
    if zone == "UTC" or not _FIRST_US <= us < _LAST_US:
        return us
    shown = (_EPOCH + us * _US).replace(tzinfo=UTC).astimezone(ZoneInfo(zone))
    return (shown.replace(tzinfo=None) - _EPOCH) // _US


def _month(us: int) -> int:
    return int(np.datetime64(us, "us").astype("M8[M]").astype(np.int64))


def _month_begin(number: int) -> int:
    return int(np.datetime64(number, "M").astype("M8[us]").astype(np.int64))
