"""What other systems call it: their windows in our words, shown on the very query.

This is asked only where a text has been refused. So it needs not be right about everything that
could be written, and changes nothing that is understood.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import TokenType

from muntin.language.dialect import Muntin
from muntin.units import is_unit

_CREATED = re.compile(
    r"CREATE\s+(?:OR\s+REPLACE\s+)?(?:MATERIALIZED\s+VIEW|LIVE\s+VIEW|VIEW|TABLE|STREAM)\s+"
    r"(?:IF\s+NOT\s+EXISTS\s+)?([\w-]+)\s+(?:WITH\s*\([^)]*\)\s*)?AS\s+(?=SELECT\b|WITH\b|FROM\b)",
    re.IGNORECASE,
)
_EMIT = re.compile(r"\s+EMIT\s+(CHANGES|FINAL|ON\s+WINDOW\s+CLOSE)\b", re.IGNORECASE)
_KSQL = re.compile(r"\s+WINDOW\s+(TUMBLING|HOPPING|SESSION)\s*\(([^)]*)\)", re.IGNORECASE)
_CALL = re.compile(
    r"\b(TABLE\s*\(\s*)?(TUMBLE|HOP|CUMULATE|SESSION|SESSION_WINDOW|WINDOW|TUMBLING_?WINDOW|"
    r"HOPPING_?WINDOW|SLIDING_?WINDOW|SESSIONWINDOW|DATE_BIN|TIME_BUCKET|DATE_TRUNC)\s*\(",
    re.IGNORECASE,
)
_BOUND = re.compile(r"\b(?:TUMBLE|HOP|SESSION|CUMULATE)_(START|END|ROWTIME)\s*\(", re.IGNORECASE)
_FIELD = re.compile(r"\b(?:session_)?window\s*\.\s*(start|end)\b", re.IGNORECASE)
_LENGTH = re.compile(r"(\d+(?:\.\d+)?)\W+([a-z]+)", re.IGNORECASE)
_AZURE = re.compile(r"^\s*'?([a-z]+)'?\s*,\s*(\d+)\s*(?:,\s*(\d+)\s*)?$", re.IGNORECASE)
_OURS = re.compile(r"\bWINDOW\s+(?:\d|SESSION\s+\d)", re.IGNORECASE)
_CLAUSE = re.compile(r"\s+WINDOW\s+window_start\b", re.IGNORECASE)  # that had a call
_GROUP = re.compile(
    r"\s+GROUP\s+BY\s+(.*?)(?=\s+(?:HAVING|QUALIFY|ORDER|LIMIT|OFFSET|WINDOW|EMIT|UNION)\b|\s*$)",
    re.IGNORECASE | re.DOTALL,
)


@dataclass(frozen=True)
class Translation:
    """What to write instead, and where the words of another system stand."""

    message: str
    start: int
    end: int


def translation(text: str, place: int) -> Translation | None:
    """Our way of the statement at a place, if it is written in the way of another system."""
    start, end = _statement(text, place)
    statement = " ".join(text[start:end].split())
    found = next(_words(text[start:end]), None)
    if found is None:
        return None
    words, first, last = found
    return Translation(f"{words} {_translated(statement)}", start + first, start + last)


def _statement(text: str, place: int) -> tuple[int, int]:
    """From where to where the statement at a place goes."""
    try:
        tokens = Muntin().tokenize(text)
    except TokenError:
        return 0, len(text)
    ends = [token.start for token in tokens if token.token_type is TokenType.SEMICOLON]
    first = max((end + 1 for end in ends if end < place), default=0)
    return first, min((end for end in ends if end >= place), default=len(text))


def _words(statement: str) -> Iterator[tuple[str, int, int]]:
    """What is said of the first words of another system, and their place."""
    windows = "windows are a clause at the end of a job here, and results know them:"
    for pattern, said in (
        (_CREATED, "a standing query is a job here:"),
        (_KSQL, windows),
        (_CALL, windows),
        (_BOUND, windows),
        (_FIELD, windows),
        (_EMIT, "a job has windows here, and EMIT stands behind them:"),
    ):
        found = pattern.search(statement)
        ours = found is not None and (
            (pattern is _CALL and _is_plain(statement, found))
            or (pattern is _EMIT and _is_ours(statement, found))
        )
        if found is not None and not ours:
            lead = len(found[0]) - len(found[0].lstrip())
            yield said, found.start() + lead, found.end()


def _is_plain(statement: str, call: re.Match[str]) -> bool:
    """Whether it is our clause, or a call that DuckDB has in a job that has a window already."""
    if call[2].upper() == "WINDOW" and "," not in statement[call.end() :].partition(")")[0]:
        return True
    known = call[2].upper() in ("DATE_TRUNC", "TIME_BUCKET")
    return known and _OURS.search(statement) is not None


def _is_ours(statement: str, emit: re.Match[str]) -> bool:
    """Whether EMIT stands behind our windows, and says what we have too."""
    window = _OURS.search(statement)
    return window is not None and window.start() < emit.start() and emit[1][:2].upper() != "ON"


def _translated(statement: str) -> str:
    """The statement with a clause for its windows, and nothing else of another system."""
    windows: list[str] = []
    query = _CREATED.sub(r"CREATE JOB \1 AS ", statement)
    emitted = _EMIT.search(query)
    query = _EMIT.sub("", query)

    def ksql(found: re.Match[str]) -> str:
        lengths = _lengths(found[2])
        session = found[1].upper() == "SESSION"
        windows.append(_clause(lengths[:2], session))
        return ""

    query = _KSQL.sub(ksql, query)
    query = _FIELD.sub(r"window_\1", query)
    query = _replaced(query, _BOUND, lambda found, _: f"window_{_edge(found[1])}")

    def call(found: re.Match[str], arguments: str) -> str:
        told, other = _window(found[2].upper().replace("_", ""), arguments)
        if told is not None:
            windows.append(told)
        return other

    if not _OURS.search(query):
        query = _replaced(query, _CALL, call)
        query = _CLAUSE.sub("", query)
    query = _GROUP.sub(_without_bounds, query)
    if _OURS.search(query) is None:
        query = f"{query.rstrip()} WINDOW {windows[0] if windows else '1 HOUR'}"
    changes = emitted is not None and emitted[1].upper() == "CHANGES"
    return f"{query.rstrip()} EMIT CHANGES" if changes else query


def _replaced(
    query: str, pattern: re.Pattern[str], other: Callable[[re.Match[str], str], str]
) -> str:
    """The query with other words for calls, from their name to the parenthesis that ends them."""
    texts, at = [], 0
    while (found := pattern.search(query, at)) is not None:
        end = _closed(query, found.end())
        inner = query[found.end() : end - 1]
        if found.re is _CALL and found[1]:  # TABLE (…) stands around it
            end = _closed(query, end)
        texts += [query[at : found.start()], other(found, inner)]
        at = end
    return "".join([*texts, query[at:]])


def _closed(query: str, start: int) -> int:
    """The place after the parenthesis that closes one before `start`."""
    depth = 1
    for at in range(start, len(query)):
        depth += {"(": 1, ")": -1}.get(query[at], 0)
        if depth == 0:
            return at + 1
    return len(query)


def _window(name: str, arguments: str) -> tuple[str | None, str]:
    """The clause that a call stands for, and what is left in its place."""
    azure = _AZURE.match(arguments)
    if azure is not None:
        unit, size, slide = azure.groups()
        lengths = [_length(size, unit), *([_length(slide, unit)] if slide else [])]
        return _clause(lengths, name == "SESSIONWINDOW"), "window_end"
    if name == "DATETRUNC":
        unit = arguments.partition(",")[0].strip(" '")
        return (_length("1", unit) if is_unit(unit) else None), "window_start"
    lengths, parts = _lengths(arguments), _parts(arguments)
    if name in ("HOP", "CUMULATE"):
        lengths = lengths[1::-1]
    stream = re.match(r"(?:TABLE\s+)?(\w+)(?:\s+PARTITION\s+BY\s+.*)?$", parts[0], re.IGNORECASE)
    read = stream is not None and len(parts) > 2 and not _LENGTH.search(parts[1])
    clause = _clause(lengths[:2], name.startswith("SESSION"), name == "CUMULATE")
    return clause, stream[1] if read and stream is not None else "window_start"


def _clause(lengths: list[str], session: bool, cumulate: bool = False) -> str:
    if not lengths:
        return "1 HOUR"
    if session:
        return f"SESSION {lengths[0]}"
    between = "CUMULATE" if cumulate else "EVERY"
    return f" {between} ".join(lengths)


def _parts(arguments: str) -> list[str]:
    """The arguments of a call, without those of calls in it."""
    flat = re.sub(r"\([^()]*\)", "", arguments)
    return [part.strip() for part in flat.split(",")]


def _lengths(text: str) -> list[str]:
    found = ((number, unit) for number, unit in _LENGTH.findall(text) if is_unit(unit))
    return [_length(number, unit) for number, unit in found]


def _length(number: str, unit: str) -> str:
    unit = unit.upper()
    plural = "" if number == "1" or unit.endswith("S") else "S"
    return f"{number} {unit.removesuffix('S') if number == '1' and len(unit) > 2 else unit}{plural}"


def _edge(word: str) -> str:
    return "start" if word.lower() == "start" else "end"


def _without_bounds(found: re.Match[str]) -> str:
    """GROUP BY with keys alone: rows of a window are in one window anyway."""
    depth, keys, key = 0, [], ""
    for char in f"{found[1]},":
        depth += {"(": 1, ")": -1}.get(char, 0)
        if char == "," and depth == 0:
            keys.append(key.strip())
            key = ""
        else:
            key += char
    bounds = ("window_start", "window_end", "window_time")
    kept = [key for key in keys if key.lower() not in bounds]
    return f" GROUP BY {', '.join(kept)}" if kept else ""
