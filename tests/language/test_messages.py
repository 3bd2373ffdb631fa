"""Hints in error messages."""

from __future__ import annotations

import duckdb
import pytest

from muntin.language.messages import nearest, reason


def test_the_nearest_name_is_shown_as_sql_takes_it() -> None:
    known = ["Product", "http.status", "store"]
    assert nearest("prodct", known, "none") == "did you mean Product?"
    assert nearest("http_status", known, "none") == 'did you mean "http.status"?'
    assert nearest("xyz", known, "none") == 'known are Product, "http.status", store'
    assert nearest("xyz", [], "none") == "none"


def test_not_all_of_many_names_are_shown() -> None:
    hint = nearest("x", [f"column_{i:02}" for i in range(40)], "none")
    assert hint.endswith("column_11, …")


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT lenght('a')", "did you mean length?"),
        ("SELECT {'city': 1}.cty", "there is no field 'cty'; known are city"),
        ("SELECT ('a' IN)", "this is not complete"),
        ("SELECT 1 frm x", "did not expect 'x' in this"),
    ],
)
def test_duckdbs_reason_without_the_statement(sql: str, expected: str) -> None:
    with pytest.raises(duckdb.Error) as raised:
        duckdb.sql(sql)
    assert expected in reason(raised.value)
    assert "LINE" not in reason(raised.value)
