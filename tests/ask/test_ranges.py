"""Ranges are found in the text of a question, and what is BETWEEN by itself stays."""

from __future__ import annotations

import pytest

from muntin.ask.ranges import positions_of, taken_apart
from muntin.errors import LanguageError

HOUR = 3_600_000_000
DAY = 24 * HOUR


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("SELECT a FROM j BETWEEN '1:00' AND '2:00' AS x", "SELECT a FROM j AS x"),
        ("SELECT a FROM j GROUP BY a BETWEEN '1:00' AND '2:00' LIMIT 3",
         "SELECT a FROM j GROUP BY a LIMIT 3"),
        ("SELECT a FROM j WHERE k IN (1, 2) BETWEEN '1:00' AND '2:00'",
         "SELECT a FROM j WHERE k IN (1, 2)"),
        ("SELECT a FROM j WHERE k = 'x' BETWEEN '1:00' AND '2:00'",
         "SELECT a FROM j WHERE k = 'x'"),
        ("SELECT a FROM j WHERE k BETWEEN 'a' AND 'b'",
         "SELECT a FROM j WHERE k BETWEEN 'a' AND 'b'"),
        ("SELECT a FROM j WHERE f(k) BETWEEN 'a' AND 'b'",
         "SELECT a FROM j WHERE f(k) BETWEEN 'a' AND 'b'"),
        ("SELECT a FROM j WHERE k NOT BETWEEN 'a' AND 'b'",
         "SELECT a FROM j WHERE k NOT BETWEEN 'a' AND 'b'"),
        ("SELECT a BETWEEN 'a' AND 'b' FROM j", "SELECT a BETWEEN 'a' AND 'b' FROM j"),
        ("SELECT a FROM j LAST 2 HOURS", "SELECT a FROM j"),
        ("SELECT a FROM j LAST 2 HOURS 1 DAY AGO AS x", "SELECT a FROM j AS x"),
        ("SELECT last FROM j", "SELECT last FROM j"),
    ],
)  # fmt: skip
def test_what_is_a_range(text: str, rest: str) -> None:
    found = taken_apart(text)
    assert " ".join(found.text.split()) == rest
    assert len(found.text) == len(text)


def test_ranges_belong_to_the_nearest_job() -> None:
    text = (
        "SELECT * FROM a BETWEEN '1:00' AND '2:00' JOIN b USING (k) WHERE k = 1 LAST 1 HOUR "
        "UNION ALL SELECT * FROM (SELECT x FROM c LAST 3 HOURS)"
    )
    found = taken_apart(text)
    a, b, c = (text.index(f" {name} ") + 1 for name in "abc")
    first, second, third = (found.of(at, at + 1) for at in (a, b, c))
    assert first is not None
    assert first.bounds == ("1:00", "2:00")
    assert second is not None
    assert second.last_us == HOUR
    assert third is not None
    assert third.last_us == 3 * HOUR


def test_a_range_may_follow_what_a_job_is_called() -> None:
    found = taken_apart("SELECT a FROM j VERSION 2 AS x LAST 1 HOUR")
    asked = found.of(14, 15, 30)
    assert asked is not None
    assert (asked.version, asked.last_us) == (2, HOUR)


@pytest.mark.parametrize(
    ("range_", "start", "end"),
    [
        ("BETWEEN '10:00' AND '11:30'", 5 * DAY + 10 * HOUR, 5 * DAY + 11.5 * HOUR),
        ("BETWEEN '9:00' AND '09:00:01.5'", 5 * DAY + 9 * HOUR, 5 * DAY + 9 * HOUR + 1_500_000),
        ("BETWEEN 'yesterday 10:00' AND 'today'", 4 * DAY + 10 * HOUR, 5 * DAY),
        ("BETWEEN 'yesterday' AND '24:00'", 4 * DAY, 6 * DAY),
        ("BETWEEN '1970-01-03' AND '1970-01-03T01:00+01:00'", 2 * DAY, 2 * DAY),
        ("LAST 90 MINUTES", 5 * DAY + 10.5 * HOUR, 5 * DAY + 12 * HOUR),
        ("LAST 1 HOUR 1 DAY AGO", 4 * DAY + 11 * HOUR, 4 * DAY + 12 * HOUR),
        ("", 0, 5 * DAY + 12 * HOUR),
    ],
)
def test_times_are_of_the_day_on_which_panes_end(range_: str, start: int, end: int) -> None:
    text = f"SELECT a FROM j {range_}"
    asked = taken_apart(text).of(14, 15)
    if start == end:
        with pytest.raises(LanguageError, match="is not behind"):
            positions_of(asked, 0, 5 * DAY + 12 * HOUR, text)
    else:
        assert positions_of(asked, 0, 5 * DAY + 12 * HOUR, text) == (start, end)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT a FROM j BETWEEN 5 AND '2:00'", "expected a quoted time"),
        ("SELECT a FROM j BETWEEN '1:00'", "expected AND"),
        ("SELECT a FROM j BETWEEN '1:00' AND", "expected a quoted time"),
        ("SELECT a FROM j BETWEEN", "expected a quoted time"),
        ("SELECT a FROM j LAST 2", "unknown unit"),
        ("SELECT a FROM j LAST 0 HOURS", "longer than zero"),
        ("SELECT a FROM j LAST 1 HOUR 1 DAY", "expected AGO"),
        ("SELECT a FROM j LAST 1 HOUR LAST 2 HOURS", "column 29: there is a range already"),
        ("SELECT a FROM j LAST 1 HOUR VERSION 2", "VERSION stands before the range"),
        ("SELECT a FROM j WHERE b = 1 LAST 1 HOUR GROUP BY a LAST 2 HOURS", "a range already"),
    ],
)
def test_ranges_that_are_none(text: str, message: str) -> None:
    with pytest.raises(LanguageError, match=message):
        taken_apart(text)
