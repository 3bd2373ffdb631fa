"""Types of columns that depend on themselves, against rules of how a look makes them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from muntin.errors import LanguageError
from muntin.language.settling import UNKNOWN, Types, UnsettledError, settled


def look(types: Mapping[str, str]) -> Types:
    """`best` is the greater of both; unknown ones are texts, which fit no number."""
    top, best = types["top"], types["best"]
    if {top, best} == {"DOUBLE", "TEXT"}:
        raise LanguageError("they do not fit", "x", 0)
    known = [kind for kind in (top, best) if kind != UNKNOWN]
    return {"best": known[0] if known else "TEXT", "top": "DOUBLE"}


def test_what_is_known_of_others_comes_first() -> None:
    assert settled(["best", "top"], look) == {"best": "DOUBLE", "top": "DOUBLE"}


def test_a_type_that_never_stays_is_told() -> None:
    with pytest.raises(UnsettledError) as raised:
        settled(["x"], lambda types: {"x": f"{types['x']}[]"})
    assert (raised.value.column, raised.value.now) == ("x", f"{raised.value.before}[]")


def test_a_look_that_fails_at_first_is_an_error() -> None:
    def fails(types: Mapping[str, str]) -> Types:
        raise LanguageError("unknown", "x", 0)

    with pytest.raises(LanguageError):
        settled(["x"], fails)
