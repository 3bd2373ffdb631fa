"""SQL laid out for reading: only the white space between its words changes.

What fits on a line stays on one. Else clauses start lines, subqueries stand deeper, and lists
are filled up to the margin.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from sqlglot.tokenizer_core import Token, TokenType

from muntin.language.dialect import Muntin

WIDTH = 100
_CLAUSES = (
    TokenType.SELECT, TokenType.FROM, TokenType.WHERE, TokenType.GROUP_BY, TokenType.HAVING,
    TokenType.QUALIFY, TokenType.ORDER_BY, TokenType.UNION, TokenType.LEFT, TokenType.JOIN,
)  # fmt: skip
_QUERIES = (TokenType.SELECT, TokenType.WITH)


def laid_out(sql: str, indent: int = 0, width: int = WIDTH) -> list[str]:
    """The lines of a statement, each starting with `indent` spaces."""
    page = _Page(sql, Muntin().tokenize(sql), width)
    page.query(0, len(page.tokens), indent)
    return page.lines


@dataclass
class _Page:
    sql: str
    tokens: list[Token]
    width: int
    lines: list[str] = field(default_factory=list)

    def query(self, start: int, end: int, indent: int) -> None:
        """The tokens from start to end as lines of their own."""
        flat = self._flat(start, end)
        if indent + len(flat) <= self.width:
            self.lines.append(" " * indent + flat)
            return
        for first, last in self._split(start, end, self._opens_clause):
            in_with = self.tokens[first].token_type is TokenType.WITH
            items = list(self._split(first, last, self._follows_comma))
            self._list(items, indent, hanging=indent if in_with else indent + 2)

    def _list(self, items: list[tuple[int, int]], indent: int, hanging: int) -> None:
        line, margin = "", indent
        for start, end in items:
            flat = self._flat(start, end)
            if line and (hanging == indent or margin + len(line) + 1 + len(flat) > self.width):
                self.lines.append(" " * margin + line)
                line, margin = "", hanging
            line = f"{line} {flat}".lstrip()
            if margin + len(line) > self.width and (group := self._subquery(start, end)):
                opening = line.removesuffix(flat) + self._flat(start, group[0] + 1)
                self.lines.append(" " * margin + opening)
                self.query(group[0] + 1, group[1] - 1, margin + 2)
                line = self._flat(group[1] - 1, end)
        self.lines.append(" " * margin + line)

    def _subquery(self, start: int, end: int) -> tuple[int, int] | None:
        """The first parentheses in the range that hold a query, from one to after the other."""
        at = start
        while at < end:
            until = self._group_end(at)
            if until - at > 2 and self.tokens[at + 1].token_type in _QUERIES:
                return at, until
            at = until
        return None

    def _split(
        self, start: int, end: int, opens: Callable[[int], bool]
    ) -> Iterator[tuple[int, int]]:
        """The ranges in this one: the next begins where `opens` says so, outside of parentheses."""
        first = at = start
        while at < end:
            if at > start and opens(at):
                yield first, at
                first = at
            at = self._group_end(at)
        yield first, end

    def _follows_comma(self, at: int) -> bool:
        return self.tokens[at - 1].token_type is TokenType.COMMA

    def _opens_clause(self, at: int) -> bool:
        kind, before = self.tokens[at].token_type, self.tokens[at - 1].token_type
        if kind is TokenType.LEFT:
            return self.tokens[at + 1].token_type is TokenType.JOIN
        if before is TokenType.LEFT or (kind, before) == (TokenType.FROM, TokenType.DISTINCT):
            return False
        return kind in _CLAUSES

    def _group_end(self, at: int) -> int:
        """The place after a token, or after the parenthesis that closes the one it opens."""
        depth = 0
        for index in range(at, len(self.tokens)):
            kind = self.tokens[index].token_type
            depth += (kind is TokenType.L_PAREN) - (kind is TokenType.R_PAREN)
            if depth <= 0:
                return index + 1
        return len(self.tokens)

    def _flat(self, start: int, end: int) -> str:
        return "".join(self._gap(i) + self._word(i) for i in range(start, end)).strip()

    def _word(self, at: int) -> str:
        return self.sql[self.tokens[at].start : self.tokens[at].end + 1]

    def _gap(self, at: int) -> str:
        return " " if at and self.tokens[at].start > self.tokens[at - 1].end + 1 else ""
