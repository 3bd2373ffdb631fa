"""Jobs without windows: states live on through batches and restarts, and update in time order."""

from __future__ import annotations

import tempfile
from collections.abc import Generator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin.errors import LanguageError
from muntin.kernel.python.jobs import Incremental, Pair
from muntin.language.program import sql, with_job
from muntin.model.jobs import Program
from muntin.run.inline import windows_inline
from muntin.run.results import Result
from tests.effort import examples
from tests.oracle import Question, Record, Window, write_logs
from tests.whole.test_answers import sources
from tests.whole.test_python_jobs import STREAM, order, slacks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Rows = list[tuple[Any, ...]]
PANE = Window(10, 10)


class Thirds(Incremental):
    """Tells every third value of a key, with the two before it."""

    every = "10 SECONDS"
    columns = {"k": "VARCHAR", "seen": "BIGINT", "values": "BIGINT[]"}  # noqa: RUF012

    def map(self, _: None, record: Record) -> Iterator[Pair]:
        yield record["k"], record["n"]

    def init(self, key: Any) -> tuple[int, list[Any]]:
        return 0, []

    def update(
        self, key: Any, state: tuple[int, list[Any]], value: Any
    ) -> Generator[Pair, None, tuple[int, list[Any]]]:
        seen, values = state
        values.append(value)
        if len(values) == 3:
            yield key, (seen + 1, values)
            values = []
        return seen + 1, values


def program(folder: Path, slack: int | None) -> Program:
    late = "" if slack is None else f" SLACK {slack} SECONDS"
    stream = sql(STREAM.format(folder=folder, slack=late))
    return with_job(stream, "thirds", Thirds, stream="logs")


def expected(logs: dict[str, Sequence[Record]], slack: int | None) -> Rows:
    question = Question((), (), None, None, None, (PANE,), slack)
    kept = [
        (record["t"], source, number, record)
        for source, records in logs.items()
        for number, (record, starts) in enumerate(question._starts(PANE, records))
        if starts
    ]
    rows: Rows = []
    seen: dict[Any, list[Any]] = {}
    for time, _, _, record in sorted(kept, key=lambda each: each[:3]):
        mine = seen.setdefault(record["k"], [])
        mine.append(record["n"])
        if len(mine) % 3 == 0:
            start = time // 10 * 10
            rows.append((start, start + 10, record["k"], len(mine), mine[-3:]))
    return sorted(rows, key=order_of)


def order_of(row: tuple[Any, ...]) -> list[Any]:
    return order(row[:4])


