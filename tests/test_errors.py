"""Errors point at their place, survive the way between processes, and do nothing to a terminal."""

from __future__ import annotations

import inspect
import pickle
import re

import pytest

from muntin import errors
from muntin.errors import EngineError, LanguageError, MuntinError, as_text, harmless


def classes() -> list[type[BaseException]]:
    found = inspect.getmembers(errors, inspect.isclass)
    return [each for _, each in found if issubclass(each, BaseException)]


def test_the_tree_in_the_docstring_is_the_tree() -> None:
    assert all(issubclass(each, MuntinError) for each in classes())
    drawn = re.findall(r"^[├└│─ ]*(\w+Error)\b", inspect.getdoc(errors) or "", re.MULTILINE)
    assert sorted(drawn) == sorted(each.__name__ for each in classes())


@pytest.mark.parametrize(
    ("text", "place", "shown"),
    [
        ("SELECT x", "x", ["line 1, column 8: wrong", "  1 | SELECT x", "    |        ^"]),
        ("a\n\tb c\n", "c", ["line 2, column 4: wrong", "  2 | \tb c", "    | \t  ^"]),
        ("'日本' z", "z", ["line 1, column 6: wrong", "  1 | '日本' z", "    |        ^"]),
        ("x '日本'", "日本", ["line 1, column 4: wrong", "  1 | x '日本'", "    |    ^^^^"]),
    ],
)
def test_carets_stand_under_the_place(text: str, place: str, shown: list[str]) -> None:
    start = text.index(place)
    assert str(LanguageError("wrong", text, start, start + len(place))).splitlines() == shown


def test_a_mistake_at_the_end_of_the_text_has_a_place() -> None:
    assert str(LanguageError("more expected", "SELECT", 6)).splitlines()[-1] == "    |       ^"


def test_an_error_of_the_engine_comes_out_of_a_task_as_it_was() -> None:
    error = EngineError("merging", "no such column", "SELECT y")
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.sql) == (str(error), "SELECT y")
    assert str(error) == "merging: no such column\nThe statement was:\nSELECT y"
    assert str(EngineError("casting", "'x' is no number", "")) == "casting: 'x' is no number"


def test_text_does_nothing_to_a_terminal() -> None:
    assert harmless("a\x1b[31mb\r\n") == r"a\x1b[31mb\r\n"
    assert harmless("ü 日本 👩\u200d💻") == "ü 日本 👩\u200d💻"
    assert harmless("\u202eabc") == r"\u202eabc"


def test_names_that_are_not_utf_8_are_told_as_text() -> None:
    for text in ("ascii", "ü 😀", ""):
        assert as_text(text) == text
    assert as_text("ü/caf\udce9") == r"ü/caf\xe9"
    assert as_text("\ud800") == r"\ud800"
