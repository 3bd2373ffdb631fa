"""Times of logs: what is understood, and the clause that a text asks for otherwise."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin.kernel.engine import connection, literal, run
from muntin.logs.times import clause_for, since_epoch_sql, time_sql

MOMENTS = st.datetimes(datetime(2001, 9, 10), datetime(2285, 1, 1))
ZONES = st.integers(-12, 14).map(lambda hours: timezone(timedelta(hours=hours)))


def understood(*texts: str) -> list[datetime | None]:
    """The moments, UTC, without their zone."""
    values = ", ".join(f"({number}, {literal(text)})" for number, text in enumerate(texts))
    moment = f"make_timestamp(epoch_us({time_sql('t')}))"
    rows = connection().execute(f"SELECT {moment} FROM (VALUES {values}) v(n, t) ORDER BY n")
    return [time for (time,) in rows.fetchall()]


@pytest.mark.parametrize(
    "text",
    [
        "2026-01-31 12:00:00.123",
        "2026-01-31 12:00:00,123",
        "2026-01-31T12:00:00,123Z",
        "2026-01-31t12:00:00.123z",
        "2026-01-31T14:00:00,123+02:00",
        "2026-01-31T14:00:00.123+0200",
        "2026-01-31 14:00:00.123 +0200",
        "2026-01-31 14:00:00,123 +0200",
        '"2026-01-31 12:00:00.123"',
        "'2026-01-31T12:00:00.123Z'",
        "[2026-01-31 12:00:00,123]",
        "20260131T120000.123Z",
        "Sat Jan 31 12:00:00.123 2026",
        "31 Jan 2026 12:00:00.123",
        "2026/01/31 12:00:00.123",
        "1769860800.123",
        '"1769860800.123"',
        "1769860800123",
        "1769860800123000",
        "1769860800123000000",
    ],
)
def test_times_with_fractions(text: str) -> None:
    assert understood(text) == [datetime(2026, 1, 31, 12, 0, 0, 123_000)]


@pytest.mark.parametrize(
    "text",
    [
        "2026-01-31 12:00:00",
        "2026-01-31T12:00Z",
        "31/Jan/2026:12:00:00 +0000",
        "[31/jan/2026:14:00:00 +0200]",
        "31/Jan/2026:12:00:00",
        "Sat, 31 Jan 2026 12:00:00 GMT",
        "Sat, 31 Jan 2026 13:00:00 +0100",
        "Sat Jan 31 12:00:00 2026",
        "31 Jan 2026 12:00:00",
        "20260131T120000Z",
        "1769860800",
        "1769860800.",
    ],
)
def test_times_without_fractions(text: str) -> None:
    assert understood(text) == [datetime(2026, 1, 31, 12)]


@pytest.mark.parametrize(
    "text",
    ["", "soon", "12:00:00,123", "20260131", "20260131120000", "Jan 31 12:00:00", "123456789",
     "2026-02-30 12:00:00,1", "17,69860800", "infinity", "17/06/09 20:10:40", "17-06-09 20:10:40",
     "[17/06/09 20:10:40]"],
)  # fmt: skip
def test_what_may_mean_anything_is_no_time(text: str) -> None:
    assert understood(text) == [None]


@given(MOMENTS, ZONES)
def test_every_way_to_write_a_moment_means_that_moment(moment: datetime, zone: timezone) -> None:
    local = moment.replace(tzinfo=UTC).astimezone(zone)
    whole, us = moment.replace(microsecond=0), moment.microsecond
    seconds = (whole - datetime(1970, 1, 1)) // timedelta(seconds=1)
    exact = [
        moment.isoformat(" "),
        local.isoformat(),
        f"{whole},{us:06}",
        f"{seconds}.{us:06}",
        f"{seconds}{us:06}",
        f"{local:%Y-%m-%d %H:%M:%S}.{us:06} {local:%z}",
    ]
    assert understood(*exact) == [moment] * len(exact)
    assert understood(f"{local:%d/%b/%Y:%H:%M:%S %z}", str(seconds)) == [whole, whole]


@pytest.mark.parametrize(
    ("text", "clause"),
    [
        ("31.01.2026 12:00", "strptime(ts, '%d.%m.%Y %H:%M')"),
        ("01/31/2026 12:00:00", "strptime(ts, '%m/%d/%Y %H:%M:%S')"),
        ("20260131120000", "strptime(ts, '%Y%m%d%H%M%S')"),
        ("Jan  1 12:00:00", "strptime('2026 ' || ts, '%Y %b %d %H:%M:%S')"),
        ("17/06/09 20:00:40", "strptime(ts, '%y/%m/%d %H:%M:%S')"),
        ("17-06-09 20:00:40", "strptime(ts, '%y-%m-%d %H:%M:%S')"),
        ("17.06.09 20:00:40", "strptime(ts, '%d.%m.%y %H:%M:%S')"),
        ("06/17/09 20:00:40", "strptime(ts, '%m/%d/%y %H:%M:%S')"),
        ("17/06/09 20:00", "strptime(ts, '%y/%m/%d %H:%M')"),
        ("12:00:00,123", "strptime('2026-01-31 ' || ts, '%Y-%m-%d %H:%M:%S,%f')"),
        ("soon", "strptime(ts, '%d.%m.%Y %H:%M:%S')"),
    ],
)
def test_what_to_declare(text: str, clause: str) -> None:
    assert clause_for(text, "ts") == f"TIMESTAMP {clause}"
    if text != "soon":
        sql = f"SELECT {clause} FROM (SELECT {literal(text)} AS ts)"
        assert connection().execute(sql).fetchall()[0][0].minute == 0


@pytest.mark.parametrize(
    ("number", "unit", "time"),
    [
        ("5", "SECONDS", "1970-01-01 00:00:05"),
        ("1769860800123", "MILLISECONDS", "2026-01-31 12:00:00.123"),
        ("12", "MILLISECONDS", "1970-01-01 00:00:00.012"),
        ("12", "MICROSECONDS", "1970-01-01 00:00:00.000012"),
        ("-1", "NANOSECONDS", "1969-12-31 23:59:59.999999"),
        ("1999", "NANOSECONDS", "1970-01-01 00:00:00.000001"),
        ("0.5", "SECONDS", "1970-01-01 00:00:00.5"),
        ("-0.0000001", "SECONDS", "1969-12-31 23:59:59.999999"),
        ("1.5", "MILLISECONDS", "1970-01-01 00:00:00.0015"),
        ("'60'", "SECONDS", "1970-01-01 00:01:00"),
    ],
)
def test_numbers_count_the_unit_that_is_said(number: str, unit: str, time: str) -> None:
    whole = number.lstrip("-").isdigit()
    sql = f"SELECT {since_epoch_sql(number, unit, whole)}::VARCHAR AS t"
    assert run(sql, {}, "a test")["t"].to_pylist() == [time]
