"""Text to values: the value that was written, or none."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin.kernel.engine import run
from muntin.logs.casts import cast_sql, convert_sql


def cast(text: str, kind: str) -> tuple[Any, bool]:
    value, wrong = cast_sql("x", kind)
    sql = f"SELECT {value} AS v, coalesce({wrong or 'false'}, false) AS w FROM fields"
    (row,) = run(sql, {"fields": pa.table({"x": [text]})}, "casting").to_pylist()
    return row["v"], row["w"]


numbers = st.decimals(allow_nan=False, allow_infinity=False, places=4) | st.integers().map(Decimal)


@given(numbers, st.sampled_from(["{}", " {} ", "{:E}", "{:+}"]))
def test_integers_are_exact_or_wrong(number: Decimal, form: str) -> None:
    text = form.format(number)
    value, wrong = cast(text, "BIGINT")
    fits = number == number.to_integral_value() and -(2**63) <= number < 2**63
    assert wrong or value == Decimal(text)
    assert not wrong or not fits or len(number.as_tuple().digits) > 19


@given(numbers)
def test_decimals_are_exact_or_wrong(number: Decimal) -> None:
    value, wrong = cast(str(number), "DECIMAL(12, 2)")
    fits = abs(number) < 10**10 and number == round(number, 2)
    assert (wrong, value if fits else None) == (not fits, number if fits else None)


@pytest.mark.parametrize(
    ("text", "kind", "value", "wrong"),
    [
        ("yes", "VARCHAR", "yes", False),
        ("true", "BOOLEAN", True, False),
        ("maybe", "BOOLEAN", None, True),
        ("300", "TINYINT", None, True),
        ("1e3", "BIGINT", 1000, False),
        ("1.5", "BIGINT", 2, True),  # a value that was rounded is there, and wrong
        ("", "DOUBLE", None, True),
        ("infinity", "TIMESTAMP", None, True),
    ],
)
def test_text_is_of_its_type_or_wrong(text: str, kind: str, value: Any, wrong: bool) -> None:
    assert cast(text, kind) == (value, wrong)


def test_a_missing_text_is_not_a_wrong_one() -> None:
    for kind in ("BIGINT", "DOUBLE", "DECIMAL(9, 2)", "TIMESTAMP"):
        value, wrong = cast_sql("x", kind)
        sql = f"SELECT {value} AS v, {wrong} AS w FROM fields"
        nothing = pa.table({"x": pa.array([None], pa.string())})
        assert run(sql, {"fields": nothing}, "casting").to_pylist() == [{"v": None, "w": False}]


def test_numbers_of_parquet_are_converted_whole() -> None:
    value, wrong = convert_sql("x", "BIGINT")
    rows = pa.table({"x": [1.0, 1.5, 1e30, None]})
    found = run(f"SELECT {wrong} AS w, {value} AS v FROM fields", {"fields": rows}, "converting")
    assert [bool(w) for w in found["w"].to_pylist()] == [False, True, True, False]
