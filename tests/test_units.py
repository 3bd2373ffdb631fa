"""Lengths of time as they are said, and sizes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin.durations import microseconds
from muntin.units import describe, parse_bytes, window_meant

SECOND = 1_000_000


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
