"""The user's own words, cut out of the text with parts exchanged."""

from __future__ import annotations

import pytest
from sqlglot import exp

from muntin.language.script import Script, tokens


def first_item(expression: str) -> tuple[Script, exp.Expr]:
    script = Script(f"CREATE JOB j AS SELECT {expression} FROM shop WINDOW 1 DAY")
    item: exp.Expr = script.statements[0].args["query"].expressions[0]
    return script, item


def columns_in_brackets(node: exp.Expr) -> str | None:
    return f"<{node.sql(comments=False)}>" if isinstance(node, exp.Column) else None


@pytest.mark.parametrize(
    ("expression", "swapped"),
    [
        ("a", "<a>"),
        ("t.a.b", "<t.a.b>"),
        ("a+b", "<a>+<b>"),
        ("lower( a )", "lower( <a> )"),
        ("a /* first */ + -- then\n b", "<a> + <b>"),
        ("'a' || a || \"b\"", "'a' || <a> || <\"b\">"),
        ("a NOT IN (b, 1)", "<a> NOT IN (<b>, 1)"),
        ("a IS NOT NULL AND NOT b", "<a> IS NOT NULL AND NOT <b>"),
        ("CASE a WHEN b THEN 'b' END", "CASE <a> WHEN <b> THEN 'b' END"),
        ("a::DECIMAL(4, 2)", "<a>::DECIMAL(4, 2)"),
        ("a[b].c", "<a>[<b>].c"),
        ("a.lower().trim(b)", "<a>.lower().trim(<b>)"),
        ("{'a': a, b: b}", "{'a': <a>, b: <b>}"),
        ("sum(a) FILTER (WHERE b)", "sum(<a>) FILTER (WHERE <b>)"),
        ("a -> 'b' ->> c", "<a> -> 'b' ->> <c>"),
    ],
)
def test_only_what_is_swapped_changes(expression: str, swapped: str) -> None:
    script, item = first_item(expression)
    assert script.words(item, columns_in_brackets) == swapped


def test_part_of_a_negation_is_not_swapped() -> None:
    """`IS` in `IS NOT NULL` and `IN` in `NOT IN` have no words of their own."""
    script, item = first_item("a IS NOT NULL OR b NOT IN (1)")
    words = script.words(item, lambda node: "?" if isinstance(node, exp.Is | exp.In) else None)
    assert words == "a IS NOT NULL OR b NOT IN (1)"


def test_same_words_in_other_spelling() -> None:
    assert tokens("Date_Trunc( 'hour',ts )") == tokens("date_trunc('hour', ts)")
    assert tokens("a || 'x'") != tokens("a || 'X'")
    assert tokens('"a"') != tokens('"A"')


def test_errors_point_at_the_first_place_that_is_known() -> None:
    script, item = first_item("a + b")
    error = script.error("no", None, exp.column("elsewhere"), item.expression)
    assert (error.line, error.column) == (1, 28)
