"""Lengths of time and counts as users write them, in microseconds, records and bytes."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal, DecimalException
from typing import Literal, NamedTuple

import numpy as np

from muntin.model import Axis
from muntin.windows.spec import WindowSpec

# From the beginning of the year 1 to the end of 9999, as in datetime: what has a date has one here.
FIRST_US = -62_135_596_800_000_000
LAST_US = 253_402_300_799_999_999
_UNITS = {
    "MICROSECOND": 1,
    "MILLISECOND": 1_000,
    "SECOND": 1_000_000,
    "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000,
    "DAY": 86_400_000_000,
    "WEEK": 604_800_000_000,
}
_SHORT = {
    "US": "MICROSECOND",
    "MS": "MILLISECOND",
    "S": "SECOND",
    "SEC": "SECOND",
    "SECS": "SECOND",
    "M": "MINUTE",
    "MIN": "MINUTE",
    "MINS": "MINUTE",
    "H": "HOUR",
    "HR": "HOUR",
    "HRS": "HOUR",
    "D": "DAY",
    "W": "WEEK",
}
UNITS = "microseconds, milliseconds, seconds, minutes, hours, days or weeks"
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


def microseconds(number: str, unit: str) -> int:
    """Raises ValueError, saying what was expected."""
    name = unit.upper()
    size = _size(name)
    if size is None:
        hint = "; months and years vary in length" if name[:4] in ("MONT", "YEAR") else ""
        raise ValueError(f"unknown unit '{unit}'; expected {UNITS}{hint}")
    return whole(number, size, f"{number} {unit} is not a whole number of microseconds")


def whole(number: str, size: int, otherwise: str) -> int:
    """So many times a size; raises ValueError, `otherwise`, where that is no whole number."""
    try:
        exact = Decimal(number) * size
    except DecimalException:
        raise ValueError(f"'{number}' is not a number") from None
    if exact != int(exact):
        raise ValueError(otherwise)
    return int(exact)


def _size(name: str) -> int | None:
    return _UNITS.get(_SHORT.get(name, name.removesuffix("S")))


def counted(unit: str) -> Counted | None:
    """What a unit counts, or None if it is no unit of a count."""
    name = unit.upper()
    if name in ("RECORD", "RECORDS"):
        return Counted("records", 1)
    size = _BYTES.get(_SHORT_BYTES.get(name, name.removesuffix("S")))
    return Counted("bytes", size) if size is not None else None


def is_unit(word: str) -> bool:
    return counted(word) is not None or _size(word.upper()) is not None


def parse_duration(text: str) -> int:
    """`90s`, `5 minutes` or `1.5h`: the form used on the command line."""
    stripped = text.strip()
    digits = len(stripped) - len(stripped.lstrip("0123456789.-"))
    unit = stripped[digits:].strip() or "s"
    return microseconds(stripped[:digits], unit)


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
    for name, size in reversed(_UNITS.items()):
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
    text = describe_extent(axis, spec.range)
    if spec.slide != spec.range:
        text += f" every {_short_extent(axis, spec.slide)}"
    if spec.offset % spec.slide:
        text += f" from {_short_extent(axis, spec.offset % spec.slide)}"
    return text


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
