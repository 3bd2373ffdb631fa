"""Lengths of time as users write them, in microseconds."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation

from muntin.model import Axis
from muntin.windows.spec import WindowSpec

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


def microseconds(number: str, unit: str) -> int:
    """Raises ValueError, saying what was expected."""
    name = unit.upper()
    size = _UNITS.get(_SHORT.get(name, name.removesuffix("S")))
    if size is None:
        hint = "; months and years vary in length" if name[:4] in ("MONT", "YEAR") else ""
        raise ValueError(f"unknown unit '{unit}'; expected {UNITS}{hint}")
    try:
        exact = Decimal(number) * size
    except InvalidOperation:
        raise ValueError(f"'{number}' is not a number") from None
    if exact != int(exact):
        raise ValueError(f"{number} {unit} is not a whole number of microseconds")
    return int(exact)


def parse_duration(text: str) -> int:
    """`90s`, `5 minutes` or `1.5h`: the form used on the command line."""
    stripped = text.strip()
    digits = len(stripped) - len(stripped.lstrip("0123456789.-"))
    unit = stripped[digits:].strip() or "s"
    return microseconds(stripped[:digits], unit)


def describe(us: int) -> str:
    """The shortest exact way to say a length of time."""
    for name, size in reversed(_UNITS.items()):
        if us and us % size == 0:
            count = us // size
            return f"{count} {name.lower()}{'' if count == 1 else 's'}"
    return "0 seconds"


def describe_window(axis: Axis, spec: WindowSpec) -> str:
    """A kind of window as its results name it, for example `1 hour every 5 minutes`."""
    text = describe_extent(axis, spec.range)
    if spec.slide != spec.range:
        text += f" every {describe_extent(axis, spec.slide)}"
    if spec.offset % spec.slide:
        text += f" from {describe_extent(axis, spec.offset % spec.slide)}"
    return text


def describe_extent(axis: Axis, size: int) -> str:
    """A length on an axis, for example `5 minutes`, `64 megabytes` or `500 of seq`."""
    if axis.is_time:
        return describe(size)
    if axis.kind == "sequence":
        return f"{size} of {axis.sql}"
    for name, unit in (("gigabyte", 1 << 30), ("megabyte", 1 << 20), ("kilobyte", 1 << 10)):
        if axis.kind == "bytes" and size % unit == 0:
            size, kind = size // unit, name
            break
    else:
        kind = axis.kind.removesuffix("s")
    return f"{size} {kind}{'' if size == 1 else 's'}"
