"""Expressions in the place of others: the same for values that are equal, and in their order."""

from __future__ import annotations

from itertools import product

import pytest

from muntin.kernel.canonical import (
    canonical_sql,
    canonical_type,
    collated,
    is_respelled,
    restored_sql,
    spelling_sql,
)
from muntin.kernel.engine import connection

TEXTS = ("'a'", "'A'", "'ä'", "'Ä'", "'b'", "'Z'", "''", "'a b'", "'aa'")
LENGTHS = tuple(
    f"INTERVAL '{length}'"
    for length in ("30 days", "1 month", "24 hours", "1 day", "-1 hour", "1 year", "360 days")
)
NUMBERS = (
    "0.0::DOUBLE",
    "-0.0::DOUBLE",
    "'nan'::DOUBLE",
    "-'nan'::DOUBLE",
    "'-inf'::DOUBLE",
    "2.5",
)


def compared(values: tuple[str, ...], kind: str, collation: str = "") -> None:
    """Pairs of values are equal, smaller and larger as what stands for them is."""
    con = connection()
    for one, two in product(values, values):
        exact = [f"(({value})::{kind}{collation})" for value in (one, two)]
        told = collated(kind, collation.removeprefix(" COLLATE ") or None)
        ours = [canonical_sql(value, told) for value in exact]
        ours = [f"CAST({value} AS {canonical_type(told)})" for value in ours]
        (row,) = con.execute(
            f"SELECT {exact[0]} = {exact[1]}, {exact[0]} < {exact[1]}, "
            f"{ours[0]} = {ours[1]}, {ours[0]} < {ours[1]}, "
            f"CAST({ours[0]} AS VARCHAR) = CAST({ours[1]} AS VARCHAR)"
        ).fetchall()
        assert row[:2] == row[2:4], (one, two)
        assert row[0] == row[4], (one, two)


@pytest.mark.parametrize("collation", ["NOCASE", "NOACCENT", "NOCASE.NOACCENT", "de", "de.NOCASE"])
def test_texts_by_their_collation(collation: str) -> None:
    compared(TEXTS, "VARCHAR", f" COLLATE {collation}")


def test_lengths_and_numbers() -> None:
    compared(LENGTHS, "INTERVAL")
    compared(NUMBERS, "DOUBLE")
    compared(tuple(f"[{number}]" for number in NUMBERS), "DOUBLE[]")


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("{{'a': {}, 'b c': [{}]}}", 'STRUCT(a DOUBLE, "b c" DOUBLE[])'),
        ("MAP {{'x': {}, 'y': {}}}", "MAP(VARCHAR, DOUBLE)"),
        ("row({}, {})", "TUPLE(DOUBLE, DOUBLE)"),
        ("[[{}], [{}]]", "DOUBLE[][]"),
    ],
)
def test_zeros_in_what_is_nested(value: str, kind: str) -> None:
    con = connection()
    texts = (value.format(zero, zero) for zero in ("0.0::DOUBLE", "-0.0::DOUBLE"))
    asked = [f"SELECT ({canonical_sql(t, kind)})::VARCHAR" for t in texts]
    found = [con.execute(each).fetchall()[0] for each in asked]
    assert found[0] == found[1] is not None
    nothing = con.execute(f"SELECT {canonical_sql(f'NULL::{kind}', kind)}").fetchall()[0]
    assert nothing == (None,)


def test_what_has_one_spelling_is_left_alone() -> None:
    for kind in ("BIGINT", "VARCHAR", "TIMESTAMP", "STRUCT(a BIGINT)"):
        assert canonical_sql("x", kind) == spelling_sql("x", kind) == restored_sql("x", kind) == "x"
        assert canonical_type(kind) == kind
        assert not is_respelled(kind)
    assert collated("VARCHAR", "C") == "VARCHAR"


def test_a_spelling_is_as_it_was_written() -> None:
    con = connection()
    kind = "ENUM('low', 'high')"
    spelling = spelling_sql(f"'low'::{kind}", kind)
    assert con.execute(f"SELECT {restored_sql(spelling, kind)}::VARCHAR").fetchall()[0] == ("low",)
    code = canonical_sql(f"'high'::{kind}", kind)
    assert con.execute(f"SELECT {code}").fetchall()[0] == (1,)
