"""Parameters of jobs: `$name` in a query stands for a value that can be set while the job runs.

    CREATE JOB slow (limit_ms DEFAULT 500) AS SELECT … WHERE ms > $limit_ms …

A text is filled in before it is parsed: what runs is the query with the value in its place, as if
it had been written so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import duckdb
from sqlglot.tokenizer_core import Token, TokenType

from muntin.errors import LanguageError
from muntin.kernel.engine import describe
from muntin.language.messages import nearest, reason

_OPEN = (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE)
_CLOSE = (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE)
Values = Mapping[str, str]  # by parameter, a constant as it is written


@dataclass(frozen=True)
class Written:
    """A statement as it was written, and the values its parameters have, if it is a job's."""

    text: str
    values: Values = field(default_factory=dict)


@dataclass(frozen=True)
class Filled:
    """A text with values in the place of parameters, and its statements as they were written."""

    text: str
    statements: tuple[Written, ...]


def filled(text: str, tokens: Sequence[Token], values: Values | None = None) -> Filled:
    """The text with the values of parameters: the given ones, or else the defaults.

    Raises a LanguageError at a parameter that has no default, or whose value is no constant.
    """
    parts: list[str] = []
    statements: list[Written] = []
    at = 0
    for statement in _statements(tokens):
        clause = _clause(statement)
        defaults = dict(_defaults(text, statement[clause.start : clause.stop]))
        chosen = defaults | {name: v for name, v in (values or {}).items() if name in defaults}
        if clause:
            first, last = statement[clause.start], statement[clause.stop - 1]
            parts += [text[at : first.start], " "]
            at = last.end + 1
        for dollar, name in _uses(statement):
            if name.text.lower() not in chosen:
                raise _unknown(text, dollar, name, chosen)
            parts += [text[at : dollar.start], _in_place(chosen[name.text.lower()])]
            at = name.end + 1
        written = text[statement[0].start : statement[-1].end + 1]
        statements.append(Written(written, chosen))
    return Filled("".join([*parts, text[at:]]), tuple(statements))


def require_constant(value: str, text: str, start: int, end: int) -> None:
    """Refuses a value that needs anything else to be known, with its place in the text."""
    try:
        describe(f"SELECT {value} AS v FROM records", {}, "records")
    except duckdb.Error as error:
        message = "a parameter's value is a constant, such as 5 or 'text'"
        why = f"; a text is written '{value}'" if value.isidentifier() else f": {reason(error)}"
        raise LanguageError(message + why, text, start, end) from error


def _statements(tokens: Sequence[Token]) -> Iterator[list[Token]]:
    statement: list[Token] = []
    for token in tokens:
        if token.token_type is not TokenType.SEMICOLON:
            statement.append(token)
        elif statement:
            yield statement
            statement = []
    if statement:
        yield statement


def _clause(statement: Sequence[Token]) -> range:
    """Which tokens are the list of parameters, with its parentheses."""
    words = [token.text.upper() for token in statement[:4]]
    job = 3 if words[1:3] == ["OR", "REPLACE"] else 1
    opens = job + 2
    is_job = words[:1] == ["CREATE"] and words[job : job + 1] == ["JOB"]
    if not is_job or len(statement) <= opens or statement[opens].text != "(":
        return range(0)
    depth = 0
    for number, token in enumerate(statement[opens:], opens):
        depth += _deeper(token)
        if not depth:
            return range(opens, number + 1)
    return range(opens, len(statement))


def _deeper(token: Token) -> int:
    """By how much a token goes into something that is bracketed, or out of it."""
    return (token.token_type in _OPEN) - (token.token_type in _CLOSE)


def _defaults(text: str, clause: Sequence[Token]) -> Iterator[tuple[str, str]]:
    """The parameters of a list such as `(threshold DEFAULT 5, store DEFAULT 'games')`."""
    if not clause:
        return
    expected = "expected the parameters of the job, such as (threshold DEFAULT 5)"
    depth, item = 0, list[Token]()
    for token in clause[1:]:
        ends = not depth and token.token_type in (TokenType.COMMA, TokenType.R_PAREN)
        depth += _deeper(token)
        if not ends:
            item.append(token)
            continue
        if len(item) < 3 or item[1].text.upper() not in ("DEFAULT", "="):
            place = item[0] if item else token
            raise LanguageError(expected, text, place.start, place.end + 1)
        start, end = item[2].start, item[-1].end + 1
        require_constant(text[start:end], text, start, end)
        yield item[0].text.lower(), text[start:end]
        item = []
    if item or clause[-1].token_type is not TokenType.R_PAREN:
        raise LanguageError(f"{expected}, and ')'", text, clause[0].start)


def _uses(statement: Sequence[Token]) -> Iterator[tuple[Token, Token]]:
    """Each `$` with the name that follows it."""
    for dollar, name in pairwise(statement):
        is_sign = dollar.token_type is TokenType.PARAMETER and dollar.text == "$"
        if is_sign and name.start == dollar.end + 1 and not name.text[0].isdigit():
            yield dollar, name


def _unknown(text: str, dollar: Token, name: Token, known: Values) -> LanguageError:
    hint = nearest(name.text, known, "")
    if not hint:
        hint = f"give it a value: CREATE JOB … ({name.text} DEFAULT 5) AS …"
    message = f"unknown parameter ${name.text}; {hint}"
    return LanguageError(message, text, dollar.start, name.end + 1)


def _in_place(value: str) -> str:
    """The value as a part of any expression; LIMIT takes a number and no parentheses."""
    return value if value.replace(".", "").isalnum() or _is_text(value) else f"({value})"


def _is_text(value: str) -> bool:
    return value.startswith("'") and value.endswith("'") and "'" not in value[1:-1]
