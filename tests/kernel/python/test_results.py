"""Pairs as columns: JSON, or types that the job names, with every digit or a reason."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, ClassVar

import numpy as np
import pytest

from muntin.kernel.python.results import columns_of
from muntin.language.program import sql, with_job
from muntin.model.jobs import Job

STREAM = sql("CREATE STREAM s (t BIGINT) FROM 'x' FORMAT json TIMESTAMP t")


class Plain:
    def mapper(self, record: Any) -> None: ...

    def reducer(self, key: Any, values: Any) -> None: ...


class Named(Plain):
    columns: ClassVar = {"k": "VARCHAR", "n": "BIGINT"}


def job_of(kind: type) -> Job:
    return with_job(STREAM, "j", kind, stream="s", window="1 MINUTE").jobs["j"]


def answered(kind: type, *pairs: tuple[Any, Any]) -> tuple[list[tuple[Any, ...]], list[str]]:
    columns, which, failures = columns_of(job_of(kind), pairs)
    rows = list(zip(*(column.to_pylist() for column in columns), strict=True))
    assert sorted([*which, *(number for number, _ in failures)]) == list(range(len(pairs)))
    assert len(rows) == len(which)
    return rows, [failure.reason for _, failure in failures]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": [1, None]}, '{"a": [1, null]}'),
        (date(2026, 3, 1), '"2026-03-01"'),
        (datetime(2026, 3, 1, tzinfo=UTC), '"2026-03-01T00:00:00+00:00"'),
        (Decimal("1.50"), '"1.50"'),
        (b"\0\1", '"AAE="'),
        ({3, 1}, "[1, 3]"),
        (np.int64(7), "7"),
        ("日本", '"日本"'),
    ],
)
def test_without_columns_keys_and_values_are_json(value: Any, text: str) -> None:
    assert answered(Plain, ("k", value)) == ([('"k"', text)], [])
    json.loads(text)


def test_what_is_not_json_fails_alone() -> None:
    rows, reasons = answered(Plain, ("a", 1), ("b", object()), ("c", 3))
    assert rows == [('"a"', "1"), ('"c"', "3")]
    assert reasons[0].startswith("it is not JSON (a object)")


def test_tuples_are_laid_out_over_the_columns() -> None:
    assert answered(Named, ("a", 1), (("b", 2), ()), ((), ("c", 3)), (None, ("d", 4))) == (
        [("a", 1), ("b", 2), ("c", 3), ("d", 4)],
        [],
    )


def test_values_that_do_not_fit_their_column_fail_alone_and_are_not_rounded() -> None:
    rows, reasons = answered(
        Named, ("a", 2.0), ("b", 2.5), ("c", "x"), ("d", (1, 2)), ("e", Decimal("0.5")), ("f", 9)
    )
    assert rows == [("a", 2), ("f", 9)]
    assert [reason.partition(":")[0] for reason in sorted(reasons)] == [
        *["expected columns k VARCHAR, n BIGINT"] * 3,
        "it has 3 values, but there are 2 columns",
    ]
    assert any(reason.endswith("2.5 is not a whole number") for reason in reasons)
