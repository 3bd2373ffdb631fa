"""The same rows inline, on Spark and from a plain query, whatever the chunks and the disorder."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin.language.program import sql
from muntin.run.inline import windows_inline
from muntin.run.results import Result
from muntin.windows.choice import Sharing
from tests.effort import examples
from tests.oracle import AGGREGATES, Question, Record, Window, same, write_logs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

texts = st.one_of(st.none(), st.sampled_from(["a", "b", "ü", "日本", "", " x", "a'b", 'q"q']))
records = st.lists(
    st.fixed_dictionaries(
        {
            "t": st.integers(-200, 400),
            "k": texts,
            "s": texts,
            "n": st.one_of(st.none(), st.integers(-5, 5), st.just(2**55 + 1)),
            "x": st.one_of(st.none(), st.integers(-40, 40).map(lambda v: v / 4)),
        }
    ),
    max_size=40,
)
sources = st.dictionaries(st.sampled_from(["web-1", "web-2", "db"]), records, min_size=1)
windows = st.lists(
    st.sampled_from(
        [
            Window(60, 60),
            Window(60, 20),
            Window(90, 60),
            Window(7, 3),
            Window(300, 10),
            Window(1, 1),
            Window(120, 60, 20),
            Window(20, 20, 5),
            Window(40, 40),
            Window(20, 50),
            Window(7, 60, 55),
        ]
    ),
    min_size=1,
    max_size=4,
    unique=True,
)


@st.composite
def questions(draw: st.DrawFn) -> Question:
    names = st.sampled_from(sorted(AGGREGATES))
    aggregates = tuple(draw(st.lists(names, min_size=1, max_size=4, unique=True)))
    limited = aggregates[0] in ("count(*)", "sum(n)", "max(s)", "min(x)", "count(DISTINCT s)")
    return Question(
        aggregates=aggregates,
        keys=tuple(draw(st.sampled_from([(), ("k",), ("k", "source"), ("n % 2",)]))),
        where=draw(st.sampled_from([None, "n > 0", "k IS NOT NULL AND x < 8"])),
        having=draw(st.sampled_from([None, "count(*) > 1"])),
        limit=draw(st.sampled_from([None, 1, 3])) if limited else None,
        windows=tuple(draw(windows)),
        slack_s=draw(st.sampled_from([None, None, 0, 15])),
    )


def rows_of(results: Iterable[Result]) -> list[tuple[Any, ...]]:
    return [
        (result.start // 1_000_000, result.end // 1_000_000, *map(_plain, row.values()))
        for result in results
        for row in result.rows.to_pylist()
    ]


def _plain(value: Any) -> Any:
    """Arrow gives maps as pairs; DuckDB gives dictionaries."""
    pairs = isinstance(value, list) and all(isinstance(each, tuple) for each in value)
    return dict(value) if pairs else value


def inline_rows(
    text: str, batch: int, piece: int, sharing: Sharing = "auto"
) -> list[tuple[Any, ...]]:
    leaving = windows_inline(sql(text), batch_bytes=batch, piece_bytes=piece, sharing=sharing)
    return rows_of(result for windows in leaving for result in windows.results())


@examples(150)
@given(
    question=questions(),
    logs=sources,
    batch=st.integers(1, 3000),
    piece=st.integers(1, 1500),
    sharing=st.sampled_from(["auto", "shared", "separate"]),
)
def test_inline_equals_a_plain_query(
    question: Question,
    logs: dict[str, Sequence[Record]],
    batch: int,
    piece: int,
    sharing: Sharing,
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        write_logs(Path(folder), logs)
        found = inline_rows(question.muntin(Path(folder)), batch, piece, sharing)
    assert same(found, question.answer(logs)), (found, question.answer(logs))


@pytest.mark.usefixtures("spark")
@examples(12)
@given(
    question=questions(),
    logs=sources,
    batch=st.integers(200, 3000),
    at_hand=st.sampled_from([0, 300, 1 << 20]),
)
def test_spark_equals_a_plain_query(
    spark: SparkSession,
    question: Question,
    logs: dict[str, Sequence[Record]],
    batch: int,
    at_hand: int,
) -> None:
    from muntin.spark.runner import Settings, SparkRun

    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr("muntin.spark.collection.ROWS_AT_HAND", at_hand)  # others stay in tasks
        patch.setattr("muntin.spark.rows.RANGE_ROWS", 20)
        write_logs(Path(folder), logs)
        settings = Settings(Path(folder) / "state", follow=False, batch_bytes=batch)
        program = sql(question.muntin(Path(folder)))
        steps = SparkRun(program, spark.sparkContext, settings).turns()
        found = rows_of(result for step in steps for result in step.emission.results())
    assert same(found, question.answer(logs)), (found, question.answer(logs))