def rows_of(results: Iterable[Result]) -> Rows:
    found = [
        (result.start // 1_000_000, result.end // 1_000_000, *row.values())
        for result in results
        for row in result.rows.to_pylist()
    ]
    return sorted(found, key=order_of)


@examples(80)
@given(sources, slacks, st.integers(1, 3000), st.integers(1, 1500))
def test_inline_equals_one_pass_in_time_order(
    logs: dict[str, Sequence[Record]], slack: int | None, batch: int, piece: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        write_logs(Path(folder), logs)
        leaving = windows_inline(
            program(Path(folder), slack), pytest.fail, batch_bytes=batch, piece_bytes=piece
        )
        found = rows_of(result for each in leaving for result in each.results())
    assert found == expected(logs, slack)


@pytest.mark.usefixtures("spark")
@examples(10)
@given(sources, st.sampled_from([0, 15, None]), st.integers(200, 2000), st.integers(1, 4))
def test_spark_equals_one_pass_also_after_restarts(
    spark: SparkSession,
    logs: dict[str, Sequence[Record]],
    slack: int | None,
    batch: int,
    stop_after: int,
) -> None:
    from muntin.spark.runner import Settings, SparkRun

    with tempfile.TemporaryDirectory() as folder:
        write_logs(Path(folder), logs)
        how = Settings(Path(folder) / "state", follow=False, batch_bytes=batch)
        results: list[Result] = []
        for steps_at_most in (stop_after, stop_after, 10_000):
            steps = SparkRun(program(Path(folder), slack), spark.sparkContext, how).turns()
            for number, step in enumerate(steps):
                results += step.emission.results()
                if number + 1 >= steps_at_most:
                    break
            steps.close()  # type: ignore[attr-defined]
    assert rows_of(results) == expected(logs, slack)


def test_every_is_one_length(tmp_path: Path) -> None:
    class Twice(Thirds):
        every = "10 SECONDS EVERY 5 SECONDS"

    with pytest.raises(LanguageError) as found:
        with_job(program(tmp_path, None), "twice", Twice, stream="logs")
    assert "is one length, as in 10 SECONDS" in str(found.value)


def test_without_windows_no_panes_are_chosen(tmp_path: Path) -> None:
    class Choosy(Thirds):
        fidelity = "90 PERCENT OF SPACE"

    with pytest.raises(LanguageError, match="OF SPACE chooses panes of a window, but this job has"):
        with_job(program(tmp_path, None), "choosy", Choosy, stream="logs")


def test_a_state_has_a_limit(tmp_path: Path) -> None:
    class Hoards(Thirds):
        max_state = 300

        def update(self, key: Any, state: Any, value: Any) -> Any:
            return state[0], [*state[1], "x" * 100]

    logs: dict[str, Sequence[Record]] = {
        "a": [{"t": t, "k": "k", "n": 1} for t in range(0, 100, 10)]
    }
    write_logs(tmp_path, logs)
    both = with_job(program(tmp_path, 0), "hoards", Hoards, stream="logs")
    notes: list[str] = []
    found = [r.job for each in windows_inline(both, notes.append) for r in each.results()]
    assert set(found) == {"thirds"}
    assert notes[0].startswith("job 'hoards': update failed on key 'k': its state takes ")
    assert "return None to forget a key" in notes[0]


class Awaits(Incremental):
    """Keys that are not over yet: `n` of 0 is the end of one."""

    every = "10 SECONDS"
    columns = {"k": "VARCHAR", "n": "BIGINT"}  # noqa: RUF012
    max_keys = 3

    def map(self, _: None, record: Record) -> Iterator[Pair]:
        yield record["k"], record["n"]

    def init(self, key: Any) -> int:
        return 0

    def update(self, key: Any, state: int, value: int) -> Generator[Pair, None, int | None]:
        yield key, state + value
        return state + value if value else None


NOTHING: Record = {"s": None, "x": None}  # columns that are declared and empty


def awaited(folder: Path, records: Sequence[tuple[int, str, int]], errors: int = 0) -> Program:
    write_logs(folder, {"a": [NOTHING | {"t": t, "k": k, "n": n} for t, k, n in records]})
    job = type("Awaits", (Awaits,), {"max_errors": errors})
    stream = sql(STREAM.format(folder=folder, slack=" SLACK 0 SECONDS"))
    return with_job(with_job(stream, "awaits", job, stream="logs"), "thirds", Thirds, stream="logs")


#         0     10    20    30       40
MANY = [(0, "a", 1), (10, "b", 1), (20, "c", 1), (30, "d", 1), (31, "e", 1), (40, "a", 1)]
OVER = [(0, "a", 1), (10, "b", 1), (20, "c", 1), (30, "a", 0), (35, "d", 1), (40, "a", 0)]


@pytest.mark.parametrize("errors", [0, 5])
@pytest.mark.parametrize("batch", [40, 1 << 20])
def test_more_keys_than_allowed_stop_the_job(tmp_path: Path, batch: int, errors: int) -> None:
    notes: list[str] = []
    leaving = windows_inline(awaited(tmp_path, MANY, errors), notes.append, batch_bytes=batch)
    found = [(r.job, row) for r in results_of(leaving) for row in rows_of([r])]
    assert [row for job, row in found if job == "awaits"] == [
        (0, 10, "a", 1),
        (10, 20, "b", 1),
        (20, 30, "c", 1),
    ]
    assert notes == [
        "job 'awaits': update failed on 5 keys: that is more than max_keys, 3, of which the state "
        "is kept; let update return None for keys that are over, or set a larger max_keys",
        "job 'awaits' stops; its windows from there on are left out, and other jobs go on",
    ]


@pytest.mark.parametrize("batch", [40, 1 << 20])
def test_keys_that_are_forgotten_make_room(tmp_path: Path, batch: int) -> None:
    leaving = windows_inline(awaited(tmp_path, OVER), pytest.fail, batch_bytes=batch)
    rows = [row[2:] for r in results_of(leaving) if r.job == "awaits" for row in rows_of([r])]
    assert rows == [("a", 1), ("b", 1), ("c", 1), ("a", 1), ("d", 1), ("a", 0)]


def test_keys_of_all_groups_are_counted_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    from muntin.api import run_on_spark

    many = [(t, f"k{n}", 1) for n, t in enumerate(range(0, 300, 10))]
    notes: list[str] = []
    program_ = awaited(tmp_path, many, errors=2)
    results = run_on_spark(program_, tmp_path / "state", spark, note=notes.append)
    assert {r.end // 1_000_000 for r in results if r.job == "awaits"} == {10, 20, 30}
    assert [note.partition(":")[2][:22] for note in notes if "max_keys" in note] == [
        " update failed on 4 ke"
    ]


def results_of(leaving: Iterable[Any]) -> Iterator[Result]:
    return (result for windows in leaving for result in windows.results())
