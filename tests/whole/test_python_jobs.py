"""Jobs in Python: the same rows inline, on Spark, after a restart and record by record."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin.fidelity.score import Reason
from muntin.language.program import load, sql, with_job
from muntin.model.jobs import Program
from muntin.run.inline import InlineRun, windows_inline
from muntin.run.loop import Rules
from muntin.run.results import Result
from tests.effort import examples
from tests.oracle import Question, Record, Window, write_logs
from tests.python_jobs import JOBS, Tops
from tests.whole.test_answers import sources, windows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STREAM = (
    "CREATE STREAM logs (t BIGINT, k VARCHAR, s VARCHAR, n BIGINT, x DOUBLE) "
    "FROM '{folder}/{{source}}.jsonl' FORMAT json TIMESTAMP t{slack};"
)
Rows = list[tuple[Any, ...]]
slacks = st.sampled_from([None, None, 0, 15])


def program(folder: Path, over: Sequence[Window], slack: int | None) -> Program:
    late = "" if slack is None else f" SLACK {slack} SECONDS"
    found = sql(STREAM.format(folder=folder, slack=late))
    text = ", ".join(window.muntin() for window in over)
    for job in JOBS:
        found = with_job(found, job.__name__, job, stream="logs", where="n <> 3", window=text)
    return found


def rows_of(results: Iterable[Result]) -> dict[str, Rows]:
    found: dict[str, Rows] = {job.__name__: [] for job in JOBS}
    for result in results:
        bounds = result.start // 1_000_000, result.end // 1_000_000
        rows = [tuple(row.values()) for row in result.rows.to_pylist()]
        assert rows == sorted(rows, key=order), "rows come in the order of their columns"
        found[result.job] += [(*bounds, *row) for row in rows]
    return {name: sorted(rows, key=order) for name, rows in found.items()}


def order(row: tuple[Any, ...]) -> list[tuple[bool, Any]]:
    return [(value is None, 0 if value is None else value) for value in row]


def unexpected(note: str) -> None:
    """Which way windows are made may change at any time, and some leave room between them."""
    assert " goes on with " in note or " start further apart than they are long" in note, note


def expected(
    logs: dict[str, Sequence[Record]], over: Sequence[Window], slack: int | None
) -> dict[str, Rows]:
    question = Question((), (), None, None, None, tuple(over), slack)
    found: dict[str, Rows] = {job.__name__: [] for job in JOBS}
    for window in over:
        held: dict[int, list[Record]] = {}
        for source, records in logs.items():
            for record, starts in question._starts(window, records):
                for start in starts:
                    held.setdefault(start, []).append({**record, "source": source})
        for start, records in held.items():
            mine = [record for record in records if record["n"] not in (3, None)]
            for job in JOBS:
                answers = job.answer(mine)
                found[job.__name__] += [(start, start + window.range_s, *a) for a in answers]
    return {name: sorted(rows, key=order) for name, rows in found.items()}


@examples(60)
@given(sources, windows, slacks, st.integers(1, 3000), st.integers(1, 1500))
def test_inline_equals_record_by_record(
    logs: dict[str, Sequence[Record]],
    over: list[Window],
    slack: int | None,
    batch: int,
    piece: int,
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        write_logs(Path(folder), logs)
        leaving = windows_inline(
            program(Path(folder), over, slack), unexpected, batch_bytes=batch, piece_bytes=piece
        )
        found = rows_of(result for each in leaving for result in each.results())
    assert found == expected(logs, over, slack)


@pytest.mark.usefixtures("spark")
@examples(8)
@given(sources, windows, slacks, st.integers(200, 3000), st.integers(1, 3))
def test_spark_equals_record_by_record_also_after_a_restart(
    spark: SparkSession,
    logs: dict[str, Sequence[Record]],
    over: list[Window],
    slack: int | None,
    batch: int,
    stop_after: int,
) -> None:
    from muntin.spark.runner import Settings, SparkRun

    with tempfile.TemporaryDirectory() as folder:
        write_logs(Path(folder), logs)
        how = Settings(Path(folder) / "state", follow=False, batch_bytes=batch)
        results: list[Result] = []
        for steps_at_most in (stop_after, 10_000):
            run = SparkRun(program(Path(folder), over, slack), spark.sparkContext, how)
            steps = run.turns()
            for number, step in enumerate(steps):
                results += step.emission.results()
                if number + 1 >= steps_at_most:
                    break
            steps.close()  # type: ignore[attr-defined]
    assert rows_of(results) == expected(logs, over, slack)


MODULE = """
from helping import split

