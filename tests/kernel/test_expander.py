"""Parts, cells and finishes of a job are collected, equal ones once, with types that Arrow has."""

from __future__ import annotations

import pytest

from muntin.kernel.expander import Call, Expander, both, filtered, values
from muntin.kernel.types import stored
from muntin.model.shapes import Merge


def expander() -> Expander:
    return Expander(lambda sql, aggregates: "BIGINT" if aggregates else "VARCHAR")


def test_equal_cells_are_one() -> None:
    to = expander()
    assert to.cell("sum(x)", Merge.SUM) == to.cell("sum(x)", Merge.SUM) == "c1"
    assert to.folded("product(x)", "DOUBLE", "product({c})") == "c2"
    assert [cell.sql for cell in to.parts()[0].cells] == ["count(*)", "sum(x)", "product(x)"]


def test_values_are_a_part_with_a_count() -> None:
    to = expander()
    part = values(to, Call("mode", ("x",), where="ok"))
    assert (part.sub_key, part.where) == ("x", "(x IS NOT NULL) AND (ok)")
    assert values(to, Call("median", ("x",), where="ok"), ranked=True) is part
    assert part.ranked
    assert to.finish("first(sub)", part) == to.finish("first(sub)", part) == "a0"
    assert [finish.part for finish in to.finishes()] == [1]


def test_what_records_are_asked_for_is_noted_once() -> None:
    to = expander()
    to.take(Call("list", ("x",), where="ok", order=(("y", "ASC NULLS LAST"),)))
    to.take(Call("sum", ("x",)))
    assert to.arguments() == ("x", "y", "ok")


def test_conditions_are_put_together() -> None:
    assert both("a", None, "b OR c") == "(a) AND (b OR c)"
    assert filtered("sum(x)", None) == "sum(x)"
    assert filtered("sum(x)", "ok") == "sum(x) FILTER (WHERE ok)"


@pytest.mark.parametrize("kind", ["BIGINT", "VARCHAR", "DOUBLE", "DECIMAL(10,2)", "TIMESTAMP"])
def test_types_that_arrow_carries_are_kept(kind: str) -> None:
    assert stored(kind) == kind


@pytest.mark.parametrize("kind", ["UUID", "JSON", "INTERVAL", "TIME"])
def test_others_are_kept_as_text(kind: str) -> None:
    assert stored(kind) == "VARCHAR"
