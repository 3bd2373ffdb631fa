"""Many jobs on one stream: each answers as if it were alone, and Spark has no more to do for it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from muntin.kernel import compute as computing
from muntin.kernel.together import WORTH_SHARING
from muntin.language.program import sql
from muntin.run.inline import windows_inline
from muntin.run.results import Result
from tests.effort import examples
from tests.oracle import Question, Record, Window, same, write_logs
from tests.whole.test_answers import questions, rows_of, sources

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

many = st.tuples(st.lists(questions(), min_size=2, max_size=6), st.sampled_from([None, 0, 15]))

SHARING_WINDOWS = Question(
    ("arg_max(n, x)", "arg_max(s, n, 2)", "arg_min(s, x)"),
    (),
    None,
    "count(*) > 1",
    None,
    (Window(60, 60), Window(90, 60)),
    None,
)


def program_of(asked: Iterable[Question], folder: Path) -> str:
    """All questions over one stream, as jobs j0, j1, …"""
    texts = [question.muntin(folder).split("CREATE JOB", 1) for question in asked]
    jobs = [job.replace(" job ", f" j{number} ", 1) for number, (_, job) in enumerate(texts)]
    return texts[0][0] + "".join(f"CREATE JOB{job}" for job in jobs)


def assert_each_is_answered(
    asked: Sequence[Question], logs: dict[str, Sequence[Record]], results: Sequence[Result]
) -> None:
    for number, question in enumerate(asked):
        mine = rows_of(result for result in results if result.job == f"j{number}")
        wanted = question.answer(logs)
        assert same(mine, wanted), (number, mine, wanted)


@examples(25)
@given(
    many,
    sources,
    st.integers(100, 3000),
    st.integers(100, 1500),
    st.sampled_from([1, WORTH_SHARING]),
)
@example(
    ([SHARING_WINDOWS, SHARING_WINDOWS], None),
    {"web-1": [{"t": 0, "k": None, "s": None, "n": None, "x": None}]},
    100,
    100,
    1,
)
def test_each_job_answers_as_if_it_were_alone(
    several: tuple[list[Question], int | None],
    logs: dict[str, Sequence[Record]],
    batch: int,
    piece: int,
    worth: int,
) -> None:
    asked = [replace(question, slack_s=several[1]) for question in several[0]]
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(computing, "WORTH_SHARING", worth)
        write_logs(Path(folder), logs)
        program = sql(program_of(asked, Path(folder)))
        leaving = windows_inline(program, batch_bytes=batch, piece_bytes=piece)
        results = [result for windows in leaving for result in windows.results()]
    assert_each_is_answered(asked, logs, results)


@pytest.mark.usefixtures("spark")
@examples(4)
@given(many, sources)
def test_each_job_answers_on_spark_as_if_it_were_alone(
    spark: SparkSession,
    several: tuple[list[Question], int | None],
    logs: dict[str, Sequence[Record]],
) -> None:
    from muntin.spark.runner import Settings, SparkRun

    asked = [replace(question, slack_s=several[1]) for question in several[0]]
    with tempfile.TemporaryDirectory() as folder:
        write_logs(Path(folder), logs)
        program = sql(program_of(asked, Path(folder)))
        settings = Settings(Path(folder) / "state", follow=False)
        turns = SparkRun(program, spark.sparkContext, settings).turns()
        results = [result for turn in turns for result in turn.emission.results()]
    assert_each_is_answered(asked, logs, results)


def jobs_of(spark: SparkSession) -> int:
    """How many jobs Spark has had; what its status knows comes later, and is forgotten."""
    return int(spark.sparkContext._jsc.sc().dagScheduler().numTotalJobs())


def test_spark_has_as_many_jobs_for_many_of_ours(spark: SparkSession, tmp_path: Path) -> None:
    from muntin.spark.runner import Settings, SparkRun

    logs: dict[str, Sequence[Record]] = {
        "web": [{"t": t, "k": "ab"[t % 2], "s": "x", "n": t, "x": 0.5} for t in range(100)]
    }
    write_logs(tmp_path, logs)
    jobs = "CREATE JOB j{n} AS SELECT k, count(*) AS c FROM logs WHERE n > {n} GROUP BY k "
    stream = "CREATE STREAM logs (t BIGINT, k VARCHAR, n BIGINT) FROM '{folder}/{{source}}.jsonl' "
    counted = []
    for count in (1, 40):
        texts = [jobs.format(n=n) + "WINDOW 20 SECONDS;" for n in range(count)]
        text = stream.format(folder=tmp_path) + "FORMAT json TIMESTAMP t;" + "".join(texts)
        before = jobs_of(spark)
        settings = Settings(tmp_path / f"state{count}", follow=False)
        for _ in SparkRun(sql(text), spark.sparkContext, settings).turns():
            pass
        counted.append(jobs_of(spark) - before)
    assert counted[0] == counted[1] > 0
