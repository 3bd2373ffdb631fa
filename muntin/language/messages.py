"""Words for error messages: what may have been meant, and what DuckDB has to say."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from difflib import get_close_matches

import duckdb

from muntin.kernel.engine import as_sql_says, quote, type_names
from muntin.kernel.types import fields_of

_MANY = 12
_HINTS = {
    "Did you mean ": "did you mean ",
    "Candidate Entries: ": "known are ",
    "Candidate bindings: ": "known are ",
}

_UNFIT = re.compile(r"no function matches the given name and argument types '(.*?)\((.*)\)'(.*)")
_NO_COLUMN = r'^(?:values list|table) "(.*?)" does not have a column named "(.*?)"'
_ADVICE = ". You might need to add explicit type casts"
_CAST = "; a CAST may help"
_OPERATORS = {"~~": "LIKE", "!~~": "NOT LIKE", "~~*": "ILIKE", "!~~*": "NOT ILIKE"}
_OF_COLUMNS = {
    r'^referenced column "(.*?)" not found in FROM clause': r"there is no column '\1'",
    r'^macro "(user)"\(\) does not support the supplied arguments.*': r"there is no column '\1'",
    r'^referenced table "(.*?)" not found': r"there is no table '\1'",
    _NO_COLUMN: r"'\1' has no column '\2'",
    r'^could not find key "(.*?)" in struct': r"there is no field '\1'",
}


def nearest(name: str, known: Iterable[str], otherwise: str) -> str:
    """A hint at what may have been meant."""
    names = sorted(set(known))
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
        ours + _names(line.removeprefix(theirs))
        for line in lines[1:]
        for theirs, ours in _HINTS.items()
        if line.startswith(theirs)
    ]
    told = [hint for hint in hints if hint not in _HINTS.values()]
    return _plain("; ".join([as_sql_says(first), *told]))


def located(error: duckdb.Error, statement: str) -> tuple[duckdb.Error, tuple[int, int]]:
    """An error in plain words that was told as JSON (`errors_as_json`), and its place.

    That is all of the statement where DuckDB does not know it, but for a column named `user`.
    """
    kind, _, told = str(error).partition(": ")
    try:
        said = json.loads(told)
    except ValueError:  # of a kind that is told in plain words always
        return error, (0, len(statement))
    plain = type(error)(f"{kind}: {said['exception_message']}")
    if said["exception_message"].startswith('Macro "user"()'):
        found = re.search(r"(?<![.\w'])user\b(?!')", statement, re.IGNORECASE)
        return plain, found.span() if found else (0, len(statement))
    data = statement.encode()
    at, length = json.loads(said.get("location") or f"[0, {len(data)}]")
    if at + length > len(data):  # of a statement that DuckDB has made of it
        at, length = 0, len(data)
    start = len(data[:at].decode(errors="ignore"))
    return plain, (start, start + len(data[at : at + length].decode(errors="ignore")))


def _names(said: str) -> str:
    """What DuckDB says may have been meant, less what users have not named."""
    names = re.findall(r'"((?:[^"]|"")*)"', said)
    mine = [name for name in names if not re.match(r"__|p\d+(\.|$)", name)]
    asked = "?" if mine and said.endswith("?") else ""
    return ", ".join(map(_as_written, mine)) + asked if names else said


def _plain(words: str) -> str:
    """DuckDB's words for what is not known, in ours."""
    words = re.sub(r"^\w+ function with name (\S+) does not exist", r"unknown function '\1'", words,
                   flags=re.IGNORECASE)  # fmt: skip
    unknown = re.match(r"type with name (\S+) does not exist", words)
    if unknown is not None:  # DuckDB's own hint is now one of several that are as near
        return f"unknown type '{unknown[1]}'; {nearest(unknown[1], type_names(), '')}"
    unfit = re.match(
        r"no function matches the given name and argument types '(.*?)\((.*)\)'", words
    )
    if unfit is not None:
        return (
            f"there is no {_call(unfit[1], unfit[2])}{words[unfit.end() :].replace(_ADVICE, _CAST)}"
        )
    for theirs, ours in _OF_COLUMNS.items():
        words = re.sub(theirs, ours, words)
    words = words.replace(" - an explicit cast is required", _CAST)
    return re.sub(r'did you mean "?(?:main\.)?(\w+)"?', r"did you mean \1", words)


def _call(name: str, types: str) -> str:
    """A function as it was called, with types in place of values; an operator between two."""
    operator = _OPERATORS.get(name, name)
    if re.fullmatch(r"\w+", name):
        return f"{name}({types})"
    given = [of for _, of in fields_of(f"TUPLE({types})")]
    return f" {operator} ".join(given) if len(given) > 1 else f"{operator} {types}"


def _unparsed(message: str) -> str:
    near = re.search(r'at or near "(.*?)"', message)
    # What stands around the user's text in the statement means nothing to the user.
    if near is None or near[1] in (")", "AS"):
        return "this is not complete"
    return f"did not expect '{near[1]}' in this"


def groups_joined(query: str, rest: str) -> str | None:
    """How to write `FROM a GROUP BY k JOIN b …`: the query up to the join, and the rest from it."""
    key = re.search(r"\bGROUP\s+BY\s+(.+)$", query, re.IGNORECASE | re.DOTALL)
    read = re.search(r"\bFROM\s+(\w+)", query, re.IGNORECASE)
    joined = re.match(r"((?:\w+\s+)*?JOIN)\s+(\w+)\s*(.*)$", rest, re.IGNORECASE | re.DOTALL)
    if key is None or read is None or joined is None:
        return None
    keys, (join, name, more) = key[1].strip(), joined.groups()
    first = query.strip()
    if first.upper().startswith("FROM"):
        first = f"SELECT {keys}, count(*) AS n_{read[1]} {first}"
    second = f"SELECT {keys}, count(*) AS n_{name} FROM {name} GROUP BY {keys}"
    shown = f"SELECT {read[1]}.*, n_{name} FROM ({first}) {read[1]} {join} ({second}) {name}"
    return f"{shown} {' '.join(more.split())}"
