"""Hints and places for error messages."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from sqlglot import exp

from muntin.errors import LanguageError
from muntin.language.dialect import span


def nearest(name: str, known: Iterable[str], otherwise: str) -> str:
    """A hint at what may have been meant."""
    known = list(known)
    close = get_close_matches(name.lower(), {k.lower(): k for k in known}, n=1, cutoff=0.6)
    if close:
        return f"did you mean '{next(k for k in known if k.lower() == close[0])}'?"
    return f"known are {', '.join(sorted(known))}" if known else otherwise


def first_line(error: Exception) -> str:
    """DuckDB's message without its kind and without the generated statement."""
    return str(error).split("\n")[0].partition(": ")[2] or str(error)


def located(message: str, text: str, *places: exp.Expr) -> LanguageError:
    """The error at the first of the places whose position the parser kept."""
    found = next((s for s in map(span, places) if s), (0, 1))
    return LanguageError(message, text, *found)
