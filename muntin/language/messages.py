"""Words for error messages: what may have been meant, and what DuckDB has to say."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

import duckdb

from muntin.kernel.engine import quote

_MANY = 12
_HINTS = ("Did you mean", "Candidate Entries", "Candidate bindings")


def nearest(name: str, known: Iterable[str], otherwise: str) -> str:
    """A hint at what may have been meant."""
    names = sorted(known)
    if not names:
        return otherwise
    lower = {known_name.lower(): known_name for known_name in names}
    close = get_close_matches(name.lower(), lower, n=1, cutoff=0.6)
    if close:
        return f"did you mean {_as_written(lower[close[0]])}?"
    more = ["…"] if len(names) > _MANY else []
    return f"known are {', '.join([*map(_as_written, names[:_MANY]), *more])}"


def _as_written(name: str) -> str:
    """The name as SQL takes it: quoted where it is not a plain word."""
    return name if name.isidentifier() else quote(name)


def reason(error: Exception) -> str:
    """DuckDB's message and hint, without its kind and without the generated statement."""
    if isinstance(error, duckdb.ParserException):
        return "this is not a complete expression"
    lines = str(error).split("\n")
    first = (lines[0].partition(": ")[2] or lines[0]).rstrip("!.")
    hints = [line[0].lower() + line[1:] for line in lines[1:] if line.startswith(_HINTS)]
    return "; ".join([first, *hints])
