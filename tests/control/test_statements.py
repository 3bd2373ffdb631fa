"""Requests as statements."""

from __future__ import annotations

from typing import Any

import pytest

from muntin.control.refusals import RefusedError
from muntin.control.statements import as_written, created, named, replacing, setting
from muntin.errors import LanguageError

JOB = "CREATE JOB x AS SELECT count(*) AS c FROM s WINDOW 1 SECOND"


@pytest.mark.parametrize("text", [JOB, f"{JOB};", f"-- CREATE it\n{JOB.lower()} ;\n"])
def test_a_job_takes_the_place_of_another(text: str) -> None:
    assert created(replacing(text, None)).args["replaces"]
    changed = created(replacing(text, "pane"))
    assert changed.args["replaces"]
    assert changed.args["at"].name == "pane"
    assert replacing(replacing(text, None), None) == replacing(text, None)


def test_one_that_says_when_is_not_told_when() -> None:
    with pytest.raises(RefusedError, match="says AT NEXT itself"):
        replacing(f"{JOB} AT NEXT PANE", "window")


def test_other_statements_are_refused() -> None:
    for text in ("", "DROP JOB x", f"{JOB}; {JOB}", "CREATE STREAM s FROM 'x' FORMAT json"):
        with pytest.raises(LanguageError, match="expected one statement here"):
            created(text)


def test_errors_are_at_their_place_in_what_was_written() -> None:
    changed = replacing(JOB, None)
    for word in ("JOB", "count", "SECOND"):
        start = changed.index(word)
        error = as_written(LanguageError("wrong", changed, start, start + len(word)), JOB)
        assert error.column == JOB.index(word) + 1
        assert str(error).endswith("^" * len(word))
        error = LanguageError("wrong", changed, start, start + len(word))
        assert as_written(error, changed) is error  # which replaces by itself


def test_values_of_json_are_constants_of_sql() -> None:
    values = {5: "5", 0.5: "0.5", "it's": "'it''s'", None: "null"}
    for value, constant in values.items():
        assert setting("x", "p", {"value": value}) == f"SET x.p = {constant}"
    assert setting("a-b", "p", {"value": True}) == 'SET "a-b".p = true'
    assert setting("x", "p", {"sql": "INTERVAL '5' MINUTE"}) == "SET x.p = INTERVAL '5' MINUTE"
    wrong: list[dict[str, Any]] = [{}, {"value": 1, "sql": "1"}, {"value": {}}, {"sql": 5}]
    for body in wrong:
        with pytest.raises(RefusedError):
            setting("x", "p", body)
    assert named("hot_products") == "hot_products"
