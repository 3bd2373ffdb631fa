"""DuckDB's expressions, each with its place in the text.

What runs is the user's own text, so every expression is marked with where it stands
(`meta["place"]`). Functions stay as they are written: the parser gives none of them a meaning,
and DuckDB binds them all.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, ClassVar, NoReturn, TypeVar

from sqlglot import exp
from sqlglot.errors import ParseError
from sqlglot.parsers.duckdb import DuckDBParser
from sqlglot.tokenizer_core import Token, TokenType

from muntin.errors import LanguageError

_SYNTAX_OF_THEIR_OWN = ("CAST", "EXTRACT", "OVERLAY", "POSITION", "SUBSTRING", "TRIM", "TRY_CAST")
_Parsed = TypeVar("_Parsed")


class Method(exp.Expression):
    """The call in `name.lower()`, set apart so that what is left of the dot stays a column."""


class PlacedParseError(ParseError):
    """What the parser did not expect, and where. It may still try another reading."""

    def __init__(self, message: str, start: int, end: int) -> None:
        super().__init__(message, [{"description": message}])
        self.message, self.start, self.end = message, start, end


class ExpressionParser(DuckDBParser):
    FUNCTIONS: ClassVar = {}
    FUNCTION_PARSERS: ClassVar = {
        name: DuckDBParser.FUNCTION_PARSERS[name] for name in _SYNTAX_OF_THEIR_OWN
    }
    FUNC_TOKENS: ClassVar = DuckDBParser.FUNC_TOKENS | {TokenType.APPLY}
    # In DuckDB an arrow reads JSON; lambdas are written `lambda x: …`.
    LAMBDAS: ClassVar = {
        token: parse
        for token, parse in DuckDBParser.LAMBDAS.items()
        if token is not TokenType.ARROW
    }
    # `list(x)[1]` is an element of an aggregate, and no way to write a list.
    ARRAY_CONSTRUCTORS: ClassVar = {"ARRAY": exp.Array}
    # WINDOW ends the SELECT here: it opens our clause, not a list of named windows, and is no name.
    ID_VAR_TOKENS: ClassVar = DuckDBParser.ID_VAR_TOKENS - {TokenType.WINDOW}
    ALIAS_TOKENS: ClassVar = DuckDBParser.ALIAS_TOKENS - {TokenType.WINDOW}
    TABLE_ALIAS_TOKENS: ClassVar = DuckDBParser.TABLE_ALIAS_TOKENS - {TokenType.WINDOW}

    def _parse_window_clause(self) -> None:
        """Leaves WINDOW to the job; one that names windows of OVER is refused."""
        words = self._tokens[self._index + 1 : self._index + 3]
        if len(words) == 2 and words[1].token_type is TokenType.ALIAS:
            name = words[0].text
            message = "WINDOW opens the windows of the job, and names none"
            self._refuse(f"{message}; in the place of OVER {name} say OVER (…)", words[0])

    def _refuse(self, message: str, token: Token | None = None) -> NoReturn:
        raise LanguageError(message, self.sql, *self.place(token))

    def place(self, token: Token | None = None) -> tuple[int, int]:
        """Of a token, else of the one at hand, else of the end of the statement."""
        at = token or self._curr
        if at:
            return at.start, at.end + 1
        end = self._prev.end + 1 if self._prev else 0
        return end, end + 1

    def raise_error(self, message: str, token: Any = None) -> NoReturn:
        start, end = self.place(token)
        if message.startswith("Required"):
            message = "expected an expression"
        elif "Unexpected token" in message:
            message = f"did not expect '{self.sql[start:end]}' here"
        elif "table name" in message:
            message = "expected the name of a stream"
        else:
            message = re.sub(r"^Expect(ing|ed) ", "expected ", message)
            message = re.sub(r"^expected (\W)$", r"expected '\1'", message)
        raise PlacedParseError(message, start, end)

    def validate_expression(self, expression: Any, args: Any = None) -> Any:
        # DuckDB, not sqlglot, knows how many arguments a function takes.
        is_call = isinstance(expression, exp.Func) and not isinstance(expression, exp.Binary)
        return expression if is_call else super().validate_expression(expression)

    def _placed(self, parse: Callable[[], _Parsed], left: exp.Expr | None = None) -> _Parsed:
        """What is parsed next, marked with its place from the first to the last token."""
        start, _ = left.meta.get("place", (None, None)) if left else (self._curr.start, None)
        node = parse()
        if isinstance(node, exp.Expr) and start is not None:
            node.meta["place"] = start, self._prev.end + 1
        return node

    def _parse_lambda(self, alias: bool = False) -> exp.Expr | None:
        return self._placed(lambda: super(ExpressionParser, self)._parse_lambda(alias))

    def _parse_assignment(self) -> exp.Expr | None:
        return self._placed(super()._parse_assignment)

    def _parse_disjunction(self) -> exp.Expr | None:
        return self._placed(super()._parse_disjunction)

    def _parse_equality(self, parse_is: bool = True) -> exp.Expr | None:
        return self._placed(lambda: super(ExpressionParser, self)._parse_equality(parse_is))

    def _parse_range(self, this: exp.Expr | None = None, parse_is: bool = False) -> exp.Expr | None:
        parse = super()._parse_range
        return self._placed(lambda: parse(this, parse_is), left=this)

    def _parse_bitwise(self) -> exp.Expr | None:
        return self._placed(super()._parse_bitwise)

    def _parse_unary(self) -> exp.Expr | None:
        return self._placed(super()._parse_unary)

    def _parse_function(self, *args: Any, **options: Any) -> exp.Expr | None:
        parse = super()._parse_function
        return self._placed(lambda: parse(*args, **options))

    def _parse_field(self, *args: Any, **options: Any) -> exp.Expr | None:
        field = super()._parse_field(*args, **options)
        called = options.get("anonymous_func") and isinstance(field, exp.Func | exp.Window)
        return Method(this=field) if called else field

    def _parse_column_ops(self, this: exp.Expr | None) -> exp.Expr | None:
        node = super()._parse_column_ops(this)
        return node and node.transform(_methods_apart, copy=False)

    def _parse_select(self, *args: Any, **options: Any) -> exp.Expr | None:
        parse = super()._parse_select
        return self._placed(lambda: parse(*args, **options))

    def _parse_cte(self) -> exp.CTE | exp.FunctionSpecification | None:
        return self._placed(super()._parse_cte)

    def _parse_from(self, *args: Any, **options: Any) -> exp.From | None:
        parse = super()._parse_from
        return self._placed(lambda: parse(*args, **options))

    def _parse_join(self, *args: Any, **options: Any) -> exp.Join | None:
        parse = super()._parse_join
        return self._placed(lambda: parse(*args, **options))

    def _parse_where(self, *args: Any, **options: Any) -> exp.Where | None:
        parse = super()._parse_where
        return self._placed(lambda: parse(*args, **options))

    def _parse_group(self, *args: Any, **options: Any) -> exp.Group | None:
        parse = super()._parse_group
        return self._placed(lambda: parse(*args, **options))

    def _parse_having(self, *args: Any, **options: Any) -> exp.Having | None:
        parse = super()._parse_having
        return self._placed(lambda: parse(*args, **options))

    def _parse_limit(
        self, this: exp.Expr | None = None, *args: Any, **options: Any
    ) -> exp.Expr | None:
        parse = super()._parse_limit
        return self._placed(lambda: parse(this, *args, **options), left=this)

    def _parse_offset(self, *args: Any, **options: Any) -> exp.Expr | None:
        parse = super()._parse_offset
        return self._placed(lambda: parse(*args, **options))

    def _parse_order(self, this: exp.Expr | None = None, *args: Any, **options: Any) -> Any:
        parse = super()._parse_order
        return self._placed(lambda: parse(this, *args, **options), left=this)

    def _replace_lambda(self, node: exp.Expr | None, expressions: Any) -> exp.Expr | None:
        return node  # `scope` tells parameters and columns apart


def _methods_apart(node: exp.Expr) -> exp.Expr:
    """`name.lower()` as a column and the calls that follow it."""
    chain = node.parts if isinstance(node, exp.Column) else []
    names = [link for link in chain if not isinstance(link, Method)]
    if not names or len(names) == len(chain):
        return node
    qualifiers = dict(zip(("table", "db", "catalog"), reversed(names[:-1]), strict=False))
    column = exp.Column(this=names[-1], **qualifiers)
    return exp.Dot.build([column, *chain[len(names) :]])
