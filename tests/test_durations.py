"""Lengths of time as they are written, and as options have them."""

from __future__ import annotations

import pytest

from muntin.durations import microseconds, microseconds_of, parse_duration, seconds_of
from muntin.errors import InputError

SECOND = 1_000_000


@pytest.mark.parametrize(
    ("number", "unit", "expected"),
    [
        ("1", "MICROSECOND", 1),
        ("2", "us", 2),
        ("3", "milliseconds", 3_000),
        ("4", "ms", 4_000),
        ("5", "Seconds", 5 * SECOND),
        ("5", "s", 5 * SECOND),
        ("6", "sec", 6 * SECOND),
        ("6", "secs", 6 * SECOND),
        ("1", "MINUTE", 60 * SECOND),
        ("2", "min", 120 * SECOND),
        ("2", "m", 120 * SECOND),
        ("2", "mins", 120 * SECOND),
        ("1", "hours", 3600 * SECOND),
        ("2", "hrs", 7200 * SECOND),
        ("1", "h", 3600 * SECOND),
        ("1", "day", 86_400 * SECOND),
        ("2", "d", 172_800 * SECOND),
        ("1", "weeks", 604_800 * SECOND),
        ("1", "w", 604_800 * SECOND),
        ("1.5", "SECONDS", 1_500_000),
        ("1e3", "ms", SECOND),
        ("-2", "SECONDS", -2 * SECOND),
        ("0", "DAYS", 0),
    ],
)
def test_a_number_and_a_unit(number: str, unit: str, expected: int) -> None:
    assert microseconds(number, unit) == expected


@pytest.mark.parametrize(
    ("number", "unit", "message"),
    [
        ("5", "parsecs", "unknown unit 'parsecs'; expected microseconds, .* or weeks$"),
        ("5", "MONTHS", "unknown unit 'MONTHS'; .*; months and years vary in length"),
        ("5", "year", "unknown unit 'year'; .*; months and years vary in length"),
        ("0.5", "us", "0.5 us is not a whole number of microseconds"),
        ("five", "seconds", "'five' is not a number"),
        ("1.2.3", "seconds", "'1.2.3' is not a number"),
    ],
)
def test_what_is_no_length_of_time(number: str, unit: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        microseconds(number, unit)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90s", 90 * SECOND),
        ("90", 90 * SECOND),
        (" 5 minutes ", 300 * SECOND),
        ("1.5h", 5400 * SECOND),
        ("250ms", 250_000),
    ],
)
def test_the_form_of_the_command_line(text: str, expected: int) -> None:
    assert parse_duration(text) == expected


@pytest.mark.parametrize("text", ["", "soon", "5 x", "1-2s"])
def test_what_the_command_line_refuses(text: str) -> None:
    with pytest.raises(ValueError, match=r"unknown unit|is not a number"):
        parse_duration(text)


def test_durations_are_read_as_on_the_command_line() -> None:
    assert (microseconds_of("1500ms", "slack"), seconds_of("2m", "idle")) == (1_500_000, 120.0)


@pytest.mark.parametrize("text", ["0s", "x", "", "3 parsecs"])
def test_an_option_that_is_no_duration_is_named(text: str) -> None:
    with pytest.raises(InputError, match=r"^idle"):
        seconds_of(text, "idle")
