"""Attached frames give the rows of a plain query, whatever the sources, batches and disorder.

Rows of a frame have no order, so a record is late by what its source had come to with the batch
before: it counts in a window unless that ends at or before that time, less slack.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st

import muntin as mt
from tests.effort import examples
from tests.oracle import Question, Record, Window, same, stream_time
from tests.whole.test_answers import _plain, questions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "t bigint, k string, s string, n bigint, x double, server string"
SOURCES = ("web-1", "web-2", "db")
LAST = 10_000_000  # seconds: far behind all records, where every source ends
TOLD = {"job", "window_name", "window_start", "window_end", "c2", "c2_records", "revision",
        "emitted_at", "job_version", "records_read", "records_bad", "records_late",
        "records_failed"}  # fmt: skip
Batch = Sequence[Record]  # records with their server


@dataclass(frozen=True)
class Asked(Question):
    """A question whose records are late by batches. Each record says the number of its own."""

    def _starts(self, window: Window, records: Sequence[Record]) -> list[tuple[Record, list[int]]]:
        assert self.slack_s is not None
        reached: dict[int, int] = {}  # by batch: what the source had come to before it
        for number in {record["batch"] for record in records}:
            before = [r["t"] for r in records if r["batch"] < number]
            if len(before) >= 3:  # of fewer records it is not sure
                reached[number] = stream_time(before, self.slack_s) - self.slack_s
        never_late = replace(self, slack_s=None)
        return [
            (
                {name: record[name] for name in ("t", "k", "s", "n", "x")},
                [s for s in starts if s + window.range_s > reached.get(record["batch"], s)],
            )
            for record, starts in Question._starts(never_late, window, records)
        ]


def attached(
    spark: SparkSession, folder: Path, asked: Sequence[Asked], batches: Sequence[Batch]
) -> list[list[tuple[Any, ...]]]:
    """The stored rows of each question, once every source has come to the end."""
    (folder / "in").mkdir()
    for number, batch in enumerate(batches):
        path = folder / "in" / f"{number}.json"
        path.write_text("".join(json.dumps(record) + "\n" for record in batch))
        os.utime(path, (number, number))  # the order in which Spark takes them
    jobs = [
        question.muntin(folder).split(";\n")[1].replace("CREATE JOB job", f"CREATE JOB job{i}")
        for i, question in enumerate(asked)
    ]
    frame = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(f"{folder}/in")
    query = mt.attach(
        frame,
        ";\n".join(jobs),
        stream="logs",
        timestamp="t",
        state=folder / "state",
        slack=f"{asked[0].slack_s}s",
        source="server",
        idle="1h",
    )
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    return [rows_of(folder / "state", f"job{i}") for i in range(len(asked))]


def rows_of(state: Path, job: str) -> list[tuple[Any, ...]]:
    return [
        (
            int(row["window_start"].timestamp()),
            int(row["window_end"].timestamp()),
            *(_plain(value) for name, value in row.items() if name not in TOLD),
        )
        for row in mt.results(job, state).to_pylist()
    ]


def at(t: int, server: str = "web-1") -> Record:
    return {"t": t, "k": None, "s": None, "n": None, "x": None, "server": server}


END: Batch = [at(LAST, server) for server in SOURCES for _ in range(3)]


def answer(question: Asked, batches: Sequence[Batch]) -> list[tuple[Any, ...]]:
    return question.answer(
        {
            server: [
                record | {"batch": number}
                for number, batch in enumerate(batches)
                for record in batch
                if record["server"] == server
            ]
            for server in SOURCES
        }
    )


texts = st.sampled_from([None, "a", "b", "ü", "", 'q"q'])
records = st.fixed_dictionaries(
    {
        "t": st.integers(-200, 400),
        "k": texts,
        "s": texts,
        "n": st.none() | st.integers(-5, 5) | st.just(2**55 + 1),
        "x": st.none() | st.integers(-40, 40).map(lambda v: v / 4),
        "server": st.sampled_from(SOURCES),
    }
)
batches_of = st.lists(st.lists(records, min_size=1, max_size=15), min_size=1, max_size=3)


@st.composite
def asked_of(draw: st.DrawFn) -> list[Asked]:
    """Several questions, because one query over a frame takes seconds."""
    slack = draw(st.sampled_from([0, 15, 600]))
    found = draw(st.lists(questions(), min_size=2, max_size=4))
    return [Asked(**vars(question) | {"slack_s": slack}) for question in found]


@examples(4)
@given(asked=asked_of(), batches=batches_of)
def test_frames_equal_a_plain_query(
    spark: SparkSession, asked: list[Asked], batches: list[Batch]
) -> None:
    # Every source is heard with the first batch, before all else.
    batches = [[at(-200, server) for server in SOURCES], *batches]
    with tempfile.TemporaryDirectory() as folder:
        found = attached(spark, Path(folder), asked, [*batches, END])
    for question, rows in zip(asked, found, strict=True):
        expected = answer(question, batches)
        assert same(rows, expected), (question, rows, expected)


def counted(slack_s: int = 0) -> Asked:
    """How many records each minute has."""
    return Asked(("count(*)",), (), None, None, None, (Window(60, 60),), slack_s)


def test_a_record_is_late_by_the_batch_before(spark: SparkSession, tmp_path: Path) -> None:
    #              0      60      120
    # batch 1      x
    # batch 2        x      x             and in any order of rows
    # batch 3      (x)      x             60 to 120 is still open at 90, 0 to 60 is not
    batches = [[at(0)], [at(90), at(30)], [at(10), at(70)]]
    (rows,) = attached(spark, tmp_path, [counted()], [*batches, END])
    assert rows == [(0, 60, 2), (60, 120, 2)] == answer(counted(), batches)


def test_one_record_from_the_future_makes_nothing_late(spark: SparkSession, tmp_path: Path) -> None:
    batches = [[at(0), at(9000), at(1)], [at(10), at(50)], [at(20), at(80), at(90)], [at(71)]]
    (rows,) = attached(spark, tmp_path, [counted()], [*batches, END])
    assert rows == [(0, 60, 5), (60, 120, 3), (9000, 9060, 1)] == answer(counted(), batches)


def test_the_first_batch_of_a_source_has_no_order_either(
    spark: SparkSession, tmp_path: Path
) -> None:
    batches = [[at(100), at(0)]]
    (rows,) = attached(spark, tmp_path, [counted()], [*batches, END])
    assert rows == [(0, 60, 1), (60, 120, 1)] == answer(counted(), batches)
