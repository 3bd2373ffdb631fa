"""Regular expressions with named groups, in the form RE2 reads.

RE2 runs them, inside DuckDB, so RE2 also judges them; Python's own rules differ. Only the
names of groups have to be found here, because DuckDB wants one for each.
"""

from __future__ import annotations

import re

import duckdb

from muntin.kernel.engine import connection, literal

# Escaped and quoted text and character classes come first: a bracket in them opens nothing.
_TOKEN = re.compile(
    r"\\Q.*?(?:\\E|$) | \\. | \[\^?\]?(?:\[:\^?\w+:\] | \\. | [^\]\\])*\]"
    r" | (?P<open>\(\?P?<(?P<name>\w+)> | \((?!\?))",
    re.DOTALL | re.VERBOSE,
)


def portable(pattern: str) -> str:
    """`(?<name>` and `(?P<name>` mean the same; RE2 in DuckDB takes the second."""
    return _TOKEN.sub(lambda m: f"(?P<{m['name']}>" if m["name"] else m[0], pattern)


def groups(pattern: str) -> list[str | None]:
    """The names of all groups in order, None where a group has none."""
    return [m["name"] for m in _TOKEN.finditer(pattern) if m["open"]]


def group_names(pattern: str) -> dict[str, int]:
    """Names of groups and their numbers; raises ValueError where the pattern is wrong."""
    try:
        sql = f"SELECT regexp_matches('', {literal(portable(pattern))})"
        connection().execute(sql).fetchall()
    except duckdb.Error as error:
        reason = str(error).partition("Error: ")[2] or str(error)
        raise ValueError(f"the regular expression is wrong: {reason}") from error
    numbers: dict[str, int] = {}
    for number, name in enumerate(groups(pattern), start=1):
        if name and name.lower() in (known.lower() for known in numbers):
            raise ValueError(f"the regular expression names two groups '{name}'")
        if name:
            numbers[name] = number
    return numbers
