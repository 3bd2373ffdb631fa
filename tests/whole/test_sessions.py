"""Sessions against the definition: sort each key's records, cut where the gap is."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import muntin as mt
from muntin.run.inline import InlineRun, windows_inline
from muntin.run.loop import Rules
from tests.effort import examples
from tests.oracle import Record, stream_time, write_logs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GAP = 10
records = st.lists(
    st.fixed_dictionaries(
        {
            "t": st.integers(-60, 120),
            "k": st.sampled_from(["a", "b", None]),
            "n": st.one_of(st.none(), st.integers(0, 3)),
        }
    ),
    max_size=25,
)
sources = st.dictionaries(st.sampled_from(["web-1", "web-2", "db"]), records, min_size=1)
slacks = st.sampled_from([None, 0, 15])
Row = tuple[Any, ...]


def program(folder: Path, slack: int | None) -> mt.Program:
    wait = f"SLACK {slack} SECONDS" if slack is not None else ""
    return mt.sql(
        f"CREATE STREAM logs (t BIGINT, k VARCHAR, n BIGINT) FROM '{folder}/{{source}}.jsonl' "
        f"FORMAT json TIMESTAMP t {wait};"
        f"CREATE JOB visits AS SELECT k, count(*) AS records, sum(n) AS total, "
        f"count(DISTINCT n) AS different, median(n) AS middle "
        f"FROM logs WHERE n IS NULL OR n < 3 GROUP BY k WINDOW SESSION {GAP} SECONDS;"
    )


def expected(logs: dict[str, Sequence[Record]], slack: int | None) -> list[Row]:
    by_key: dict[Any, list[Record]] = {}
    for log in logs.values():
        for record in _on_time(log, slack):
            if record["n"] is None or record["n"] < 3:
                by_key.setdefault(record["k"], []).append(record)
    rows = [_row(session) for found in by_key.values() for session in _sessions(found)]
    return sorted(rows, key=lambda row: (row[1], row[0], row[2] is None, row[2] or ""))


def _on_time(log: Sequence[Record], slack: int | None) -> Iterable[Record]:
    for number, record in enumerate(log, 1):
        reached = stream_time([r["t"] for r in log[:number]], slack)
        if slack is None or record["t"] >= reached - slack:
            yield record


def _sessions(found: list[Record]) -> Iterable[list[Record]]:
    session: list[Record] = []
    for record in sorted(found, key=lambda r: r["t"]):
        if session and record["t"] - session[-1]["t"] >= GAP:
            yield session
            session = []
        session.append(record)
    yield session


def _row(session: list[Record]) -> Row:
    numbers = sorted(r["n"] for r in session if r["n"] is not None)
    half = len(numbers) // 2
    middle = (numbers[half] + numbers[~half]) / 2 if numbers else None
    return (
        session[0]["t"],
        session[-1]["t"] + GAP,
        session[0]["k"],
        len(session),
        sum(numbers) if numbers else None,
        len(set(numbers)),
        middle,
    )


def rows_of(results: Iterable[mt.Result]) -> list[Row]:
    return [
        (result.start // 1_000_000, result.end // 1_000_000, *row.values())
        for result in results
        for row in result.rows.to_pylist()
    ]


@examples(80)
@given(logs=sources, slack=slacks, batch=st.integers(1, 2000), piece=st.integers(1, 800))
def test_inline(
    logs: dict[str, Sequence[Record]], slack: int | None, batch: int, piece: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        write_logs(Path(folder), logs)
        leaving = windows_inline(program(Path(folder), slack), batch_bytes=batch, piece_bytes=piece)
        found = rows_of(result for windows in leaving for result in windows.results())
    assert sorted(found, key=_order) == sorted(expected(logs, slack), key=_order)


@examples(60)
@given(logs=sources, slack=st.sampled_from([0, 15]), piece=st.integers(1, 800))
def test_sessions_that_late_records_would_change_say_so(
    logs: dict[str, Sequence[Record]], slack: int, piece: int
) -> None:
    """All at once, so that nothing leaves before the last record has come."""
    late: list[Record] = []
    for log in logs.values():
        on_time = list(map(id, _on_time(log, slack)))
        late += (r for r in log if id(r) not in on_time and (r["n"] is None or r["n"] < 3))
    missed: Counter[tuple[int, int]] = Counter()
    read: Counter[tuple[int, int]] = Counter()
    for start, end, key, count, *_ in expected(logs, slack):
        near = [r for r in late if r["k"] == key and start - GAP < r["t"] < end]
        missed[start, end] += len(near)
        read[start, end] += count + len(near)
    with tempfile.TemporaryDirectory() as folder:
        write_logs(Path(folder), logs)
        leaving = list(windows_inline(program(Path(folder), slack), piece_bytes=piece))
    for result in (result for windows in leaving for result in windows.results()):
        session = result.start // 1_000_000, result.end // 1_000_000
        counts = result.counts
        assert (counts.late, counts.read) == (missed.pop(session), read[session])
        share = (counts.read - counts.late) / counts.read
        assert (result.c2.area, str(result.c2.reason)) == (
            share,
            "complete" if share == 1 else "exhausted",
        )
    assert not missed


@examples(8)
@given(logs=sources, slack=slacks, batch=st.integers(100, 1000))
def test_spark(
    spark: SparkSession, logs: dict[str, Sequence[Record]], slack: int | None, batch: int
) -> None:
    from muntin.spark.runner import Settings, SparkRun

    with tempfile.TemporaryDirectory() as folder:
        write_logs(Path(folder), logs)
        state = Settings(Path(folder) / "state", follow=False, batch_bytes=batch)
        run = SparkRun(program(Path(folder), slack), spark.sparkContext, state)
        found = rows_of(result for step in run.turns() for result in step.emission.results())
    assert sorted(found, key=_order) == sorted(expected(logs, slack), key=_order)


def _order(row: Row) -> tuple[Any, ...]:
    return row[1], row[0], row[2] is None, row[2] or ""


def test_a_session_is_counted_by_its_own_records(tmp_path: Path) -> None:
    """a at 0 and 5, b at 3: two sessions of two and one records."""
    write_logs(
        tmp_path, {"web-1": [{"t": t, "k": k, "n": 1} for t, k in ((0, "a"), (3, "b"), (5, "a"))]}
    )
    found = list(mt.run(program(tmp_path, None)))
    assert [(r.start, r.end, r.counts.read, r.window) for r in found] == [
        (3_000_000, 13_000_000, 1, "session 10 seconds"),
        (0, 15_000_000, 2, "session 10 seconds"),
    ]


@pytest.mark.parametrize("clause", ["ORDER BY k", "LIMIT 3"])
def test_sessions_have_no_common_order(clause: str) -> None:
    text = (
        "CREATE STREAM logs (t BIGINT, k VARCHAR) FROM 'x' FORMAT json TIMESTAMP t;"
        f"CREATE JOB j AS SELECT k, count(*) FROM logs GROUP BY k {clause} WINDOW SESSION 5 MINUTES"
    )
    with pytest.raises(mt.LanguageError, match="each session is one key's own"):
        mt.sql(text)


@pytest.mark.parametrize("batches", [1, 4])
def test_late_records_are_told_whatever_batch_they_come_in(tmp_path: Path, batches: int) -> None:
    """The session of k is open when a record comes for it that its server is already behind."""
    log = [(50, "x"), (60, "x"), (70, "x"), (100, "k"), (115, "o")]
    log += [(108, "k"), (116, "o"), (117, "o"), (119, "o"), (140, "o"), (160, "o"), (200, "o")]
    clause = "(t BIGINT, k VARCHAR) FROM '{}/a.log' FORMAT json TIMESTAMP t"
    asked = mt.sql(
        f"CREATE STREAM s {clause.format(tmp_path)};"
        "CREATE JOB j AS SELECT k, count(*) AS c FROM s GROUP BY k WINDOW SESSION 20 SECONDS;"
    )
    run = InlineRun(asked.streams["s"], list(asked.jobs.values()), Rules(True, 1000.0))
    found: list[mt.Result] = []
    for number in range(batches):
        with (tmp_path / "a.log").open("a") as file:
            some = log[number * len(log) // batches : (number + 1) * len(log) // batches]
            file.writelines(json.dumps({"t": t, "k": k}) + "\n" for t, k in some)
        found += run.turn(1000.0 + number).results()
    (of_k,) = [r for r in found if r.rows["k"].to_pylist() == ["k"]]
    assert (of_k.counts.read, of_k.counts.late, of_k.c2.area) == (2, 1, 0.5)
