"""Lengths of time, as they are written and as they are said."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin.units import describe, microseconds, parse_bytes, parse_duration, window_meant

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


@pytest.mark.parametrize(
    ("us", "words"),
    [
        (0, "0 seconds"),
        (1, "1 microsecond"),
        (1_500, "1500 microseconds"),
        (1_500_000, "1500 milliseconds"),
        (SECOND, "1 second"),
        (90 * SECOND, "90 seconds"),
        (3600 * SECOND, "1 hour"),
        (36 * 3600 * SECOND, "36 hours"),
        (7 * 86_400 * SECOND, "1 week"),
    ],
)
def test_the_shortest_exact_words(us: int, words: str) -> None:
    assert describe(us) == words


@given(st.integers(1, 10**17))
def test_words_mean_what_they_describe(us: int) -> None:
    number, unit = describe(us).split()
    assert microseconds(number, unit) == us


@pytest.mark.parametrize(
    ("text", "size"),
    [("256MB", 256 << 20), ("1.5 GB", 3 << 29), ("1000", 1000), ("2 kilobytes", 2048)],
)
def test_bytes_on_the_command_line(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "MB", "5 records", "5 minutes", "0.3 bytes"])
def test_what_is_no_number_of_bytes_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected bytes|not a"):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("asked", "names", "meant"),
    [
        ("1 hour", ["1 hour"], "1 hour"),
        ("1 hour", ["1 minute", "1 hour every 5 minutes"], "1 hour every 5 minutes"),
        ("1 hour", ["1 hour every 5 minutes", "1 hour"], "1 hour"),
        ("1 hour", ["1 hour every 5 minutes", "1 hour every 10 minutes"], None),
        ("1 hour", ["11 hours"], None),
        ("60 MINUTES", ["1 minute", "1 hour every 5 minutes"], "1 hour every 5 minutes"),
        ("3600s", ["1 hour"], "1 hour"),
        ("10 records", ["10 seconds"], None),
        ("", ["1 hour"], None),
    ],
)
def test_a_window_is_meant_by_its_name_or_its_length(
    asked: str, names: list[str], meant: str | None
) -> None:
    assert window_meant(asked, names) == meant
