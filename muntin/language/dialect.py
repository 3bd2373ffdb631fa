"""DuckDB's SQL plus CREATE STREAM, CREATE JOB and DROP JOB, as a sqlglot dialect.

The parser only recognises; `check` decides what is meant and whether it can be done.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import ParseError, TokenError
from sqlglot.tokens import Token, TokenType

from muntin.errors import LanguageError

FORMATS = ("json", "csv", "parquet", "combined", "common", "regex", "text")


class CreateStream(exp.Expression):
    arg_types: ClassVar = {
        "this": True,
        "columns": False,
        "patterns": True,
        "format": True,
        "timestamp": False,
        "slack": False,
        "on_bad_row": False,
    }


class CreateJob(exp.Expression):
    arg_types: ClassVar = {"this": True, "query": True, "window": False, "end": False}


class DropJob(exp.Expression):
    arg_types: ClassVar = {"this": True, "if_exists": False}


class FormatSpec(exp.Expression):
    arg_types: ClassVar = {"this": True, "pattern": False, "header": False, "delimiter": False}


class Duration(exp.Expression):
    """A number and a unit, for example 5 MINUTES."""

    arg_types: ClassVar = {"this": True, "unit": True}


class WindowClause(exp.Expression):
    arg_types: ClassVar = {"range": True, "slide": False}


class Muntin(DuckDB):
    class Parser(DuckDB.Parser):
        # WINDOW ends the SELECT here: it opens our clause, not a list of named windows.
        QUERY_MODIFIER_PARSERS: ClassVar = {
            token: parse
            for token, parse in DuckDB.Parser.QUERY_MODIFIER_PARSERS.items()
            if token is not TokenType.WINDOW
        }
        STATEMENT_PARSERS: ClassVar = {
            **DuckDB.Parser.STATEMENT_PARSERS,
            TokenType.CREATE: lambda self: self._take_create(),
            TokenType.DROP: lambda self: self._take_drop(),
        }

        def _take_create(self) -> exp.Expr:
            if self._match_text_seq("STREAM"):
                return self._take_stream()
            if self._match_text_seq("JOB"):
                return self._take_job()
            return self._refuse("expected STREAM or JOB after CREATE")

        def _take_drop(self) -> exp.Expr:
            if not self._match_text_seq("JOB"):
                return self._refuse("expected JOB after DROP")
            exists = self._match_text_seq("IF", "EXISTS")
            return self.expression(DropJob(this=self._take_name("job"), if_exists=exists))

        def _take_stream(self) -> exp.Expr:
            name = self._take_name("stream")
            columns = self._take_columns()
            if not self._match(TokenType.FROM):
                self._refuse("expected FROM 'pattern' with the log files of the stream")
            patterns = [self._take_string("a quoted file pattern")]
            while self._match(TokenType.COMMA):
                patterns.append(self._take_string("a quoted file pattern"))
            if not self._match_text_seq("FORMAT"):
                self._refuse(f"expected FORMAT and one of {', '.join(FORMATS)}")
            stream = CreateStream(
                this=name, columns=columns, patterns=patterns, format=self._take_format()
            )
            if self._match_text_seq("TIMESTAMP"):
                stream.set("timestamp", self._parse_assignment() or self._refuse("expected a time"))
            if self._match_text_seq("SLACK"):
                stream.set("slack", self._take_duration("SLACK"))
            if self._match_text_seq("ON"):
                stream.set("on_bad_row", self._take_on_bad_row())
            return self._take_end(stream)

        def _take_columns(self) -> list[exp.Expr]:
            if not self._match(TokenType.L_PAREN):
                return []
            columns = self._parse_csv(self._take_column)
            if not self._match(TokenType.R_PAREN):
                self._refuse("expected ',' or ')' in the list of columns")
            return columns

        def _take_column(self) -> exp.Expr:
            name = self._take_name("column")
            kind = self._parse_types()
            if kind is None:
                self._refuse(f"expected a type for column {name.name}")
            return self.expression(exp.ColumnDef(this=name, kind=kind))

        def _take_format(self) -> exp.Expr:
            token = self._curr
            kind = self._take_word().lower()
            if kind not in FORMATS:
                self._refuse(f"unknown format '{kind}'; expected {', '.join(FORMATS)}", token)
            spec = FormatSpec(this=kind)
            if kind == "regex":
                spec.set(
                    "pattern", self._take_string("a quoted regular expression with named groups")
                )
            if kind == "csv" and self._match(TokenType.L_PAREN):
                self._parse_csv(lambda: self._take_csv_option(spec))
                if not self._match(TokenType.R_PAREN):
                    self._refuse("expected ',' or ')' in the CSV options")
            return spec

        def _take_csv_option(self, spec: FormatSpec) -> None:
            token = self._curr
            option = self._take_word().lower()
            if option == "header":
                value = self._take_word().lower()
                if value not in ("true", "false"):
                    self._refuse("expected HEADER true or HEADER false", self._prev)
                spec.set("header", value)
            elif option in ("delimiter", "delim"):
                spec.set("delimiter", self._take_string("a quoted delimiter"))
            else:
                self._refuse(f"unknown CSV option '{option}'; expected HEADER or DELIMITER", token)

        def _take_on_bad_row(self) -> str:
            if not self._match_text_seq("BAD", "ROW"):
                self._refuse("expected ON BAD ROW SKIP or ON BAD ROW FAIL")
            for choice in ("SKIP", "FAIL"):
                if self._match_text_seq(choice):
                    return choice.lower()
            self._refuse("expected SKIP or FAIL after ON BAD ROW")
            return ""

        def _take_job(self) -> exp.Expr:
            name = self._take_name("job")
            if not self._match(TokenType.ALIAS):
                self._refuse("expected AS SELECT … after the job's name")
            query = self._parse_select()
            if query is None:
                return self._refuse("expected SELECT after AS")
            job = CreateJob(this=name, query=query, end=self._prev.end)
            if self._match(TokenType.WINDOW):
                job.set("window", self._take_window())
            return self._take_end(job)

        def _take_window(self) -> exp.Expr:
            clause = WindowClause(range=self._take_duration("WINDOW"))
            if self._match_text_seq("EVERY"):
                clause.set("slide", self._take_duration("EVERY"))
            return clause

        def _take_duration(self, after: str) -> exp.Expr:
            sign = "-" if self._match(TokenType.DASH) else ""
            start = self._prev if sign else self._curr
            if not self._match(TokenType.NUMBER):
                self._refuse(f"expected a length of time after {after}, for example 5 MINUTES")
            number, unit = sign + self._prev.text, self._take_word()
            duration = Duration(this=number, unit=unit.upper())
            duration.meta.update(start=start.start, end=self._prev.end)
            return duration

        def _take_name(self, kind: str) -> exp.Expr:
            return self._parse_id_var() or self._refuse(f"expected the name of the {kind}")

        def _take_string(self, what: str) -> exp.Expr:
            token = self._curr
            if not self._match(TokenType.STRING):
                self._refuse(f"expected {what}")
            node = exp.Literal.string(self._prev.text)
            node.meta.update(start=token.start, end=token.end)
            return node

        def _take_word(self) -> str:
            token = self._advance_any(ignore_reserved=True)
            return token.text if token else str(self._refuse("the statement ends too early"))

        def _take_end(self, node: exp.Expr) -> exp.Expr:
            if self._curr:
                self._refuse(f"did not expect '{self._curr.text}' here")
            return node

        def _refuse(self, message: str, token: Any = None) -> exp.Expr:
            at: Token | None = token or self._curr
            start, end = (at.start, at.end + 1) if at else (len(self.sql.rstrip()), None)
            raise LanguageError(message, self.sql, start, end)


def parse(text: str) -> list[exp.Expr]:
    """The statements of a text, in order."""
    try:
        parsed = Muntin().parse(text)
    except ParseError as error:
        raise _located(error, text) from error
    except TokenError as error:
        start = int(re.findall(r"\d+", str(error.__cause__))[-1]) if error.__cause__ else 0
        raise LanguageError("this quotation or comment does not end", text, start) from error
    statements = [statement for statement in parsed if statement is not None]
    for statement in statements:
        if not isinstance(statement, CreateStream | CreateJob | DropJob | exp.Semicolon):
            start, end = span(statement) or (0, 1)
            message = "expected CREATE STREAM, CREATE JOB or DROP JOB"
            raise LanguageError(message, text, start, end)
    return [s for s in statements if not isinstance(s, exp.Semicolon)]


def span(node: exp.Expr) -> tuple[int, int] | None:
    """Where in the text a node stands, as far as the parser kept it."""
    places = [n.meta for n in node.walk() if "start" in n.meta]
    if not places:
        return None
    return min(p["start"] for p in places), max(p["end"] for p in places) + 1


def _located(error: ParseError, text: str) -> LanguageError:
    first = error.errors[0]
    lines = text.split("\n")
    highlight = str(first["highlight"] or "")
    line, col = int(first["line"] or 1), int(first["col"] or 1)
    start = sum(len(row) + 1 for row in lines[: line - 1]) + col - len(highlight)
    return LanguageError(str(first["description"]), text, max(0, start), start + len(highlight))
