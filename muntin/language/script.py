"""A text of SQL with its statements, and the user's own words for every node of them.

What runs is what was written: an expression is cut out of the text, and only what
means something else on blocks (columns, keys, aggregates) is exchanged. Nothing is generated
from the syntax tree, so DuckDB sees every function and literal as the user gave it.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator
from functools import lru_cache

from sqlglot import exp
from sqlglot.errors import ParseError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

from muntin.errors import LanguageError
from muntin.language.dialect import Muntin, MuntinParser
from muntin.language.expressions import PlacedParseError
from muntin.language.parameters import Values, Written, filled

_FILLED = (TokenType.CREATE, TokenType.PARAMETER)
_EXACT = (TokenType.STRING, TokenType.IDENTIFIER)
Swap = Callable[[exp.Expr], str | None]  # other words for a node, or None to look inside it


class Script:
    def __init__(self, text: str, values: Values | None = None, query: bool = False) -> None:
        """`values` are those of parameters that are not to have their defaults.

        A `query` is a SELECT by itself.
        """
        written = text.removeprefix("\ufeff")  # some editors begin files with this character
        tokens = _tokens(written)
        self.text, self.written = written, tuple[Written, ...]()
        if any(token.token_type in _FILLED for token in tokens):
            whole = filled(written, tokens, values)
            self.text, self.written = whole.text, whole.statements
            tokens = tokens if self.text == written else _tokens(self.text)
        self._tokens = tokens
        parsed = _parsed(self._tokens, self.text, query)
        self.statements = [statement for statement in parsed if statement is not None]

    def words(self, node: exp.Expr, swap: Swap = lambda _: None) -> str:
        """The text of a node, some nodes in it exchanged, on one line and without comments."""
        start, end = span(node) or (0, 0)
        texts, at = [], start
        for (first, last), other in sorted(set(_swaps(node, swap))):
            texts += [self._plain(at, first), other]
            at = last
        return "".join([*texts, self._plain(at, end)])

    def _plain(self, start: int, end: int) -> str:
        """The text with every gap between tokens, and at its ends, at most one space."""
        index = bisect_left(self._tokens, start, key=lambda token: token.start)
        texts, at = [], start
        while index < len(self._tokens) and self._tokens[index].start < end:
            token = self._tokens[index]
            texts.append(" " if token.start > at else "")
            texts.append(self.text[token.start : token.end + 1])
            at = token.end + 1
            index += 1
        return "".join([*texts, " " if at < end else ""])

    def error(self, message: str, *places: exp.Expr | None) -> LanguageError:
        """The error at the first of the places whose position the parser kept."""
        known = (span(place) for place in places if place is not None)
        return LanguageError(message, self.text, *next(filter(None, known), (0, 1)))


def span(node: exp.Expr) -> tuple[int, int] | None:
    """Where in the text a node stands, or else what the parser kept of all that is in it."""
    if "place" in node.meta:
        start, end = node.meta["place"]
        return int(start), int(end)
    places = [place for child in node.iter_expressions() if (place := span(child))]
    if "start" in node.meta:
        places.append((node.meta["start"], node.meta["end"] + 1))
    return (min(p[0] for p in places), max(p[1] for p in places)) if places else None


def whole(node: exp.Expr) -> bool:
    """Whether the span is all of the node: not so in `x IS NOT NULL` for the `IS` inside."""
    if "place" in node.meta or isinstance(node, exp.Column):
        return True
    if not isinstance(node, exp.Binary) or isinstance(node, exp.Predicate):
        return False
    return whole(node.left) and whole(node.right)


def _swaps(node: exp.Expr, swap: Swap) -> Iterator[tuple[tuple[int, int], str]]:
    place = span(node) if whole(node) else None
    other = swap(node) if place is not None else None
    if place is not None and other is not None:
        yield place, other
    else:
        for child in node.iter_expressions():
            yield from _swaps(child, swap)


def _tokens(text: str) -> list[Token]:
    try:
        return Muntin().tokenize(text)
    except TokenError as error:
        curly = re.search("[‘’“”]", text)
        if curly is not None:
            message = "text stands in straight quotes, as in 'text'"
            raise LanguageError(message, text, curly.start()) from error
        message = "this quotation or comment does not end"
        raise LanguageError(message, text, _start(error, text)) from error


def _parsed(tokens: list[Token], text: str, query: bool = False) -> list[exp.Expr | None]:
    parser = MuntinParser(dialect=Muntin())
    parser.in_query = query
    try:
        return parser.parse(tokens, text)
    except PlacedParseError as error:
        raise LanguageError(error.message, text, error.start, error.end) from error
    except RecursionError as error:
        raise LanguageError("this is nested too deeply", text, *parser.place()) from error
    except (ParseError, AttributeError, TypeError, ValueError, LookupError) as error:
        # sqlglot trips over some expressions that are wrong, instead of refusing them.
        raise LanguageError("did not expect this here", text, *parser.place()) from error


def _start(error: TokenError, text: str) -> int:
    """Where a quotation began is in the tokenizer's message; of a comment it tells nothing."""
    numbers = re.findall(r"\d+", str(error.__cause__))
    return int(numbers[-1]) if numbers else max(0, text.rfind("/*"))


@lru_cache(maxsize=4096)  # of all jobs it is asked whenever one has changed
def tokens(sql: str) -> tuple[str, ...]:
    """What makes two expressions the same: spaces and the case of words do not matter."""
    return tuple(
        token.text if token.token_type in _EXACT else token.text.upper()
        for token in Muntin().tokenize(sql)
    )
