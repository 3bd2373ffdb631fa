"""A value that SQL refuses costs its record, or the row it would be in, and nothing else."""

from __future__ import annotations

import json
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import muntin as mt
from muntin.language.program import sql
from muntin.run.inline import ignore, windows_inline
from muntin.store.status import status
from muntin.windows.choice import Sharing
from tests.effort import examples
from tests.oracle import Question, Record, Window, same, stream_time, write_logs
from tests.whole.test_answers import rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LARGE = 2**62
# What fails on a record whose `s` is no number, or whose `n` is too large to be doubled.
FAILING = {
    "sum(CAST(s AS INTEGER))": "s",
    "max(CAST(s AS INTEGER))": "s",
    "count(DISTINCT CAST(s AS INTEGER))": "s",
    "median(CAST(s AS INTEGER))": "s",
    "sum(n * 2)": "n",
    "min(100 // n)": "zero",
    "last(n * 2)": "n",
}
WHERES = {None: "", "CAST(s AS INTEGER) % 5 <> 3": "s", "n * n <> 9": "n", "x < 8": ""}
KEYS: dict[tuple[str, ...], str] = {(): "", ("k",): "", ("CAST(s AS INTEGER) % 2",): "s"}

records = st.lists(
    st.fixed_dictionaries(
        {
            "t": st.integers(-100, 200),
            "k": st.sampled_from(["a", "b", None]),
            "s": st.sampled_from(["1", "2", "3", "x", "", None, "9999999999"]),
            "n": st.sampled_from([None, 1, 2, 3, 0, LARGE]),
            "x": st.sampled_from([None, 1.5, 9.0]),
        }
    ),
    max_size=40,
)
sources = st.dictionaries(st.sampled_from(["web-1", "web-2", "db"]), records, min_size=1)
windows = st.lists(
    st.sampled_from([Window(60, 60), Window(60, 20), Window(7, 3), Window(300, 10), Window(1, 1)]),
    min_size=1,
    max_size=3,
    unique=True,
)


def is_refused(record: Record, what: str) -> bool:
    """Whether an expression of that kind fails on a record."""
    if what == "s":
        return record["s"] in ("x", "", "9999999999")
    if what == "n":
        return bool(record["n"] == LARGE)
    return what == "zero" and record["n"] == 0


@dataclass(frozen=True)
class Careful(Question):
    """A question of which some expressions fail, and how often that may be."""

    errors: int | None = None

    def muntin(self, folder: Path) -> str:
        text = super().muntin(folder)
        return text if self.errors is None else f"{text[:-1]} MAX ERRORS {self.errors};"

    def _aggregate(self, text: str) -> str:
        if text == "last(n * 2)":
            return "last(n * 2 ORDER BY t, n * 2 NULLS LAST)"
        return text if text in FAILING else super()._aggregate(text)

    def fails(self, record: Record) -> bool:
        """What is written behind a filter is evaluated only where it holds."""
        if is_refused(record, WHERES[self.where]):
            return True
        passes = {
            None: True,
            "CAST(s AS INTEGER) % 5 <> 3": record["s"] not in (None, "3"),
            "n * n <> 9": record["n"] not in (None, 3),
            "x < 8": record["x"] is not None and record["x"] < 8,
        }[self.where]
        evaluated = [KEYS[self.keys], *(FAILING.get(a, "") for a in self.aggregates)]
        return passes and any(is_refused(record, what) for what in evaluated)

    def _starts(self, window: Window, records: Sequence[Record]) -> Any:
        """Without what fails; it is as late as it would be otherwise, and so are others."""
        starts = super()._starts(window, records)
        return [(record, []) if self.fails(record) else (record, of) for record, of in starts]

    def stopped_at(self, sources: dict[str, Sequence[Record]]) -> int | None:
        """The time from which on windows do not leave: that of one failure too many.

        What is late for a window is nothing that it could fail on.
        """
        if self.errors is None:
            return None
        failed = []
        for of_source in sources.values():
            by_kind = [Question._starts(self, window, of_source) for window in self.windows]
            times: list[int] = []
            for each in zip(*by_kind, strict=True):
                record = each[0][0]
                time = record["t"]
                times.append(time)
                late = time
                if self.slack_s is not None:
                    late = stream_time(times, self.slack_s) - self.slack_s
                if self.fails(record) and any(starts for _, starts in each):
                    failed.append(max(time, late))
        return sorted(failed)[self.errors] if len(failed) > self.errors else None

    def answer(self, sources: dict[str, Sequence[Record]]) -> list[tuple[Any, ...]]:
        upto = self.stopped_at(sources)
        rows = super().answer(sources)
        return [row for row in rows if upto is None or row[1] <= upto]


