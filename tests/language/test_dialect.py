"""What is recognised as a statement, and where the reader is told that something is not."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin.errors import LanguageError
from muntin.language import dialect
from muntin.language.script import Script, tokens
from tests.effort import examples
from tests.language.cases import Mistake, mistakes, pairs, program

TEXTS = [tokens(pair.text) for name in ("jobs.sql", "streams.sql") for pair in pairs(name)]
WORDS = sorted({word for text in TEXTS for word in text} | {"'", '"', "/*", "$", "é", "\0"})


@pytest.mark.parametrize("case", mistakes("syntax_errors.sql"), ids=lambda case: case.text)
def test_mistake_is_shown_at_its_place(case: Mistake) -> None:
    with pytest.raises(LanguageError) as raised:
        program(case.text)
    assert str(raised.value) == case.shown()


def test_statements_end_with_semicolons_and_may_be_empty() -> None:
    script = Script(";; DROP JOB a; /* nothing */ ;\n-- DROP JOB b;\nDROP JOB IF EXISTS c;;")
    assert [type(statement) for statement in script.statements] == [dialect.DropJob] * 2
    assert [statement.name for statement in script.statements] == ["a", "c"]
    assert [bool(statement.args["if_exists"]) for statement in script.statements] == [False, True]


@pytest.mark.parametrize("text", ["", " \n\t", "-- comment", "/* comment */"])
def test_nothing_is_no_statement(text: str) -> None:
    assert Script(text).statements == []


def test_words_of_our_clauses_can_still_be_names() -> None:
    text = """
    CREATE STREAM stream (format VARCHAR, timestamp TIMESTAMP, slack INTEGER, every INTEGER)
      FROM 'x' FORMAT json TIMESTAMP timestamp SLACK 1 SECOND;
    CREATE JOB job AS SELECT format, max(slack) AS every FROM stream
      GROUP BY format WINDOW 1 HOUR EVERY 1 MINUTE
    """
    job = program(text).jobs["job"]
    assert job.shape.uses == ("format", "slack")
    assert [output.name for output in job.outputs] == ["format", "every"]


def test_deep_nesting_is_refused_not_crashed_on() -> None:
    text = f"CREATE JOB j AS SELECT {'(' * 5000}1{')' * 5000} FROM shop WINDOW 1 DAY"
    with pytest.raises(LanguageError, match="nested too deeply"):
        program(text)


@examples(200)
@given(
    text=st.sampled_from(TEXTS),
    changes=st.lists(
        st.tuples(st.integers(0, 60), st.integers(0, 1), st.sampled_from(WORDS)), max_size=3
    ),
)
def test_garbled_text_is_understood_or_refused(
    text: list[str], changes: list[tuple[int, int, str]]
) -> None:
    words = list(text)
    for at, replaced, word in changes:
        words[at : at + replaced] = [word]
    with contextlib.suppress(LanguageError):
        program(" ".join(words))
