"""Errors of Spark and its workers are one sentence, with what to do and where the rest is."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

import muntin as mt
from muntin.errors import LostError
from muntin.language.program import with_job
from muntin.spark.runner import Settings, SparkRun
from muntin.spark.trouble import explained, is_lost, last_words, sentence
from tests.spark.test_runner import STREAM, stored, write


def fails(_: Iterable[int]) -> Iterable[int]:
    raise ValueError("something\nof two lines")


def dies(_: Iterable[int]) -> Iterable[int]:
    os.kill(os.getpid(), signal.SIGKILL)
    return []


def run(spark: SparkSession, task: object, details: Path) -> str:
    numbers = spark.sparkContext.parallelize([1], 1)
    with pytest.raises(mt.SparkError) as raised, explained(details):
        numbers.mapPartitions(task).collect()  # type: ignore[arg-type]
    return str(raised.value)


def test_what_a_task_raised_is_told(spark: SparkSession, tmp_path: Path) -> None:
    told = run(spark, fails, tmp_path)
    assert told.startswith("a task of Spark failed with ValueError: something; what was committed")
    assert told.endswith(f"details are in {tmp_path / 'spark-error.txt'}")
    assert "of two lines" in (tmp_path / "spark-error.txt").read_text()


def test_a_worker_that_was_killed_is_told(spark: SparkSession, tmp_path: Path) -> None:
    told = run(spark, dies, tmp_path / "none")
    assert told.startswith("a Python worker of Spark was killed or has crashed")
    assert told.endswith("the next run goes on from there")  # there is no folder for details


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("An error occurred while calling o715.put", "the Java process of Spark was killed or has"),
        (
            "Traceback (most recent call last):\n  File 'w.py', line 75, in read_command\n"
            "ModuleNotFoundError: No module named 'muntin'\n",
            "the Python of Spark's tasks has no Muntin: it is python3 on the PATH, unless "
            "PYSPARK_PYTHON names another before the session begins",
        ),
        ("[Errno 111] Connection refused", "the Java process of Spark was killed or has"),
        (
            "SparkException: Job aborted due to stage failure: Task 0 in stage 3.0 failed 4 times, "
            "most recent failure: Lost task 0.3 in stage 3.0 (TID 9): ExecutorLostFailure "
            "(executor 1 exited caused by one of the running tasks) Reason: Command exited with "
            "code 137\nDriver stacktrace:",
            "Spark has lost an executor (executor 1 exited caused by one of the running "
            "tasks: Command exited with code 137); see its log",
        ),
        ("java.lang.OutOfMemoryError: Java heap space", "Java ran out of memory"),
        ("Job 3 cancelled because SparkContext was shut down", "Spark has ended"),
        ("", "Spark has ended"),
        ("x.SparkException: Job aborted\nCaused by: y.IOException: No space left\n\tat z",
         "Spark has failed: No space left;"),
        ("An error occurred", "Spark has failed: An error occurred;"),
    ],
)  # fmt: skip
def test_other_troubles_are_told(said: str, told: str) -> None:
    assert sentence(said).startswith(told)
    assert len(sentence(said).splitlines()) == 1


@pytest.mark.parametrize(
    ("said", "lost"),
    [
        ("SparkException: Checkpoint block rdd_19_0 not found! Either the executor", True),
        ("Job aborted: ... failed the maximum allowable number of times: 4. FetchFailed(", True),
        ("Job aborted: ExecutorLostFailure (executor 1 exited) Reason: Command exited", True),
        ("Python worker exited unexpectedly (crashed)", False),
        ("FetchFailed\nTraceback (most recent call last):\n  File\nValueError: x", False),
    ],
)
def test_losses_are_told_apart(said: str, lost: bool) -> None:
    with pytest.raises(mt.SparkError) as raised, explained():
        raise Py4JError(said)
    assert isinstance(raised.value, LostError) is lost is is_lost(said)
    assert str(raised.value).endswith(
        "what was committed stays, and the next run goes on from there"
    )


def test_errors_of_others_stay_theirs(tmp_path: Path) -> None:
    with pytest.raises(mt.StateError), explained(tmp_path):
        raise mt.StateError("mine")
    with pytest.raises(mt.SparkError, match="Spark has failed: gone"), explained():
        raise Py4JError("gone")
    assert list(tmp_path.iterdir()) == []


class Deadly(mt.MapReduce):
    """Kills the process it is in, as a system does that is out of memory."""

    uses = ("n",)
    columns = {"k": "VARCHAR", "n": "BIGINT"}  # noqa: RUF012

    def mapper(self, _: None, record: dict[str, Any]) -> Iterator[tuple[str, int]]:
        if record["n"] == 13:
            os.kill(os.getpid(), signal.SIGKILL)
        yield "n", record["n"]

    def reducer(self, key: str, values: Iterable[int]) -> Iterator[tuple[str, int]]:
        yield key, sum(values)


def test_a_run_whose_worker_is_killed_says_so_and_goes_on_later(
    spark: SparkSession, tmp_path: Path
) -> None:
    logs = tmp_path / "logs"
    plain = mt.sql(STREAM.format(folder=logs, slack=""))
    deadly = with_job(plain, "deadly", Deadly, stream="logs", window="10 seconds")
    settings = Settings(tmp_path / "state", follow=True, seconds=0)
    write(logs, "web-1", (1, "a", 1), (11, "a", 2))
    list(SparkRun(deadly, spark.sparkContext, settings).turns())
    write(logs, "web-1", (12, "a", 13), (21, "a", 4))
    with pytest.raises(mt.SparkError, match=r"was killed or has crashed.*spark-error.txt"):
        list(SparkRun(deadly, spark.sparkContext, settings).turns())
    assert stored(tmp_path) == [(0, "a", 1, 1)]
    list(SparkRun(plain, spark.sparkContext, settings).turns())
    assert stored(tmp_path) == [(0, "a", 1, 1), (10, "a", 15, 2)]


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("Traceback (most recent call last):\n  File x\nValueError: a\n", "ValueError: a"),
        ("Error from python worker:\n  Traceback (most recent call last):\n    File x\n  "
         "ModuleNotFoundError: No module named 'duckdb'\nPYTHONPATH was:\n  /x\n",
         "ModuleNotFoundError: No module named 'duckdb'"),
        ('java.io.IOException: Cannot run program "python9": error=2, No such file',
         'Cannot run program "python9": error=2, No such file'),
        ("", "no reason is known"),
    ],
)  # fmt: skip
def test_last_words_of_a_worker_are_found(said: str, words: str) -> None:
    assert last_words(said) == words