@st.composite
def questions(draw: st.DrawFn) -> Careful:
    names = st.sampled_from([*FAILING, "count(*)", "sum(x)", "first(s)"])
    return Careful(
        aggregates=tuple(draw(st.lists(names, min_size=1, max_size=3, unique=True))),
        keys=draw(st.sampled_from(list(KEYS))),
        where=draw(st.sampled_from(list(WHERES))),
        having=None,
        limit=None,
        windows=tuple(draw(windows)),
        slack_s=draw(st.sampled_from([None, None, 0, 15])),
        errors=draw(st.sampled_from([None, None, 0, 1, 3, 1000])),
    )


@examples(150)
@given(
    question=questions(),
    logs=sources,
    batch=st.integers(1, 3000),
    piece=st.integers(1, 1500),
    sharing=st.sampled_from(["auto", "shared", "separate"]),
)
def test_inline_equals_a_plain_query_without_what_fails(
    question: Careful,
    logs: dict[str, Sequence[Record]],
    batch: int,
    piece: int,
    sharing: Sharing,
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        write_logs(Path(folder), logs)
        program = sql(question.muntin(Path(folder)))
        leaving = windows_inline(program, batch_bytes=batch, piece_bytes=piece, sharing=sharing)
        found = rows_of(result for windows in leaving for result in windows.results())
    assert same(found, question.answer(logs)), (found, question.answer(logs))


@pytest.mark.parametrize("piece", [1, 150, 1500])
def test_a_late_record_that_fails_stops_nothing_before_its_mark(tmp_path: Path, piece: int) -> None:
    question = Careful(
        aggregates=("sum(CAST(s AS INTEGER))",), keys=(), where=None, having=None, limit=None,
        windows=(Window(60, 20, 0),), slack_s=0, errors=0,
    )  # fmt: skip
    times_and_texts = ((17, "1"), (-4, "2"), (26, "4"), (0, "x"), (1, "8"))
    logs: dict[str, Sequence[Record]] = {
        "web": [{"t": t, "k": "a", "n": 1, "x": None, "s": s} for t, s in times_and_texts]
    }
    write_logs(tmp_path, logs)
    leaving = windows_inline(sql(question.muntin(tmp_path)), piece_bytes=piece)
    found = rows_of(result for windows in leaving for result in windows.results())
    assert found == question.answer(logs) == [(-40, 20, 3)]


@pytest.mark.parametrize("sharing", ["shared", "separate"])
def test_what_a_filter_leaves_out_fails_in_no_aggregate(tmp_path: Path, sharing: Sharing) -> None:
    question = Careful(
        aggregates=("count(DISTINCT CAST(s AS INTEGER))",), keys=(), where="n * n <> 9",
        having=None, limit=None, windows=(Window(60, 60, 0),), slack_s=None, errors=0,
    )  # fmt: skip
    numbers_and_texts: tuple[tuple[int | None, str], ...] = ((1, "1"), (None, "x"), (3, "x"))
    logs: dict[str, Sequence[Record]] = {
        "web": [{"t": 0, "k": "a", "n": n, "x": None, "s": s} for n, s in numbers_and_texts]
    }
    write_logs(tmp_path, logs)
    leaving = windows_inline(sql(question.muntin(tmp_path)), sharing=sharing)
    found = rows_of(result for windows in leaving for result in windows.results())
    assert found == question.answer(logs) == [(0, 60, 1)]


STREAM = (
    "CREATE STREAM logs (t BIGINT, k VARCHAR, s VARCHAR, n BIGINT) FROM '{}/{{source}}.jsonl' "
    "FORMAT json TIMESTAMP t;\n"
)
GOOD = "CREATE JOB good AS SELECT k, count(*) AS c FROM logs GROUP BY k WINDOW 1 MINUTE;\n"
Rows = dict[str, list[tuple[Any, ...]]]


def lines(*records: tuple[int, str, str, int]) -> str:
    every = [dict(zip(("t", "k", "s", "n"), record, strict=True)) for record in records]
    return "".join(json.dumps(record) + "\n" for record in every)


LINES = lines((0, "a", "1", 1), (5, "b", "2", 2), (61, "a", "3", 3), (62, "b", "x", 0),
              (130, "a", "5", 5))  # fmt: skip


def told(folder: Path, jobs: str, batch: int = 1 << 20) -> tuple[list[str], Rows]:
    notes: list[str] = []
    rows: Rows = {}
    program = sql(STREAM.format(folder) + jobs)
    for windows in windows_inline(program, notes.append, batch_bytes=batch, piece_bytes=batch):
        for result in windows.results():
            minute = result.start // 60_000_000
            found = [(minute, *row.values()) for row in result.rows.to_pylist()]
            rows.setdefault(result.job, []).extend(found)
    return notes, rows


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    (tmp_path / "web.jsonl").write_text(LINES)
    return tmp_path


@pytest.mark.parametrize("batch", [30, 1 << 20])
@pytest.mark.parametrize(
    ("select", "failed", "reason"),
    [
        ("sum(CAST(s AS INTEGER))", "CAST(\"s\" AS INTEGER) failed on s = 'x'", "not convert str"),
        ("sum(n) FILTER (WHERE s::INT > 0)", "\"s\"::INT > 0 failed on s = 'x'", "not convert str"),
        ("max(10 // n)", '10 // "n" failed on n = 0', "Division by zero in expression"),
        ("min(strptime(s, '%d'))", "strptime(\"s\", '%d') failed on s = 'x'", "Could not parse"),
        ("max(regexp_extract('x', s || repeat('(', (s = 'x')::INT)))", "regexp_extract(", "missi"),
        ("avg(CASE WHEN n = 0 THEN error('no') ELSE n END)", "CASE WHEN ", "no"),
        ("first(9223372036854775807 - n + 1 - (n = 0)::INT)", "92233720", "Overflow in"),
        ("count(DISTINCT CAST(s AS INTEGER))", 'CAST("s" AS INTEGER) failed on ', "not convert"),
    ],
)
def test_the_message_says_job_file_line_and_value(
    select: str, failed: str, reason: str, batch: int, logs: Path
) -> None:
    failing = f"CREATE JOB j AS SELECT k, {select} FROM logs GROUP BY k WINDOW 1 MINUTE;"
    notes, rows = told(logs, GOOD + failing, batch)
    (note,) = notes
    assert note.startswith(f"job 'j': {failed}")
    assert f" ({logs}/web.jsonl, line 4): " in note
    assert reason in note
    assert [row[:2] for row in rows["j"]] == [(0, "a"), (0, "b"), (1, "a"), (2, "a")]
    assert rows["good"] == [(0, "a", 1), (0, "b", 1), (1, "a", 1), (1, "b", 1), (2, "a", 1)]


def test_where_and_keys_cost_their_record_too(logs: Path) -> None:
    jobs = (
        "CREATE JOB w AS SELECT count(*) AS c FROM logs WHERE CAST(s AS INT) > 1 WINDOW 1 MINUTE;"
        "CREATE JOB k AS SELECT CAST(s AS INT) AS s, count(*) AS c FROM logs GROUP BY 1 "
        "WINDOW 1 MINUTE;"
    )
    notes, rows = told(logs, jobs)
    assert [note.split(":")[0] for note in notes] == ["job 'w'", "job 'k'"]
    assert rows["w"] == [(0, 1), (1, 1), (2, 1)]
    assert rows["k"] == [(0, 1, 1), (0, 2, 1), (1, 3, 1), (2, 5, 1)]


def test_sources_that_are_read_together_are_told_apart(tmp_path: Path) -> None:
    for number in range(5):
        bad = lines((2, "a", "x", 1)) if number == 3 else ""
        good = lines((1, "a", "1", 1), (3, "a", "1", 1))
        (tmp_path / f"web-{number}.jsonl").write_text(f"\nnonsense\n{good}{bad}")
    jobs = "CREATE JOB j AS SELECT sum(CAST(s AS INT)) AS n FROM logs WINDOW 1 MINUTE;"
    notes, rows = told(tmp_path, jobs)
    failed = [note for note in notes if note.startswith("job")]
    assert len(failed) == 1
    assert f"({tmp_path}/web-3.jsonl, line 5)" in failed[0]
    assert rows["j"] == [(0, 10)]


@pytest.mark.parametrize("batch", [30, 1 << 20])
def test_beyond_the_limit_a_job_stops_and_others_go_on(batch: int, logs: Path) -> None:
    failing = "CREATE JOB j AS SELECT sum(CAST(s AS INT)) AS n FROM logs WINDOW 1 MINUTE MAX ERRORS"
    notes, rows = told(logs, f"{GOOD}{failing} 0;", batch)
    assert notes[0].startswith("job 'j': CAST(")
    assert notes[1:] == [
        "job 'j' stops: none is allowed (MAX ERRORS 0); its windows from there on are left out, "
        "and other jobs go on"
    ]
    assert rows["j"] == [(0, 3)]
    assert len(rows["good"]) == 5
    notes, rows = told(logs, f"{GOOD}{failing} 1;", batch)
    assert len(notes) == 1
    assert rows["j"] == [(0, 3), (1, 3), (2, 5)]


def test_only_the_first_errors_are_told_of(tmp_path: Path) -> None:
    every = [(i, "a", "x" if i % 2 else "1", i) for i in range(300)]
    (tmp_path / "web.jsonl").write_text(lines(*every))
    job = "CREATE JOB j AS SELECT sum(CAST(s AS INT)) AS n FROM logs WINDOW 1 SECOND"
    notes, rows = told(tmp_path, f"{job};", 500)
    assert [note.split(" (")[0] for note in notes] == [
        *["job 'j': CAST(\"s\" AS INT) failed on s = 'x'"] * 3,
        "job 'j': what else it fails on is counted, up to 100 times",
        "job 'j': CAST(\"s\" AS INT) failed on s = 'x'",
        "job 'j' stops: 100 are allowed",
    ]
    assert f"({tmp_path}/web.jsonl, line 202)" in notes[-2]
    assert len(rows["j"]) == 101
    notes, rows = told(tmp_path, f"{job} MAX ERRORS 150;", 500)
    assert len(notes) == 4
    assert len(rows["j"]) == 150


def test_very_many_bad_values_take_no_time(tmp_path: Path) -> None:
    every = [(i, "a", "1" if i % 10 else "x", i) for i in range(20_000)]
    (tmp_path / "web.jsonl").write_text(lines(*every))
    job = "CREATE JOB j AS SELECT count(CAST(s AS INT)) AS n FROM logs WINDOW 1 DAY"
    started = time.monotonic()
    _, rows = told(tmp_path, f"{job} MAX ERRORS 1000000;")
    assert rows["j"] == [(0, 18_000)]
    assert time.monotonic() - started < 20


FINAL = [
    ("sum(n) // (CASE WHEN k = 'b' THEN 0 ELSE 1 END) AS x", "", "column 'x'"),
    ("CAST(sum(n) + (k = 'b')::INT * 1000 AS TINYINT) AS x", "", "column 'x'"),
    ("sum(n) AS x", " HAVING 1 // (k = 'a')::INT = 1", "HAVING"),
    ("sum(n) AS x", " HAVING count(*) > 0 ORDER BY 1 // (k = 'a')::INT LIMIT 1", "ORDER BY"),
]


@pytest.mark.parametrize("batch", [30, 1 << 20])
@pytest.mark.parametrize(("select", "tail", "words"), FINAL)
def test_a_row_that_fails_in_the_end_is_left_out(
    select: str, tail: str, words: str, batch: int, logs: Path
) -> None:
    """Of jobs with the same cells, the others notice nothing."""
    job = "CREATE JOB {} AS SELECT k, {} FROM logs GROUP BY k{} WINDOW 1 MINUTE{};"
    jobs = [
        GOOD,
        job.format("same", "sum(n) AS x", "", ""),
        job.format("j", select, tail, ""),
        job.format("strict", select, tail, " MAX ERRORS 0"),
    ]
    notes, rows = told(logs, "".join(jobs), batch)
    of_job = [note for note in notes if note.startswith("job 'j'")]
    times = "from 1970-01-01 00:0{}:00 to 1970-01-01 00:0{}:00"
    assert [note.rpartition(": ")[0].partition(": ")[2][: len(words) + 90] for note in of_job] == [
        f"{words} failed on the window {times.format(m, m + 1)}, k = 'b'"[: len(words) + 90]
        for m in (0, 1)
    ]
    assert rows["j"] == [(0, "a", 1), (1, "a", 3), (2, "a", 5)]
    assert "strict" not in rows
    assert rows["same"] == [(0, "a", 1), (0, "b", 2), (1, "a", 3), (1, "b", 0), (2, "a", 5)]
    assert len(rows["good"]) == 5


@pytest.mark.parametrize("batch", [30, 1 << 20])
@pytest.mark.parametrize(
    "window",
    ["4 MINUTES", "4 MINUTES PANE 1 SECOND", "4 MINUTES EVERY 1 MINUTE", "SESSION 90 SECONDS",
     "1 MINUTE, 4 MINUTES", "4 MINUTES FIDELITY 50 PERCENT OF TIME"],
)  # fmt: skip
@pytest.mark.parametrize("sharing", ["shared", "separate"])
def test_a_sum_that_becomes_too_large_costs_its_row(
    window: str, sharing: Sharing, batch: int, tmp_path: Path
) -> None:
    large = "n::DECIMAL(38,0) * 90000000000000000000000000000000000000"
    (tmp_path / "web.jsonl").write_text(
        lines(
            (0, "a", "", 1), (1, "b", "", 0), (70, "a", "", 1), (71, "b", "", 0), (140, "b", "", 1)
        )
    )
    jobs = f"CREATE JOB j AS SELECT k, sum({large}) AS x FROM logs GROUP BY k WINDOW {window};"
    notes: list[str] = []
    program = sql(STREAM.format(tmp_path) + GOOD + jobs)
    left = windows_inline(program, notes.append, ignore, batch, batch, sharing)
    results = [result for windows in left for result in windows.results()]
    found = {
        (result.start // 60_000_000, result.end // 60_000_000, row["k"])
        for result in results
        if result.job == "j"
        for row in result.rows.to_pylist()
    }
    assert notes
    assert all("failed on the window" in note and "k = 'a'" in note for note in notes[:1])
    assert all(not (start <= 0 and end > 1) for start, end, k in found if k == "a")
    assert any(k == "b" for _, _, k in found)
    assert len([result for result in results if result.job == "good"]) == 3


def test_sessions_leave_out_what_fails(logs: Path) -> None:
    jobs = (
        "CREATE JOB j AS SELECT k, sum(CAST(s AS INT)) AS n, 10 // (sum(CAST(s AS INT)) - 3) AS x "
        "FROM logs GROUP BY k WINDOW SESSION 20 SECONDS;"
    )
    for batch in (30, 1 << 20):
        notes, rows = told(logs, GOOD + jobs, batch)
        assert [note.split(" failed on ")[0] for note in notes] == [
            "job 'j': CAST(\"s\" AS INT)",
            "job 'j': column 'x'",
        ]
        assert "k = 'a'" in notes[1]
        assert rows["j"] == [(0, "a", 1, -5), (0, "b", 2, -10), (2, "a", 5, 5)]
        notes, rows = told(logs, f"{GOOD}{jobs[:-1]} MAX ERRORS 0;", batch)
        assert rows["j"] == [(0, "a", 1, -5), (0, "b", 2, -10)]


def test_the_filter_of_a_job_in_python_fails_for_it_alone(logs: Path) -> None:
    job = "CREATE JOB j AS PYTHON 'tests.python_jobs:Sums' FROM logs WHERE CAST(s AS INT) > 0 "
    notes, rows = told(logs, f"{GOOD}{job} WINDOW 1 MINUTE;")
    assert notes[0].startswith("job 'j': CAST(\"s\" AS INT) > 0 failed on s = 'x' (")
    assert notes[1].startswith("job 'j' stops: none is allowed (max_errors = 0)")
    assert {row[0] for row in rows["j"]} == {0}
    notes, rows = told(logs, f"{GOOD}{job} WINDOW 1 MINUTE MAX ERRORS 1;")
    assert len(notes) == 1
    assert {row[0] for row in rows["j"]} == {0, 1, 2}
    assert len(rows["good"]) == 5


@examples(8)
@given(question=questions(), logs=sources, batch=st.integers(200, 3000))
def test_spark_equals_a_plain_query_without_what_fails(
    spark: SparkSession, question: Careful, logs: dict[str, Sequence[Record]], batch: int
) -> None:
    from muntin.spark.runner import Settings, SparkRun

    with tempfile.TemporaryDirectory() as folder:
        write_logs(Path(folder), logs)
        settings = Settings(Path(folder) / "state", follow=False, batch_bytes=batch)
        program = sql(question.muntin(Path(folder)))
        turns = SparkRun(program, spark.sparkContext, settings).turns()
        found = rows_of(result for turn in turns for result in turn.emission.results())
    assert same(found, question.answer(logs)), (found, question.answer(logs))


def stopped(state: Path) -> dict[str, Any]:
    return {row["job"]: row["stopped"] for row in status(state)[0]}


JOBS = (
    "CREATE JOB j AS SELECT k, {} AS x FROM logs GROUP BY k WINDOW 1 MINUTE MAX ERRORS {};"
    "CREATE JOB same AS SELECT k, sum(CAST(s AS INT)) AS x FROM logs GROUP BY k WINDOW 1 MINUTE;"
)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (("sum(CAST(s AS INT))", 0), ("sum(TRY_CAST(s AS INT))", 0)),  # other cells
        (("sum(CAST(s AS INT))", 0), ("sum(CAST(s AS INT))", 5)),  # another limit
        (("sum(CAST(s AS INT)) // nullif(1, 0)", 0), ("sum(CAST(s AS INT))", 0)),  # the end alone
        (("100 // (sum(CAST(s AS INT)) - 3)", 0), ("sum(CAST(s AS INT))", 0)),
    ],
)
def test_a_job_that_has_stopped_goes_on_when_it_was_changed(
    before: tuple[str, int], after: tuple[str, int], spark: SparkSession, logs: Path
) -> None:
    from muntin.spark.runner import Settings, SparkRun

    settings = Settings(logs / "state", follow=False)

    def run(job: tuple[str, int], more: str) -> tuple[list[str], dict[str, list[int]]]:
        notes: list[str] = []
        minutes: dict[str, list[int]] = {}
        with (logs / "web.jsonl").open("a") as file:
            file.write(more)
        program = sql(STREAM.format(logs) + GOOD + JOBS.format(*job))
        for turn in SparkRun(program, spark.sparkContext, settings).turns():
            notes += turn.notes
            for result in turn.emission.results():
                minutes.setdefault(result.job, []).append(result.start // 60_000_000)
        return notes, minutes

    notes, minutes = run(before, "")
    assert len([note for note in notes if "job 'j' stops" in note]) == 1
    assert minutes == {"good": [0, 1, 2], "same": [0, 1, 2], "j": [0]}
    at = stopped(logs / "state")
    assert at["j"] is not None
    assert (
        datetime(1970, 1, 1, 0, 1, tzinfo=UTC) <= at["j"] < datetime(1970, 1, 1, 0, 2, tzinfo=UTC)
    )
    assert at["good"] is at["same"] is None
    # 190 to 200: a restart alone changes nothing.
    notes, minutes = run(before, lines((190, "a", "1", 1)))
    assert "job 'j' stopped in an earlier run" in "".join(notes)
    assert "failed on" not in "".join(notes)
    assert minutes == {"good": [3], "same": [3]}
    notes, minutes = run(after, lines((250, "a", "1", 1)))
    assert "stopped" not in "".join(notes)
    assert minutes == {"good": [4], "same": [4], "j": [4]}
    assert stopped(logs / "state")["j"] is None


def test_a_bad_value_in_a_frame_costs_its_record(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.json").write_text(LINES)
    (tmp_path / "in" / "2.json").write_text(lines(*[(900, "a", "1", 1)] * 3))
    schema = "t bigint, k string, s string, n bigint"
    frame = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
    job = "CREATE JOB {} AS SELECT sum(CAST(s AS INT)) AS x FROM logs WINDOW 1 MINUTE{};"
    jobs = job.format("j", "") + job.format("strict", " MAX ERRORS 0") + GOOD
    state = tmp_path / "state"
    query = mt.attach(
        frame.json(f"{tmp_path}/in"), jobs, stream="logs", timestamp="t", state=state, idle="1h"
    )
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    failed = " CAST(\"s\" AS INT) failed on s = 'x' (DataFrame logs): Could not convert string"
    told = [note for note in caplog.messages if "failed on" in note]
    assert sorted(note.partition(":")[0] for note in told) == ["job 'j'", "job 'strict'"]
    assert all(note.partition(":")[2].startswith(failed) for note in told)
    assert mt.results("j", state)["x"].to_pylist() == [3, 3, 5]
    assert mt.results("j", state)["records_failed"].to_pylist() == [0, 1, 0]
    assert mt.results("strict", state)["x"].to_pylist() == [3]
    assert mt.results("good", state).num_rows == 5


def test_a_stream_that_fails_takes_nothing_from_those_before_it(logs: Path) -> None:
    (logs / "damaged").mkdir()
    (logs / "damaged" / "a.log").write_text("nonsense\n")
    text = (
        f"{STREAM.format(logs)}{GOOD}CREATE STREAM damaged (t BIGINT) FROM '{logs}/damaged/a.log' "
        "FORMAT json TIMESTAMP t ON BAD ROW FAIL;"
        "CREATE JOB never AS SELECT count(*) AS c FROM damaged WINDOW 1 MINUTE;"
    )
    told: list[mt.Result] = []
    with pytest.raises(mt.InputError, match=r"damaged/a.log, line 1"):
        told.extend(mt.run(sql(text)))
    results = mt.run(sql(text))
    told = [next(results) for _ in range(3)]
    assert [(result.job, result.start) for result in told] == [
        ("good", minute * 60_000_000) for minute in range(3)
    ]


@dataclass(frozen=True)
class Narrow(Question):
    """Sums of a key in a column that has no room for most of them."""

    errors: int = 1000

    def muntin(self, folder: Path) -> str:
        text = super().muntin(folder).replace("sum(n) AS a0", "CAST(sum(n) AS TINYINT) AS a0")
        return f"{text[:-1]} MAX ERRORS {self.errors};"

    def answer(self, sources: dict[str, Sequence[Record]]) -> list[tuple[Any, ...]]:
        rows = super().answer(sources)
        ends = sorted(row[1] for row in rows if not _fits(row[-1]))
        upto = ends[self.errors] if len(ends) > self.errors else None
        return [row for row in rows if _fits(row[-1]) and (upto is None or row[1] < upto)]


def _fits(total: int | None) -> bool:
    return total is None or -128 <= total <= 127


@st.composite
def narrow(draw: st.DrawFn) -> Narrow:
    return Narrow(
        aggregates=("sum(n)",),
        keys=draw(st.sampled_from([(), ("k",), ("k", "source")])),
        where=None,
        having=None,
        limit=None,
        windows=tuple(draw(windows)),
        slack_s=draw(st.sampled_from([None, 0, 15])),
        errors=draw(st.sampled_from([0, 1, 4, 1000])),
    )


numbers = st.lists(
    st.fixed_dictionaries(
        {
            "t": st.integers(-100, 200),
            "k": st.sampled_from(["a", "b", None]),
            "s": st.none(),
            "n": st.sampled_from([None, 1, 100, -100]),
            "x": st.none(),
        }
    ),
    max_size=30,
)


@examples(80)
@given(
    question=narrow(),
    logs=st.dictionaries(st.sampled_from(["web-1", "web-2"]), numbers, min_size=1),
    batch=st.integers(1, 3000),
    sharing=st.sampled_from(["auto", "shared", "separate"]),
)
def test_inline_equals_a_plain_query_without_rows_that_fail(
    question: Narrow, logs: dict[str, Sequence[Record]], batch: int, sharing: Sharing
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        write_logs(Path(folder), logs)
        program = sql(question.muntin(Path(folder)))
        leaving = windows_inline(program, batch_bytes=batch, piece_bytes=batch, sharing=sharing)
        found = rows_of(result for windows in leaving for result in windows.results())
    assert same(found, question.answer(logs)), (found, question.answer(logs))


def test_spark_fails_on_what_fails_inline(spark: SparkSession, tmp_path: Path) -> None:
    """Final expressions, sessions and sums that become too large when steps are merged."""
    from muntin.spark.runner import Settings, SparkRun

    every = [(i, "abc"[i % 3], "x" if i == 200 else str(i), i % 2) for i in range(400)]
    (tmp_path / "web.jsonl").write_text(lines(*every))
    large = "n::DECIMAL(38,0) * 30000000000000000000000000000000000000"
    ask = "CREATE JOB {} AS SELECT k, {} AS x FROM logs GROUP BY k WINDOW {};"
    jobs = [
        GOOD,
        ask.format("final", "sum(n) // (CASE WHEN k = 'b' THEN 0 ELSE 1 END)", "1 MINUTE"),
        ask.format("visits", "sum(CAST(s AS INT)) // (k = 'c')::INT", "SESSION 10 SECONDS"),
        ask.format("long", f"sum({large})", "4 SECONDS, 1 MINUTE EVERY 10 SECONDS"),
        ask.format("strict", f"sum({large})", "4 SECONDS, 1 MINUTE MAX ERRORS 0"),
    ]
    stream = STREAM.format(tmp_path).replace("TIMESTAMP t", "TIMESTAMP t SLACK 0 SECONDS")
    program = sql(stream + "".join(jobs))

    def rows(results: Iterable[mt.Result]) -> Counter[tuple[Any, ...]]:
        return Counter(
            (r.job, r.start, r.end, r.counts, *row.values())
            for r in results
            for row in r.rows.to_pylist()
        )

    inline = windows_inline(program, batch_bytes=2000, piece_bytes=700)
    wanted = rows(result for windows in inline for result in windows.results())
    assert {row[0] for row in wanted} == {"good", "final", "visits", "long", "strict"}
    assert max(row[2] for row in wanted if row[0] == "strict") == 56_000_000  # before the minute
    settings = Settings(tmp_path / "state", follow=False, batch_bytes=2000)
    turns = list(SparkRun(program, spark.sparkContext, settings).turns())
    assert len(turns) > 5
    assert rows(result for turn in turns for result in turn.emission.results()) == wanted