class Words:
    window = "1 MINUTE"

    def mapper(self, _, line):
        for word in split(line):
            yield word, 1

    def reducer(self, word, ones):
        yield word, sum(ones)
"""


def test_modules_beside_the_sql_file_reach_workers(spark: SparkSession, tmp_path: Path) -> None:
    from muntin.api import run_on_spark

    (tmp_path / "counting.py").write_text(MODULE)
    (tmp_path / "helping.py").write_text("def split(line):\n    return line.split()[1:]\n")
    (tmp_path / "a.log").write_text("1 x y x\n2 y\n")
    (tmp_path / "jobs.sql").write_text(
        f"CREATE STREAM lines FROM '{tmp_path}/*.log' FORMAT text "
        "TIMESTAMP CAST(split_part(line, ' ', 1) AS BIGINT);"
        "CREATE JOB words AS PYTHON 'counting:Words' FROM lines;"
    )
    (result,) = run_on_spark(load(tmp_path / "jobs.sql"), tmp_path / "state", spark)
    assert result.rows.to_pylist() == [{"key": '"x"', "value": "2"}, {"key": '"y"', "value": "2"}]


def test_classes_defined_anywhere_reach_workers(spark: SparkSession, tmp_path: Path) -> None:
    from muntin.api import run_on_spark

    class Local:
        window = "1 MINUTE"

        def mapper(self, _: None, record: Record) -> Iterable[tuple[Any, Any]]:
            return [({"n": record["n"]}["n"], frozenset([record["k"]]))]

        def reducer(self, key: Any, values: Iterable[Any]) -> Iterable[tuple[Any, Any]]:
            yield key, frozenset().union(*values)

    write_logs(tmp_path, {"a": [{"t": 1, "k": "x", "n": 1}, {"t": 2, "k": "y", "n": 1}]})
    local = with_job(sql(STREAM.format(folder=tmp_path, slack="")), "local", Local, stream="logs")
    (result,) = run_on_spark(local, tmp_path / "state", spark)
    assert result.rows.to_pylist() == [{"key": "1", "value": '["x", "y"]'}]


class Alarms(Tops):
    """The same, which nobody waits for longer than half a second."""

    within = "500 MILLISECONDS"


@pytest.mark.parametrize(("job", "at"), [(Alarms, 1002), (Tops, 1011)])
def test_what_update_yields_leaves_with_the_batch_after_its_step(
    job: type[Tops], at: int, tmp_path: Path
) -> None:
    """Steps are of a second. A bound lets one leave though a server says nothing any more.

    What it yields is shown at once, as what is so far.
    """
    (tmp_path / "quiet.jsonl").write_text('{"t": 990, "n": 1}\n')
    stream = f"CREATE STREAM s (t BIGINT, n BIGINT) FROM '{tmp_path}/{{source}}.jsonl' "
    program = with_job(sql(stream + "FORMAT json TIMESTAMP t;"), "j", job, stream="s")
    run = InlineRun(program.streams["s"], list(program.jobs.values()), Rules(True, 10.0))
    run.turn(990.0)
    (tmp_path / "busy.jsonl").write_text('{"t": 1000, "n": 1}\n{"t": 1000, "n": 3}\n')
    told: dict[tuple[int, bool], list[int]] = {}
    for now in range(1000, 1015):
        for result in run.turn(float(now)).results():
            values = [r["n"] for r in result.rows.to_pylist() if r["source"] == "busy"]
            told.setdefault((now, result.c2.reason is Reason.OPEN), []).extend(values)
    assert {when: values for when, values in told.items() if values} == {
        (1000, True): [1, 3],
        (at, False): [1, 3],
    }
