"""Calls become cells: equal ones are shared, and what cannot be merged says what could be."""

from __future__ import annotations

import pytest

from muntin.kernel.aggregates import EXPANSIONS, FEW, arity, expand, instead_of
from muntin.kernel.expander import Call, Expander
from muntin.model.shapes import Merge


def expander(split: bool = False) -> Expander:
    return Expander(lambda sql, _: "BIGINT" if "count" in sql or "n" in sql else "DOUBLE", split)


def test_equal_cells_and_parts_are_shared() -> None:
    to = expander()
    names = [expand(to, Call(name, ("x",))) for name in ("avg", "sum", "stddev", "variance")]
    assert len(set(names)) == 4
    cells = [cell.sql for part in to.parts() for cell in part.cells]
    assert len(cells) == len(set(cells))
    assert expand(to, Call("avg", ("x",))) == names[0]
    assert len(to.parts()) == 1


def test_values_that_have_to_be_told_apart_are_a_part_of_their_own() -> None:
    to = expander()
    for name in ("median", "mode", "histogram"):
        expand(to, Call(name, ("x",)))
    expand(to, Call("count", ("x",), distinct=True))
    assert [part.sub_key for part in to.parts()] == [None, "x"]
    assert [part.ranked for part in to.parts()] == [False, True]
    expand(to, Call("mode", ("x",), where="ok"))  # other records, so other rows
    assert len(to.parts()) == 3


@pytest.mark.parametrize("name", sorted(EXPANSIONS))
def test_every_aggregate_has_cells_that_merge(name: str) -> None:
    to = expander()
    least, _ = arity(name)
    expand(to, Call(name, ("x", "5")[: max(1, least)]))
    cells = [cell for part in to.parts() for cell in part.cells]
    assert {cell.merge for cell in cells} <= {Merge.SUM, Merge.MIN, Merge.MAX, Merge.FOLD}
    assert all(("{c}" in cell.fold) is (cell.merge is Merge.FOLD) for cell in cells)


@pytest.mark.parametrize("name", sorted(FEW))
def test_a_number_more_asks_for_the_first_few(name: str) -> None:
    to = expander()
    least, most = arity(name)
    assert most == least + 1
    expand(to, Call(name, (*("x", "y")[:least], "3")))
    _, cell = to.parts()[0].cells
    assert cell.type.endswith("[]")


def test_shares_of_records_add_up_and_the_rest_is_refused() -> None:
    to = expander(split=True)
    expand(to, Call("sum", ("x",)))
    expand(to, Call("max", ("x",)))
    with pytest.raises(ValueError, match="median cannot be split among panes; spans BY SPLIT have"):
        expand(to, Call("median", ("x",)))
    with pytest.raises(ValueError, match="count cannot be split"):
        expand(to, Call("count", ("x",), distinct=True))


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("reservoir_quantile", "approx_quantile(x, q)"),
        ("sum_no_overflow", "sum(x)"),
        ("nobody_knows", "one of any_value, approx_count_distinct"),
    ],
)
def test_there_is_something_to_use_instead(name: str, told: str) -> None:
    assert told in instead_of(name)
