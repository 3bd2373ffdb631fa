"""Windows that are not all as long: those that cumulate, and those of a calendar in a time zone.

What they must hold is told record by record: the clocks of the zone say which day a moment is of.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin.language.program import sql
from muntin.run.inline import windows_inline
from muntin.run.results import Result
from tests.effort import examples
from tests.oracle import stream_time

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOUR, DAY = 3600, 86_400
Holding = Callable[[int], list[tuple[int, int]]]  # of a moment: the windows that hold it
Row = tuple[int, int, str, int, int, int]
Records = Sequence[tuple[int, str, int]]


def midnight(zone: str, day: date) -> int:
    return int(datetime(day.year, day.month, day.day, tzinfo=ZoneInfo(zone)).timestamp())


def day_of(zone: str, moment: int) -> date:
    return datetime.fromtimestamp(moment, UTC).astimezone(ZoneInfo(zone)).date()


def days(zone: str, first: Callable[[date], date], count: int = 1) -> Holding:
    """Windows of so many days, of which the first is told for each day."""

    def holding(moment: int) -> list[tuple[int, int]]:
        start = first(day_of(zone, moment))
        return [(midnight(zone, start), midnight(zone, start + timedelta(days=count)))]

    return holding


def months(zone: str) -> Holding:
    def holding(moment: int) -> list[tuple[int, int]]:
        start = day_of(zone, moment).replace(day=1)
        end = (start + timedelta(days=31)).replace(day=1)
        return [(midnight(zone, start), midnight(zone, end))]

    return holding


def rolling(zone: str, count: int) -> Holding:
    def holding(moment: int) -> list[tuple[int, int]]:
        today = day_of(zone, moment)
        starts = [today - timedelta(days=back) for back in range(count)]
        return [(midnight(zone, s), midnight(zone, s + timedelta(days=count))) for s in starts]

    return holding


def cumulating(periods: Holding, steps: Callable[[int, int], Iterable[int]]) -> Holding:
    def holding(moment: int) -> list[tuple[int, int]]:
        ((start, end),) = periods(moment)
        return [(start, min(step, end)) for step in steps(start, end) if step > moment]

    return holding


def every(step: int) -> Callable[[int, int], Iterable[int]]:
    return lambda start, end: range(start + step, end + step, step)


def daily(zone: str) -> Callable[[int, int], Iterable[int]]:
    def steps(start: int, end: int) -> Iterable[int]:
        day = day_of(zone, start)
        while midnight(zone, day) < end:
            day += timedelta(days=1)
            yield midnight(zone, day)

    return steps


def today(day: date) -> date:
    return day


def monday(day: date) -> date:
    return day - timedelta(days=day.weekday())


BERLIN, KOLKATA, HOWE = "Europe/Berlin", "Asia/Kolkata", "Australia/Lord_Howe"
KINDS: dict[str, Holding] = {
    "1 DAY CUMULATE 1 HOUR": cumulating(days("UTC", today), every(HOUR)),
    "1 DAY CUMULATE 6 HOURS": cumulating(days("UTC", today), every(6 * HOUR)),
    "1 WEEK": days("UTC", monday, 7),
    "1 MONTH": months("UTC"),
    f"1 DAY AT TIME ZONE '{BERLIN}'": days(BERLIN, today),
    f"1 DAY AT TIME ZONE '{HOWE}'": days(HOWE, today),
    f"1 WEEK AT TIME ZONE '{BERLIN}'": days(BERLIN, monday, 7),
    f"1 MONTH AT TIME ZONE '{KOLKATA}'": months(KOLKATA),
    f"3 DAYS EVERY 1 DAY AT TIME ZONE '{BERLIN}'": rolling(BERLIN, 3),
    f"1 DAY CUMULATE 1 HOUR AT TIME ZONE '{HOWE}'": cumulating(days(HOWE, today), every(HOUR)),
    f"1 MONTH CUMULATE 1 DAY AT TIME ZONE '{BERLIN}'": cumulating(months(BERLIN), daily(BERLIN)),
    f"1 WEEK CUMULATE 1 DAY AT TIME ZONE '{BERLIN}'": cumulating(
        days(BERLIN, monday, 7), daily(BERLIN)
    ),
}
# Around the days on which clocks change in Europe and on Lord Howe, and the new year.
AROUND = [midnight("UTC", date(2026, *day)) for day in ((3, 29), (4, 5), (10, 4), (10, 25), (1, 1))]
moments = st.builds(
    lambda around, off: around + off,
    st.sampled_from(AROUND),
    st.one_of(st.integers(-3 * DAY, 3 * DAY), st.integers(-60, 60).map(lambda n: n * 1800)),
)
logs = st.dictionaries(
    st.sampled_from(["web-1", "web-2"]),
    st.lists(st.tuples(moments, st.sampled_from("ab"), st.integers(-3, 3)), max_size=25),
    min_size=1,
)
kinds = st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=3, unique=True)


def program(folder: Path, kinds: Sequence[str], slack: int | None) -> str:
    disorder = "" if slack is None else f" SLACK {slack} SECONDS"
    return (
        f"CREATE STREAM logs (t BIGINT, k VARCHAR, n BIGINT) FROM '{folder}/{{source}}.jsonl' "
        f"FORMAT json TIMESTAMP t{disorder};\n"
        f"CREATE JOB job AS SELECT k, count(*) AS c, sum(n) AS s, max(n) AS m FROM logs GROUP BY k "
        f"WINDOW {', '.join(kinds)};"
    )


def write(folder: Path, sources: dict[str, Records]) -> None:
    for source, records in sources.items():
        lines = (json.dumps({"t": t, "k": k, "n": n}) + "\n" for t, k, n in records)
        (folder / f"{source}.jsonl").write_text("".join(lines), encoding="utf-8")


def wanted(kinds: Sequence[str], sources: dict[str, Records], slack: int | None) -> list[Row]:
    """By brute force."""
    groups: dict[tuple[int, int, int, str], list[int]] = {}
    for records in sources.values():
        times = [t for t, _, _ in records]
        for number, (t, k, n) in enumerate(records, 1):
            reached = 0 if slack is None else stream_time(times[:number], slack)
            for which, kind in enumerate(kinds):
                for start, end in KINDS[kind](t):
                    if slack is None or end + slack > reached:
                        groups.setdefault((end, which, start, k), []).append(n)
    rows = sorted(groups.items(), key=lambda item: item[0])
    return [(start, end, k, len(ns), sum(ns), max(ns)) for (end, _, start, k), ns in rows]


def found(results: Iterable[Result]) -> list[Row]:
    return [
        (result.start // 1_000_000, result.end // 1_000_000, *row.values())
        for result in results
        for row in result.rows.to_pylist()
    ]


@examples(60)
@given(
    kinds=kinds,
    sources=logs,
    batch=st.integers(1, 1500),
    sharing=st.sampled_from(["auto", "separate"]),
)
def test_inline_equals_what_clocks_say(
    kinds: list[str], sources: dict[str, Records], batch: int, sharing: str
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), sources)
        text = program(Path(folder), kinds, None)
        leaving = windows_inline(sql(text), batch_bytes=batch, sharing=sharing)  # type: ignore[arg-type]
        rows = found(result for windows in leaving for result in windows.results())
    assert rows == wanted(kinds, sources, None)


@examples(40)
@given(
    kinds=kinds,
    steps=st.lists(st.integers(-9 * 3600, 2 * 1800), max_size=8),
    start=moments,
    batch=st.integers(1, 1500),
)
def test_late_records_miss_the_windows_that_have_left(
    kinds: list[str], steps: list[int], start: int, batch: int
) -> None:
    """No step ahead is so long that it would not be believed."""
    times = [start]
    for step in steps:
        ahead = [max(times) + back * 50 for back in range(1, step // 50 + 1)]
        times += ahead or [max(times) + step]
    records = [(t, "ab"[t % 2], t % 5) for t in times]
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), {"web-1": records})
        text = program(Path(folder), kinds, 600)
        leaving = windows_inline(sql(text), batch_bytes=batch)
        rows = found(result for windows in leaving for result in windows.results())
    assert rows == wanted(kinds, {"web-1": records}, 600)


@pytest.mark.usefixtures("spark")
@examples(4)
@given(kinds=kinds, sources=logs, batch=st.integers(200, 1500))
def test_spark_equals_what_clocks_say(
    spark: SparkSession, kinds: list[str], sources: dict[str, Records], batch: int
) -> None:
    from muntin.spark.runner import Settings, SparkRun

    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), sources)
        settings = Settings(Path(folder) / "state", follow=False, batch_bytes=batch)
        run = SparkRun(sql(program(Path(folder), kinds, None)), spark.sparkContext, settings)
        rows = found(result for turn in run.turns() for result in turn.emission.results())
    assert rows == wanted(kinds, sources, None)


def test_a_day_on_which_clocks_change_has_23_or_25_hours(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(
        "".join(
            json.dumps({"t": t, "k": "a", "n": 1}) + "\n"
            for change in ((3, 28), (10, 24))
            for t in range(midnight("UTC", date(2026, *change)), 10**10, 1800)[:150]
        ),
        encoding="utf-8",
    )
    leaving = windows_inline(sql(program(tmp_path, [f"1 DAY AT TIME ZONE '{BERLIN}'"], None)))
    results = [result for windows in leaving for result in windows.results()]
    hours = {(result.end - result.start) // 3_600_000_000 for result in results}
    assert hours == {23, 24, 25}
    assert {result.window for result in results} == {"1 day in Europe/Berlin"}
    assert all(result.c2.area == 1.0 for result in results)


def test_records_between_windows_are_in_none_and_that_is_told_once(tmp_path: Path) -> None:
    write(tmp_path, {"a": [(t, "a", 1) for t in range(0, 4 * HOUR, 600)]})
    notes: list[str] = []
    text = program(tmp_path, ["1 HOUR EVERY 2 HOURS"], 60)
    leaving = windows_inline(sql(text), note=notes.append, batch_bytes=100)
    rows = found(result for windows in leaving for result in windows.results())
    assert rows == [(0, HOUR, "a", 6, 6, 1), (2 * HOUR, 3 * HOUR, "a", 6, 6, 1)]
    assert notes == [
        "job 'job': its windows, 1 hour every 2 hours, start further apart than they are long; "
        "records that lie between two of them are in none, and are not counted as late"
    ]


@pytest.mark.parametrize("kind", [f"1 MONTH CUMULATE 1 DAY AT TIME ZONE '{BERLIN}'", "1 MONTH"])
def test_expressions_know_where_a_window_starts(tmp_path: Path, kind: str) -> None:
    write(tmp_path, {"a": [(AROUND[0] + n * DAY, "a", 1) for n in range(5)]})
    text = program(tmp_path, [kind], None).replace("SELECT k,", "SELECT k, window_start AS w,")
    results = [r for w in windows_inline(sql(text)) for r in w.results()]
    told = [row["w"].timestamp() * 1e6 for r in results for row in r.rows.to_pylist()]
    assert told == [r.start for r in results for _ in range(r.rows.num_rows)]
