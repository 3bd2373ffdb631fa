"""What FROM reads: besides streams and tables, the results of jobs."""

from __future__ import annotations

from typing import Any

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from muntin.language.expressions import ExpressionParser

OF_JOB = "job"  # in the meta of a table: its rows are the results of the job of that name


class SourceParser(ExpressionParser):
    """`JOB x` and `LATEST(x)` in the place of a table, and what statements and these both take."""

    def _parse_table(self, *args: Any, **named: Any) -> exp.Expr | None:
        """What FROM reads; `JOB x` are the results of job x."""
        names = (TokenType.VAR, TokenType.IDENTIFIER)
        of_job = self._curr and self._curr.token_type is TokenType.VAR
        of_job = of_job and self._curr.text.upper() == "JOB" and self._next
        if not of_job or self._next.token_type not in names:
            return super()._parse_table(*args, **named)
        self._advance()
        table = super()._parse_table(*args, **named)
        if isinstance(table, exp.Table):
            table.meta[OF_JOB] = True
        return table

    def _parse_table_part(self, schema: bool = False) -> exp.Expr | None:
        """A part of the name of a table, or a call in its place; `LATEST(x, 1 HOUR)` is ours."""
        called = self._curr and self._curr.text.upper() == "LATEST" and self._next
        if called and self._next.token_type is TokenType.L_PAREN:
            return self._placed(self._take_latest)
        part: exp.Expr | None = super()._parse_table_part(schema=schema)
        return part

    def _take_latest(self) -> exp.Expr:
        self._advance(2)
        given = [] if self._curr.token_type is TokenType.R_PAREN else [self._take_name("job")]
        if given and self._match(TokenType.COMMA):
            given.append(self._take_window_name())
        if not self._match(TokenType.R_PAREN):
            self._refuse("expected ')' behind the job, or ',' and which of its windows")
        return exp.Anonymous(this="LATEST", expressions=given)

    def _take_window_name(self) -> exp.Expr:
        """Which of a job's windows: its name in quotes, or in the words of WINDOW."""
        if self._curr.token_type is TokenType.STRING:
            return self._take_string("a window")
        first, words = self._curr, list[str]()
        while self._curr and self._curr.token_type is not TokenType.R_PAREN:
            words.append(self._curr.text.lower())
            self._advance()
        return self._since(first, exp.Literal.string(" ".join(words)))

    def _since(self, first: Token, node: exp.Expr) -> exp.Expr:
        node.meta["place"] = first.start, self._prev.end + 1
        return node

    def _take_name(self, kind: str) -> exp.Expr:
        name = self._parse_id_var(any_token=False)
        return name or self._refuse(f"expected the name of the {kind}")

    def _take_strings(self, what: str) -> list[exp.Expr]:
        """One or several of them, with commas between."""
        return self._parse_csv(lambda: self._take_string(what))

    def _take_string(self, what: str) -> exp.Expr:
        token = self._curr
        if not self._match(TokenType.STRING):
            self._refuse(f"expected {what}")
        return exp.Literal.string(token.text).update_positions(token)
