"""Words for error messages: what may have been meant, and what DuckDB has to say."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches

import duckdb

from muntin.kernel.engine import quote, type_names

_MANY = 12
_HINTS = {
    "Did you mean ": "did you mean ",
    "Candidate Entries: ": "known are ",
    "Candidate bindings: ": "known are ",
}


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
        return _unparsed(str(error))
    lines = str(error).split("\n")
    first = re.sub(r"(?<=\w)[.!]$", "", lines[0].partition(": ")[2] or lines[0])
    if first[1:2].islower():
        first = first[0].lower() + first[1:]
    hints = [
        line.replace(theirs, ours, 1)
        for line in lines[1:]
        for theirs, ours in _HINTS.items()
        if line.startswith(theirs)
    ]
    return _plain("; ".join([first, *hints]))


def _plain(words: str) -> str:
    """DuckDB's words for what is not known, in ours."""
    words = re.sub(r"^\w+ function with name (\S+) does not exist", r"unknown function '\1'", words,
                   flags=re.IGNORECASE)  # fmt: skip
    unknown = re.match(r"type with name (\S+) does not exist", words)
    if unknown is not None:  # DuckDB's own hint is now one of several that are as near
        return f"unknown type '{unknown[1]}'; {nearest(unknown[1], type_names(), '')}"
    return re.sub(r'did you mean "(?:main\.)?(\w+)"', r"did you mean \1", words)


def _unparsed(message: str) -> str:
    near = re.search(r'at or near "(.*?)"', message)
    # What stands around the user's text in the statement means nothing to the user.
    if near is None or near[1] in (")", "AS"):
        return "this is not complete"
    return f"did not expect '{near[1]}' in this"
