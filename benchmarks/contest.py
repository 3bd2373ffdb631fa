"""What every contestant's process does: get ready, answer while watched, report one JSON line."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import duckdb
from pyspark.sql import SparkSession

from benchmarks.processes import PeakMemory, cpu_of_machine, cpu_of_tree
from benchmarks.questions import QUESTIONS, Question, checksum


@dataclass(frozen=True)
class Entry:
    """What to answer, from which files, on how many cores."""

    folder: Path
    question: Question
    cores: int


@dataclass(frozen=True)
class Measured:
    """Time, and peak memory of the Python processes and the JVM, from ready to answered.

    `other_cpu_seconds` went to processes that are not ours: where it is not small, the time
    says more about them.
    """

    seconds: float
    cpu_seconds: float
    other_cpu_seconds: float
    python_bytes: int
    jvm_bytes: int


def parse_entry(doc: str | None) -> Entry:
    parser = argparse.ArgumentParser(description=(doc or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("question", choices=QUESTIONS)
    parser.add_argument("cores", type=int)
    given = parser.parse_args()
    return Entry(given.folder.resolve(), QUESTIONS[given.question], given.cores)


def warm(session: SparkSession, cores: int) -> None:
    """A trivial job with a shuffle: the session is ready when it is back."""
    session.range(0, 1000, 1, cores).selectExpr("id % 7 AS k").groupBy("k").count().collect()


def measure(answer: Callable[[], object]) -> Measured:
    with PeakMemory() as memory:
        machine, ours, started = cpu_of_machine(), cpu_of_tree(), time.perf_counter()
        answer()
        seconds = time.perf_counter() - started
        cpu = cpu_of_tree() - ours
        other = max(0.0, cpu_of_machine() - machine - cpu)
    return Measured(seconds, cpu, other, memory.peak.python, memory.peak.jvm)


def report(
    measured: Measured, answer_sql: str, con: duckdb.DuckDBPyConnection | None = None
) -> None:
    """Prints the outcome; the answer is read back from where the contestant has put it."""
    con = con or duckdb.connect()
    con.execute("SET TimeZone = 'UTC'")
    print(json.dumps(asdict(measured) | asdict(checksum(con, answer_sql))), flush=True)
