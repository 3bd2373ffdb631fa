"""Calls become cells: equal ones are shared, and what cannot be merged says what could be."""

from __future__ import annotations

import pytest

from muntin.kernel.aggregates import EXPANSIONS, Call, Expander, arity, instead_of, stored
from muntin.model import Merge


def expander(split: bool = False) -> Expander:
    return Expander(lambda sql, _: "BIGINT" if "count" in sql or "n" in sql else "DOUBLE", split)


def test_equal_cells_and_parts_are_shared() -> None:
    to = expander()
    names = [to.expand(Call(name, ("x",))) for name in ("avg", "sum", "stddev", "variance")]
    assert len(set(names)) == 4
    cells = [cell.sql for part in to.parts() for cell in part.cells]
    assert len(cells) == len(set(cells))
    assert to.expand(Call("avg", ("x",))) == names[0]
    assert len(to.parts()) == 1


def test_values_that_have_to_be_told_apart_are_a_part_of_their_own() -> None:
    to = expander()
    for name in ("median", "mode", "histogram"):
        to.expand(Call(name, ("x",)))
    to.expand(Call("count", ("x",), distinct=True))
    assert [part.sub_key for part in to.parts()] == [None, "x"]
    assert [part.ranked for part in to.parts()] == [False, True]
    to.expand(Call("mode", ("x",), where="ok"))  # other records, so other rows
    assert len(to.parts()) == 3


def test_every_aggregate_merges_by_sum_min_or_max() -> None:
    for name in EXPANSIONS:
        to = expander()
        to.expand(Call(name, ("x", "0.5")[: arity(name) or 1]))
        merges = {cell.merge for part in to.parts() for cell in part.cells}
        assert merges <= {Merge.SUM, Merge.MIN, Merge.MAX}, name


def test_shares_of_records_add_up_and_the_rest_is_refused() -> None:
    to = expander(split=True)
    to.expand(Call("sum", ("x",)))
    to.expand(Call("max", ("x",)))
    with pytest.raises(ValueError, match="median cannot be split among panes; spans BY SPLIT have"):
        to.expand(Call("median", ("x",)))
    with pytest.raises(ValueError, match="count cannot be split"):
        to.expand(Call("count", ("x",), distinct=True))


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("string_agg", "histogram(x) keeps every value"),
        ("regr_slope", "sums: sum(x * y)"),
        ("bit_or", "bool_or(x & 1 = 1)"),
        ("nobody_knows", "one of any_value, approx_count_distinct"),
    ],
)
def test_there_is_something_to_use_instead(name: str, told: str) -> None:
    assert told in instead_of(name)


@pytest.mark.parametrize("kind", ["BIGINT", "VARCHAR", "DOUBLE", "DECIMAL(10,2)", "TIMESTAMP"])
def test_types_that_arrow_carries_are_kept(kind: str) -> None:
    assert stored(kind) == kind


@pytest.mark.parametrize("kind", ["UUID", "JSON", "INTERVAL", "TIME"])
def test_others_are_kept_as_text(kind: str) -> None:
    assert stored(kind) == "VARCHAR"
