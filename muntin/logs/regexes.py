"""Regular expressions with named groups, in the form RE2 reads."""

from __future__ import annotations

import re


def portable(pattern: str) -> str:
    """`(?<name>` and `(?P<name>` mean the same; RE2 in DuckDB takes the second."""
    return re.sub(r"\(\?<(?![=!])", "(?P<", pattern)


def group_names(pattern: str) -> dict[str, int]:
    """Names of groups and their numbers; raises ValueError where the pattern is wrong."""
    try:
        return dict(re.compile(portable(pattern)).groupindex)
    except re.error as error:
        raise ValueError(f"the regular expression is wrong: {error}") from error
