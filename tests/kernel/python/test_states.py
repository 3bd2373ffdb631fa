"""Aggregates in Python inside SQL: what plain Python makes of each window's values."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin.errors import LanguageError
from muntin.language.program import sql
from muntin.run.inline import windows_inline
from tests.effort import examples
from tests.oracle import Question, Record, Window, write_logs
from tests.whole.test_answers import sources, windows
from tests.whole.test_python_jobs import STREAM, order, slacks, unexpected

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Rows = list[tuple[Any, ...]]


class Second:
    """The second largest of the different values, in a state that merging changes in place."""

    returns = "BIGINT"

    def zero(self) -> set[int]:
        return set()

    def add(self, state: set[int], value: int) -> set[int]:
        state.add(value)
        return state

    def merge(self, a: set[int], b: set[int]) -> set[int]:
        a |= b
        return a

    def finish(self, state: set[int]) -> int | None:
        return sorted(state)[-2] if len(state) > 1 else None


class Weighted:
    """How often each text came, weighted; what leaves a window can be removed."""

    returns = "VARCHAR"

    def zero(self) -> Counter[str]:
        return Counter()

    def add(self, state: Counter[str], text: str, weight: int) -> Counter[str]:
        state[text] += weight
        return state

    def merge(self, a: Counter[str], b: Counter[str]) -> Counter[str]:
        return Counter({text: a[text] + b[text] for text in {*a, *b}})

    def remove(self, whole: Counter[str], part: Counter[str]) -> Counter[str]:
        return Counter({text: whole[text] - part[text] for text in whole})

    def finish(self, state: Counter[str]) -> str:
        return " ".join(f"{text}={weight}" for text, weight in sorted(state.items()) if weight)


class Fails(Weighted):
    def add(self, state: Counter[str], text: str, weight: int) -> Counter[str]:
        raise ArithmeticError("no")


class Mistyped(Second):
    def finish(self, state: set[int]) -> Any:
        return "text"


class Half:
    def zero(self) -> int:
        return 0


def text(folder: Path, over: Sequence[Window], slack: int | None, extra: str) -> str:
    late = "" if slack is None else f" SLACK {slack} SECONDS"
    return (
        STREAM.format(folder=folder, slack=late)
        + "CREATE AGGREGATE runner_up AS PYTHON 'tests.kernel.python.test_states:Second';"
        + "CREATE AGGREGATE weighted AS PYTHON 'tests.kernel.python.test_states:Weighted';"
        + f"CREATE JOB job AS SELECT k, weighted(s, n) FILTER (WHERE n < 5) AS w{extra} FROM logs "
        + f"GROUP BY k WINDOW {', '.join(window.muntin() for window in over)}"
    )


def answer(records: list[Record], extra: str) -> Rows:
    rows: Rows = []
    for key in {record["k"] for record in records}:
        mine = [record for record in records if record["k"] == key]
        weighted = [r for r in mine if r["s"] is not None and r["n"] is not None and r["n"] < 5]
        counts: Counter[str] = Counter()
        for record in weighted:
            counts[record["s"]] += record["n"]
        told = " ".join(f"{s}={n}" for s, n in sorted(counts.items()) if n)
        row: tuple[Any, ...] = (key, told if weighted else None)
        if extra:
            numbers = sorted({r["n"] for r in mine if r["n"] is not None})
            row += (numbers[-2] if len(numbers) > 1 else None, len(mine))
        rows.append(row)
    return rows


@examples(60)
@given(
    sources,
    windows,
    slacks,
    st.sampled_from(["", ", runner_up(n) AS second, count(*) AS records"]),
    st.integers(1, 3000),
    st.integers(1, 1500),
)
def test_aggregates_equal_plain_python(
    logs: dict[str, Sequence[Record]],
    over: list[Window],
    slack: int | None,
    extra: str,
    batch: int,
    piece: int,
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        write_logs(Path(folder), logs)
        program = sql(text(Path(folder), over, slack, extra))
        found: Rows = []
        for each in windows_inline(program, unexpected, batch_bytes=batch, piece_bytes=piece):
            for result in each.results():
                bounds = result.start // 1_000_000, result.end // 1_000_000
                found += [(*bounds, *row.values()) for row in result.rows.to_pylist()]
    assert sorted(found, key=order) == expected(logs, over, slack, extra)


def expected(
    logs: dict[str, Sequence[Record]], over: Sequence[Window], slack: int | None, extra: str
) -> Rows:
    question = Question((), (), None, None, None, tuple(over), slack)
    found: Rows = []
    for window in over:
        held: dict[int, list[Record]] = {}
        for records in logs.values():
            for record, starts in question._starts(window, records):
                for start in starts:
                    held.setdefault(start, []).append(record)
        for start, inside in held.items():
            found += [(start, start + window.range_s, *row) for row in answer(inside, extra)]
    return sorted(found, key=order)


def test_aggregates_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    from muntin.api import run_on_spark

    logs: dict[str, Sequence[Record]] = {
        "a": [{"t": t, "k": "k", "s": "s", "n": t % 7, "x": 0.5} for t in range(100)],
        "b": [{"t": t, "k": None, "s": "r", "n": t % 5, "x": 0.5} for t in range(100)],
    }
    write_logs(tmp_path, logs)
    over = [Window(60, 10), Window(20, 20)]
    extra = ", runner_up(n) AS second, count(*) AS records"
    program = sql(text(tmp_path, over, None, extra))
    found: Rows = []
    for result in run_on_spark(program, tmp_path / "state", spark):
        bounds = result.start // 1_000_000, result.end // 1_000_000
        found += [(*bounds, *row.values()) for row in result.rows.to_pylist()]
    assert sorted(found, key=order) == expected(logs, over, None, extra)


@pytest.mark.parametrize(
    ("name", "call", "message"),
    [
        ("Fails", "broken(s, n)", "broken.add failed on 'x', 1: ArithmeticError: no"),
        ("Mistyped", "broken(n)", "broken.finish failed on a state: "),
    ],
)
def test_a_failing_aggregate_stops_its_job_alone(
    name: str, call: str, message: str, tmp_path: Path
) -> None:
    write_logs(tmp_path, {"a": [{"t": 1, "k": "k", "s": "x", "n": 1, "x": 0.5}]})
    program = sql(
        STREAM.format(folder=tmp_path, slack="")
        + f"CREATE AGGREGATE broken AS PYTHON 'tests.kernel.python.test_states:{name}';"
        + f"CREATE JOB failing AS SELECT {call} AS x FROM logs WINDOW 1 MINUTE;"
        + "CREATE JOB good AS SELECT count(*) AS n FROM logs WINDOW 1 MINUTE;"
    )
    notes: list[str] = []
    found = [r.job for each in windows_inline(program, notes.append) for r in each.results()]
    assert found == ["good"]
    assert notes[0].startswith(f"job 'failing': {message}")
    assert notes[1].startswith("job 'failing' stops")


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("CREATE AGGREGATE a AS PYTHON 'tests.kernel.python.test_states:Half'", "has no add; an"),
        ("CREATE AGGREGATE a AS PYTHON 'tests.kernel.python.test_states:No'", "has no 'No'"),
        (
            "CREATE AGGREGATE sum AS PYTHON 'tests.kernel.python.test_states:Second'",
            "already a function",
        ),
        ("CREATE AGGREGATE a AS SQL", "expected AS PYTHON 'module:object'"),
        (
            "CREATE AGGREGATE a AS PYTHON 'tests.kernel.python.test_states:Second';"
            "CREATE JOB j AS SELECT a(DISTINCT n) AS x FROM logs WINDOW 1 DAY",
            "a takes values, without DISTINCT",
        ),
        (
            "CREATE AGGREGATE a AS PYTHON 'tests.kernel.python.test_states:Second';"
            "CREATE JOB j AS SELECT k, a(n) AS x FROM logs GROUP BY k WINDOW SESSION 1 DAY",
            "cannot be used over sessions",
        ),
    ],
)
def test_what_is_no_aggregate_is_refused(statement: str, message: str) -> None:
    with pytest.raises(LanguageError) as found:
        sql(STREAM.format(folder="nowhere", slack="") + statement)
    assert message in str(found.value)


class Fragile:
    max_errors = 1000
    returns = "BIGINT"

    def zero(self) -> int:
        return 0

    def add(self, state: int, value: int) -> int:
        if value == 25:
            raise ValueError("bad 25")
        return state + value

    def merge(self, a: int, b: int) -> int:
        return a + b

    def remove(self, whole: int, part: int) -> int:
        return whole - part

    def finish(self, state: int) -> int:
        return state


class Irremovable(Fragile):
    def remove(self, whole: int, part: int) -> int:
        raise ValueError("not me")


@pytest.mark.parametrize("batch", [100, 1 << 29])
def test_a_state_that_failed_leaves_with_its_pane(batch: int, tmp_path: Path) -> None:
    write_logs(tmp_path, {"a": [{"t": t, "k": "k", "n": t} for t in range(60)]})
    program = sql(
        STREAM.format(folder=tmp_path, slack=" SLACK 0 SECONDS")
        + "CREATE AGGREGATE fragile AS PYTHON 'tests.kernel.python.test_states:Fragile';"
        + "CREATE JOB job AS SELECT fragile(n) AS x FROM logs WINDOW 20 SECONDS EVERY 5 SECONDS;"
    )
    found = {}
    for each in windows_inline(program, lambda _: None, batch_bytes=batch):
        for result in each.results():
            found[result.end // 1_000_000] = result.rows["x"].to_pylist()
    for end in range(5, 80, 5):
        there = [t for t in range(60) if end - 20 <= t < end]
        assert found[end] == [None if 25 in there else sum(there)]


def test_a_remove_that_fails_is_told(tmp_path: Path) -> None:
    write_logs(tmp_path, {"a": [{"t": t, "k": "k", "n": 1} for t in range(60)]})
    program = sql(
        STREAM.format(folder=tmp_path, slack="")
        + "CREATE AGGREGATE stays AS PYTHON 'tests.kernel.python.test_states:Irremovable';"
        + "CREATE JOB job AS SELECT stays(n) AS x FROM logs WINDOW 20 SECONDS EVERY 5 SECONDS;"
    )
    notes: list[str] = []
    list(windows_inline(program, notes.append))
    message = "job 'job': stays.remove failed on two states: ValueError: not me ("
    assert any(note.startswith(message) for note in notes)
