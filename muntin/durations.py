"""Lengths of time as users write them, in microseconds.

Loads next to nothing: options are refused before anything is begun.
"""

from __future__ import annotations

from decimal import Decimal, DecimalException

from muntin.errors import InputError

SIZES = {
    "MICROSECOND": 1,
    "MILLISECOND": 1_000,
    "SECOND": 1_000_000,
    "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000,
    "DAY": 86_400_000_000,
    "WEEK": 604_800_000_000,
}
SHORT = {
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
    size = size_of(name)
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


def size_of(name: str) -> int | None:
    """The microseconds of a unit, whose name is in capitals; None if there is none."""
    return SIZES.get(SHORT.get(name, name.removesuffix("S")))


def parse_duration(text: str) -> int:
    """`90s`, `5 minutes` or `1.5h`: the form used on the command line."""
    stripped = text.strip()
    digits = len(stripped) - len(stripped.lstrip("0123456789.-"))
    unit = stripped[digits:].strip() or "s"
    return microseconds(stripped[:digits], unit)


def seconds_of(text: str, option: str) -> float:
    """A duration that says how long to do or to await something, which must not be zero."""
    microseconds = microseconds_of(text, option)
    if microseconds <= 0:
        raise InputError(f"{option} must be longer than 0 seconds, not {text}")
    return microseconds / 1e6


def microseconds_of(text: str, option: str) -> int:
    """A duration that was given as an option."""
    try:
        return parse_duration(text)
    except ValueError as error:
        raise InputError(f"{option} {text}: {error}") from error
