"""Parameters: what runs is the text with their values in it."""

from __future__ import annotations

import pytest

import muntin as mt
from muntin.errors import LanguageError

STREAM = "CREATE STREAM s (t BIGINT, k VARCHAR, n BIGINT) FROM 'x' FORMAT json TIMESTAMP t;"


def job(parameters: str, where: str, limit: str = "3") -> str:
    return (
        f"CREATE JOB j {parameters} AS SELECT k, count(*) AS c FROM s WHERE {where} "
        f"GROUP BY k ORDER BY c LIMIT {limit} WINDOW 1 DAY"
    )


@pytest.mark.parametrize(
    ("parameters", "where", "same"),
    [
        ("(least DEFAULT 5)", "n > $least", "n > 5"),
        ("(Least = -5)", "n > $LEAST", "n > (-5)"),
        ("(a DEFAULT 'x', b DEFAULT 7)", "k = $a AND n < $b", "k = 'x' AND n < 7"),
        ("(day DEFAULT DATE '2026-01-01')", "DATE '2026-02-01' > $day", None),
        ("(some DEFAULT [1, 2])", "n IN $some", None),
        ("()", "k = '$least'", "k = '$least'"),
    ],
)
def test_a_value_stands_in_the_place_of_its_name(
    parameters: str, where: str, same: str | None
) -> None:
    if parameters == "()":
        parameters = ""
    made = mt.sql(STREAM + job(parameters, where)).jobs["j"]
    if same is not None:
        assert made.version == mt.sql(STREAM + job("", same)).jobs["j"].version
    assert made.edition.text.startswith("CREATE JOB j")


def test_a_limit_can_be_a_parameter() -> None:
    made = mt.sql(STREAM + job("(most DEFAULT 4)", "n > 1", "$most")).jobs["j"]
    assert made.limit == 4
    assert made.edition.values == (("most", "4"),)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (job("", "n > $least"), "unknown parameter $least; give it a value: CREATE JOB"),
        (job("(least DEFAULT 5)", "n > $lest"), "unknown parameter $lest; did you mean least?"),
        (job("(least)", "n > $least"), "expected the parameters of the job, such as (threshold"),
        (job("(least DEFAULT n)", "n > $least"), "a parameter's value is a constant"),
    ],
)
def test_a_mistake_is_told(text: str, message: str) -> None:
    with pytest.raises(LanguageError) as raised:
        mt.sql(STREAM + text)
    assert message in str(raised.value)
