"""Counts as users write them, in records and bytes, and lengths of time as they are said."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Literal, NamedTuple

import numpy as np

from muntin.durations import SHORT, SIZES, parse_duration, size_of, whole
from muntin.model.records import Axis
from muntin.windows.calendar import DAY_US, MONDAY, Unit
from muntin.windows.spec import Units, WindowSpec

# From the beginning of the year 1 to the end of 9999, as in datetime: what has a date has one here.
FIRST_US = -62_135_596_800_000_000
LAST_US = 253_402_300_799_999_999
_CALENDAR: dict[str, tuple[Unit, int]] = {
    "day": ("day", 1),
    "week": ("day", 7),
    "month": ("month", 1),
    "quarter": ("month", 3),
    "year": ("month", 12),
}
_BYTES = {
    "GIGABYTE": 1 << 30,
    "MEGABYTE": 1 << 20,
    "KILOBYTE": 1 << 10,
    "BYTE": 1,
}
_SHORT_BYTES = {"GB": "GIGABYTE", "MB": "MEGABYTE", "KB": "KILOBYTE"}
COUNTS = "records, bytes, kilobytes, megabytes or gigabytes"


class Counted(NamedTuple):
    """What a unit counts, and how many of it."""

    axis: Literal["records", "bytes"]
    size: int


def counted(unit: str) -> Counted | None:
    """What a unit counts, or None if it is no unit of a count."""
    name = unit.upper()
    if name in ("RECORD", "RECORDS"):
        return Counted("records", 1)
    size = _BYTES.get(_SHORT_BYTES.get(name, name.removesuffix("S")))
    return Counted("bytes", size) if size is not None else None


def is_unit(word: str) -> bool:
    return counted(word) is not None or size_of(word.upper()) is not None


def parse_bytes(text: str) -> int:
    """`256MB` or `1.5 GB`: the form used on the command line; a number alone is of bytes."""
    stripped = text.strip()
    digits = len(stripped) - len(stripped.lstrip("0123456789.-"))
    unit = stripped[digits:].strip() or "bytes"
    known = counted(unit)
    if known is None or known.axis != "bytes":
        raise ValueError(f"unknown unit '{unit}'; expected bytes, KB, MB or GB")
    return whole(stripped[:digits], known.size, f"{text} is not a whole number of bytes")


def describe(us: int) -> str:
    """The shortest exact way to say a length of time."""
    for name, size in reversed(SIZES.items()):
        if us and us % size == 0:
            count = us // size
            return f"{count} {name.lower()}{'' if count == 1 else 's'}"
    return "0 seconds"


def moment(us: int) -> datetime:
    """A moment since the epoch; one that is not in Python's calendar as the nearest that is."""
    inside = min(max(us, FIRST_US), LAST_US)
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=inside)


def describe_time(us: int) -> str:
    """A moment since the epoch, UTC, as it is written in quotes; in any year that 64 bits hold."""
    try:
        return str(datetime(1970, 1, 1) + timedelta(microseconds=us))
    except OverflowError:
        return str(np.datetime64(us, "us")).replace("T", " ")


def describe_window(axis: Axis, spec: WindowSpec) -> str:
    """A kind of window as its results name it, for example `1 hour every 5 minutes`."""
    if spec.units is not None:
        return _describe_units(spec.units, spec.step)
    text = describe_extent(axis, spec.range)
    if spec.slide != spec.range:
        text += f" every {_short_extent(axis, spec.slide)}"
    if spec.step:
        text += f" cumulate {_short_extent(axis, spec.step)}"
    if spec.offset % spec.slide != (usual_offset(spec.slide) if axis.is_time else 0):
        text += f" from {_short_extent(axis, spec.offset % spec.slide)}"
    return text


def window_meant(asked: str, names: Sequence[str]) -> str | None:
    """The kind of window that is called so, or the only one of that length: `1 hour` may be
    `1 hour every 5 minutes`, and `60 minutes` is an hour.
    """
    if asked in names:
        return asked
    with suppress(ValueError):  # it may be no length of time: `1000 records`, a session
        asked = describe(parse_duration(asked))
    if asked in names:
        return asked
    slides = tuple(f"{asked} {word} " for word in ("every", "cumulate", "from", "in"))
    longer = [name for name in names if name.startswith(slides)]
    return longer[0] if asked and len(longer) == 1 else None


def usual_offset(slide: int) -> int:
    """Where windows of time start that do not say FROM: weeks on a Monday, all others in 1970."""
    return MONDAY * DAY_US if slide % SIZES["WEEK"] == 0 else 0


def _describe_units(units: Units, step: int) -> str:
    """Windows of a calendar, for example `1 month cumulate 1 day in Europe/Berlin`."""
    unit, usual = units.calendar.unit, 0
    if unit == "day":
        usual = usual_offset(units.slide * DAY_US) // DAY_US
    text = describe_count(unit, units.range)
    if units.slide != units.range:
        text += f" every {describe_count(unit, units.slide)}"
    if units.by is not None:
        text += f" cumulate {describe_count(units.by.unit, units.step)}"
    elif step:
        text += f" cumulate {describe(step)}"
    if units.offset != usual:
        text += f" from {describe_count(unit, units.offset)}"
    return text if units.calendar.zone == "UTC" else f"{text} in {units.calendar.zone}"


def describe_count(unit: Unit, count: int) -> str:
    """So many days or months, in weeks or years where they are whole ones."""
    larger, size = ("week", 7) if unit == "day" else ("year", 12)
    name, number = (larger, count // size) if count and count % size == 0 else (unit, count)
    return f"{number} {name}{'' if number == 1 else 's'}"


def in_calendar(number: str, unit: str) -> tuple[Unit, int] | None:
    """Days or months, if a unit is one of a calendar; raises ValueError if they are not whole."""
    name = unit.upper()
    known = _CALENDAR.get(SHORT.get(name, name.removesuffix("S")).lower())
    if known is None:
        return None
    kind, size = known
    return kind, whole(number, size, f"{number} {unit} is not a whole number of {kind}s")


def describe_extent(axis: Axis, size: int) -> str:
    """A length on an axis, for example `5 minutes`, `64 megabytes` or `500 of seq`."""
    if axis.is_time:
        return describe(size)
    if axis.kind == "sequence":
        return f"{size} of {describe_sequence(axis)}"
    name, unit = "record", 1
    if axis.kind == "bytes":
        name, unit = next((n.lower(), u) for n, u in _BYTES.items() if size % u == 0)
    return f"{size // unit} {name}{'' if size == unit else 's'}"


def _short_extent(axis: Axis, size: int) -> str:
    """What a sequence is of stands in the length of the window already."""
    return str(size) if axis.kind == "sequence" else describe_extent(axis, size)


def describe_sequence(axis: Axis) -> str:
    """The user's expression, without the quotes around plain names."""
    return re.sub(r'"([^\W\d]\w*)"', r"\1", axis.sql or "")


def percent(share: float) -> str:
    """A share in whole percent, where only all of it is 100 and only nothing is 0."""
    shown = round(100 * share)
    if share < 1:
        shown = min(99, shown)
    if share > 0:
        shown = max(1, shown)
    return f"{shown} %"
