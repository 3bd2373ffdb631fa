"""DuckDB's SQL plus CREATE STREAM, JOB, TABLE and AGGREGATE, and orders to jobs, for sqlglot.

The parser only recognises; `check` decides what is meant and whether it can be done.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any, ClassVar, TypeGuard

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.tokenizer_core import Token, TokenType

from muntin.kernel.tables import KINDS as TABLE_FORMATS
from muntin.language.messages import groups_joined
from muntin.language.sources import SourceParser
from muntin.units import counted, is_unit

_LIMITS = ("PANE", "BEGIN", "EXTENT", "WITHIN", "FIDELITY", "STRAGGLERS", "REVISE", "EMIT", "MAX",
           "RETAIN")  # fmt: skip
_OF_WINDOWS = {"EVERY": "slide", "CUMULATE": "step", "FROM": "start", "AT": "zone"}
_OF_STREAMS = {"FORMAT": "format", "TIMESTAMP": "timestamp", "SLACK": "slack",
               "SOURCES": "sources", "ON BAD ROW": "on_bad_row", "RETAIN": "retain"}  # fmt: skip
_BEFORE_WINDOW = {"WHERE": "WHERE", "GROUP": "GROUP BY", "HAVING": "HAVING", "ORDER": "ORDER BY",
                  "LIMIT": "LIMIT", "OFFSET": "OFFSET", "QUALIFY": "QUALIFY"}  # fmt: skip
_CLAUSES = (*_OF_WINDOWS, *_LIMITS)
SPANS = ("START", "END", "TOUCH", "SPLIT")
ORDERS = ("PAUSE", "RESUME", "RESET")
FORMATS = ("json", "csv", "parquet", "combined", "common", "regex", "text")


class CreateStream(exp.Expression):
    arg_types: ClassVar = {
        "this": True,
        "columns": False,
        "patterns": False,
        "agents": False,
        "format": False,
        "timestamp": False,
        "until": False,
        "spans": False,
        "slack": False,
        "sources": False,
        "on_bad_row": False,
        "retain": False,
        "listed": False,
        "end": False,
    }


class CreateJob(exp.Expression):
    arg_types: ClassVar = {
        "this": True,
        "query": True,
        "code": False,
        "windows": False,
        "pane": False,
        "begin": False,
        "extent": False,
        "within": False,
        "fidelity": False,
        "stragglers": False,
        "revise": False,
        "emit": False,
        "max": False,
        "retain": False,
        "end": False,
        "replaces": False,
        "at": False,
    }


class CreateAggregate(exp.Expression):
    arg_types: ClassVar = {"this": True, "code": True}


class CreateTable(exp.Expression):
    arg_types: ClassVar = {"this": True, "columns": False, "path": True, "kind": False}


class DropJob(exp.Expression):
    arg_types: ClassVar = {"this": True, "if_exists": False}


class JobOrder(exp.Expression):
    """PAUSE, RESUME or RESET, and the name of a job."""

    arg_types: ClassVar = {"this": True, "does": True}


class SetParameter(exp.Expression):
    arg_types: ClassVar = {"this": True, "parameter": True, "value": True}


class FormatSpec(exp.Expression):
    arg_types: ClassVar = {"this": True, "pattern": False, "header": False, "delimiter": False}


class Duration(exp.Expression):
    """A number and a unit, for example 5 MINUTES or 1000 RECORDS, or 500 OF a sequence."""

    arg_types: ClassVar = {"this": True, "unit": False, "of": False}


class RetainStream(exp.Expression):
    """How long records are kept, and which of their columns: none are named where all are kept."""

    arg_types: ClassVar = {"this": True, "columns": False}


class Within(exp.Expression):
    arg_types: ClassVar = {"this": True, "at": False}


class Fidelity(exp.Expression):
    arg_types: ClassVar = {"this": True, "form": True}


class Revise(exp.Expression):
    arg_types: ClassVar = {"this": False}


class WindowKind(exp.Expression):
    arg_types: ClassVar = {
        "range": False,
        "slide": False,
        "step": False,
        "start": False,
        "zone": False,
        "gap": False,
    }


class MuntinParser(SourceParser):
    in_query = False  # where a statement is a SELECT, as in WITH

    def _parse_statement(self) -> exp.Expr | None:
        if self.in_query:
            return self._parse_select(nested=True) or self._refuse("expected SELECT")
        if not self._curr or self._match(TokenType.SEMICOLON):
            return None
        if self._match(TokenType.CREATE):
            return self._take_create()
        if self._match(TokenType.DROP):
            return self._take_drop()
        if self._match_texts(ORDERS):
            return self._take_order()
        if self._match(TokenType.SET):
            return self._take_set()
        expected = "CREATE STREAM, JOB, TABLE or AGGREGATE, or DROP, PAUSE, RESUME or RESET JOB"
        return self._refuse(f"expected {expected}, or SET")

    def _take_order(self) -> exp.Expr:
        does = self._prev.text.upper()
        if not self._match_text_seq("JOB"):
            self._refuse(f"expected JOB after {does}")
        return self._take_end(JobOrder(this=self._take_name("job"), does=does.lower()))

    def _take_set(self) -> exp.Expr:
        job = self._take_name("job")
        if not self._match(TokenType.DOT):
            self._refuse("expected a job and its parameter, as in SET job.threshold = 5")
        parameter = self._take_name("parameter")
        if not (self._match(TokenType.EQ) or self._match_text_seq("TO")):
            self._refuse("expected = and a value")
        value = self._placed(self._parse_assignment)
        if value is None:
            self._refuse("expected a value, such as 5 or 'text'")
        return self._take_end(SetParameter(this=job, parameter=parameter, value=value))

    def _take_create(self) -> exp.Expr:
        if self._match_text_seq("OR", "REPLACE"):
            if not self._match_text_seq("JOB"):
                self._refuse("expected JOB after OR REPLACE")
            job = self._take_job()
            job.set("replaces", True)
            return job
        if self._match_text_seq("STREAM"):
            return self._take_stream()
        if self._match_text_seq("JOB"):
            return self._take_job()
        if self._match_text_seq("AGGREGATE"):
            return self._take_aggregate()
        if self._match_text_seq("TABLE"):
            return self._take_table()
        return self._refuse("expected STREAM, JOB, TABLE or AGGREGATE after CREATE")

    def _take_table(self) -> exp.Expr:
        name = self._take_name("table")
        columns = self._take_columns()
        if not self._match(TokenType.FROM):
            self._refuse("expected FROM and a quoted file after the table's name")
        table = CreateTable(this=name, columns=columns, path=self._take_string("a quoted file"))
        if self._match_text_seq("FORMAT"):
            expected = f"expected one of {', '.join(TABLE_FORMATS)}"
            token, kind = self._curr, self._take_word(expected).lower()
            if kind not in TABLE_FORMATS:
                self._refuse(f"unknown format '{kind}'; {expected}", token)
            table.set("kind", kind)
        return self._take_end(table)

    def _take_aggregate(self) -> exp.Expr:
        name = self._take_name("aggregate")
        if not (self._match(TokenType.ALIAS) and self._match_text_seq("PYTHON")):
            self._refuse("expected AS PYTHON 'module:object' after the aggregate's name")
        code = self._take_string("a quoted 'module:object'")
        return self._take_end(CreateAggregate(this=name, code=code))

    def _take_drop(self) -> exp.Expr:
        if not self._match_text_seq("JOB"):
            self._refuse("expected JOB after DROP")
        exists = self._match_text_seq("IF", "EXISTS")
        return self._take_end(DropJob(this=self._take_name("job"), if_exists=exists))

    def _take_stream(self) -> exp.Expr:
        name = self._take_name("stream")
        columns = self._take_columns()
        if not self._match(TokenType.FROM):
            self._refuse("expected FROM and a quoted file pattern, or FROM AGENTS")
        agents = bool(self._match_text_seq("AGENTS"))
        what = "a quoted address 'host:port'" if agents else "a quoted file pattern"
        places = self._take_strings(what)
        stream = CreateStream(this=name, columns=columns)
        stream.set("agents" if agents else "patterns", places)
        stream.set("listed", self._prev.end)
        if self._match_text_seq("FORMAT"):
            stream.set("format", self._take_format())
        elif not agents:
            self._refuse(f"expected FORMAT and one of {', '.join(FORMATS)}")
        while clause := self._take_stream_clause():
            key, value, token = clause
            if stream.args.get(key):
                self._refuse(f"{token.text.upper()} is there twice", token)
            stream.set(key, value)
        stream.set("end", self._prev.end)
        return self._take_end(stream)

    def _take_stream_clause(self) -> tuple[str, Any, Token] | None:
        token = self._curr
        if self._match_text_seq("TIMESTAMP"):
            time = self._parse_assignment()
            what = "a column or expression that tells the time"
            return "timestamp", time or self._refuse(f"expected {what}"), token
        if self._match_text_seq("TO"):
            what = "a column or expression that tells where a record's span ends"
            return "until", self._parse_assignment() or self._refuse(f"expected {what}"), token
        if self._match_text_seq("BY"):
            if not self._match_texts(SPANS):
                self._refuse(f"expected {', '.join(SPANS[:-1])} or {SPANS[-1]} after BY")
            return "spans", self._prev.text.lower(), token
        if self._match_text_seq("SLACK"):
            return "slack", self._take_duration("SLACK"), token
        if self._match_text_seq("SOURCES"):
            return "sources", self._take_strings("the quoted name of a source"), token
        if self._match_text_seq("RETAIN"):
            return "retain", self._take_retain_stream(), token
        if self._match_text_seq("ON"):
            return "on_bad_row", self._take_on_bad_row(), token
        return None

    def _take_retain_stream(self) -> exp.Expr:
        length = self._take_duration("RETAIN")
        if not self._match_text_seq("OF"):
            self._refuse(
                "expected OF STREAM, and the columns to keep in parentheses; without OF, RETAIN "
                "stands behind the WINDOW of a job, whose panes it keeps"
            )
        whole, listed = self._match_text_seq("STREAM"), self._match(TokenType.L_PAREN)
        columns = self._parse_csv(lambda: self._take_name("column")) if listed or not whole else []
        if listed and not self._match(TokenType.R_PAREN):
            self._refuse("expected ',' or ')' in the list of columns to keep")
        return RetainStream(this=length, columns=columns)

    def _take_columns(self) -> list[exp.Expr]:
        if not self._match(TokenType.L_PAREN):
            return []
        columns = self._parse_csv(self._take_column)
        if not self._match(TokenType.R_PAREN):
            self._refuse("expected ',' or ')' in the list of columns")
        return columns

    def _take_column(self) -> exp.Expr:
        name = self._take_name("column")
        kind = self._placed(lambda: self._parse_types())
        if kind is None:
            self._refuse(f"expected a type for column {name.name}")
        return exp.ColumnDef(this=name, kind=kind)

    def _take_format(self) -> exp.Expr:
        token = self._curr
        kind = self._take_word(f"expected one of {', '.join(FORMATS)}").lower()
        if kind not in FORMATS:
            close = get_close_matches(kind, FORMATS, n=1)
            meant = f"did you mean {close[0]}?" if close else f"expected {', '.join(FORMATS)}"
            self._refuse(f"unknown format '{kind}'; {meant}", token)
        spec = FormatSpec(this=kind)
        if kind == "regex":
            spec.set("pattern", self._take_string("a quoted regular expression with named groups"))
        if kind == "csv" and self._match(TokenType.L_PAREN):
            self._parse_csv(lambda: self._take_csv_option(spec))
            if not self._match(TokenType.R_PAREN):
                self._refuse("expected ',' or ')' in the CSV options")
        return spec

    def _take_csv_option(self, spec: FormatSpec) -> None:
        token = self._curr
        option = self._take_word("expected HEADER or DELIMITER").lower()
        if option == "header":
            value = self._take_word("expected true or false").lower()
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
        if not self._match_texts(("SKIP", "FAIL")):
            self._refuse("expected SKIP or FAIL after ON BAD ROW")
        return self._prev.text.lower()

    def _take_job(self) -> exp.Expr:
        name = self._take_name("job")
        if not self._match(TokenType.ALIAS):
            dashed = self._curr.token_type is TokenType.DASH
            hint = "; one with '-' stands in double quotes" if dashed else ""
            self._refuse(f"expected AS SELECT … after the job's name{hint}")
        is_python = self._match_text_seq("PYTHON")
        code = self._take_string("a quoted 'module:Class'") if is_python else None
        self.in_query = True
        query = self._placed(self._take_source if is_python else self._parse_select)
        self.in_query = False
        if query is None:
            self._refuse("expected SELECT or PYTHON after AS")
        job = CreateJob(this=name, query=query, code=code, end=self._prev.end)
        if self._match(TokenType.WINDOW):
            windows = [self._take_window("WINDOW")]
            while self._match(TokenType.COMMA):
                windows.append(self._take_window("','"))
            job.set("windows", windows)
            self._take_bounds(job, windows[0].args.get("range"))
        if self._match_text_seq("AT", "NEXT"):
            first = self._prev
            if not self._match_texts(("WINDOW", "PANE")):
                self._refuse("expected WINDOW or PANE after AT NEXT")
            job.set("at", self._since(first, exp.Var(this=self._prev.text.lower())))
        return self._take_end(job)

    def _is_at_next(self) -> bool:
        """Whether AT NEXT WINDOW follows, rather than AT with a time zone or a share."""
        following = self._next.text.upper() if self._next else ""
        return bool(self._curr) and self._curr.text.upper() == "AT" and following == "NEXT"

    def _take_source(self) -> exp.Expr:
        """FROM and WHERE of a job in Python, as a query that selects nothing."""
        if not self._curr or self._curr.token_type is not TokenType.FROM:
            self._refuse("expected FROM and the name of a stream")
        stream = self._parse_from()
        return exp.Select(expressions=[], from_=stream, where=self._parse_where())

    def _take_window(self, after: str) -> exp.Expr:
        first = self._curr
        if self._match_text_seq("SESSION"):
            return self._since(first, WindowKind(gap=self._take_extent("SESSION")))
        length = self._take_extent(after)
        kind = WindowKind(range=length)
        while self._curr and self._curr.text.upper() in _OF_WINDOWS and not self._is_at_next():
            word = self._curr.text.upper()
            key = _OF_WINDOWS[word]
            self._take_once(kind, key, "AT TIME ZONE" if word == "AT" else word)
            if word == "AT":
                kind.set(key, self._take_zone())
            else:
                take = self._take_position if word == "FROM" else self._take_extent
                kind.set(key, take(word, length))
        return self._since(first, kind)

    def _take_zone(self) -> exp.Expr:
        if not self._match_text_seq("TIME", "ZONE"):
            self._refuse("expected TIME ZONE after AT")
        first = self._curr
        if not self._match(TokenType.STRING):
            self._refuse("expected a quoted time zone, for example 'Europe/Berlin'")
        return self._since(first, exp.Literal.string(first.text))

    def _take_bounds(self, job: exp.Expr, length: exp.Expr | None) -> None:
        """The clauses behind the windows, each once, in any order."""
        while self._curr and self._curr.text.upper() in _LIMITS:
            word = self._curr.text.upper()
            self._take_once(job, word.lower(), word)
            job.set(word.lower(), self._take_bound(word, length))

    def _take_bound(self, word: str, length: exp.Expr | None) -> exp.Expr:
        if word == "WITHIN":
            return self._take_within()
        if word == "FIDELITY":
            return self._take_fidelity()
        if word == "STRAGGLERS":
            if not self._match_texts(("LEAP", "WAIT")):
                self._refuse("expected LEAP or WAIT after STRAGGLERS")
            return self._since(self._prev, exp.Var(this=self._prev.text.lower()))
        if word == "REVISE":
            first = self._prev
            wanted = self._match_text_seq("FOR")
            return self._since(first, Revise(this=self._take_duration("FOR") if wanted else None))
        if word == "EMIT":
            if not self._match_texts(("CHANGES", "FINAL")):
                self._refuse("expected CHANGES or FINAL after EMIT")
            return self._since(self._prev, exp.Var(this=self._prev.text.lower()))
        if word == "MAX":
            return self._take_max_errors()
        if word == "RETAIN":
            return self._take_retain()
        take = self._take_position if word == "BEGIN" else self._take_extent
        return take(word, length)

    def _take_retain(self) -> exp.Expr:
        length = self._take_duration("RETAIN")
        if self._match_text_seq("OF"):
            message = (
                "RETAIN keeps the panes of this job; OF STREAM stands in CREATE STREAM, whose "
                "records it keeps"
            )
            self._refuse(message, self._prev)
        return length

    def _take_max_errors(self) -> exp.Expr:
        first = self._prev
        if not self._match_text_seq("ERRORS"):
            self._refuse("expected ERRORS after MAX, and how many")
        number = self._curr
        if not self._match(TokenType.NUMBER) or not number.text.isdigit():
            self._refuse("expected a whole number after MAX ERRORS, for example 100", number)
        return self._since(first, exp.Literal(this=self._prev.text, is_string=False))

    def _take_within(self) -> exp.Expr:
        first, length = self._curr, self._take_duration("WITHIN")
        is_share = not self._is_at_next() and self._match_text_seq("AT")
        at = self._take_percent("AT", "99 PERCENT") if is_share else None
        return self._since(first, Within(this=length, at=at))

    def _take_fidelity(self) -> exp.Expr:
        first, share = self._curr, self._take_percent("FIDELITY", "90 PERCENT")
        form = "area"
        if self._match_text_seq("SAMPLED"):
            form = "sampled"
        elif self._match_text_seq("OF"):
            if not self._match_texts(("SPACE", "TIME")):
                self._refuse("expected SPACE or TIME after OF")
            form = self._prev.text.lower()
        return self._since(first, Fidelity(this=share, form=form))

    def _take_percent(self, after: str, example: str) -> exp.Expr:
        first = self._curr
        sign = "-" if self._match(TokenType.DASH) else ""
        if not self._match(TokenType.NUMBER):
            self._refuse(f"expected a percentage after {after}, for example {example}")
        number = sign + self._prev.text
        if not (self._match_text_seq("PERCENT") or self._match(TokenType.MOD)):
            self._refuse(f"expected PERCENT after {number}")
        return self._since(first, exp.Literal(this=number, is_string=False))

    def _take_once(self, node: exp.Expr, key: str, word: str) -> None:
        if node.args.get(key):
            self._refuse(f"{'MAX ERRORS' if word == 'MAX' else word} is there twice")
        self._advance()

    def _take_extent(self, after: str, like: exp.Expr | None = None) -> exp.Expr:
        """A length of time or a count; a count that is `like` another may leave out its unit."""
        first, number = self._curr, self._take_number(after, like)
        if self._match_text_seq("OF"):
            sequence = self._placed(self._parse_bitwise)
            if sequence is None:
                self._refuse("expected the column that numbers the records after OF")
            return self._since(first, Duration(this=number, of=sequence))
        if is_count(like) and not (self._curr and is_unit(self._curr.text)):
            args = {"unit": like.args.get("unit"), "of": like.args.get("of")}
            return self._since(first, Duration(this=number, **args))
        return self._since(first, Duration(this=number, unit=self._take_unit(number)))

    def _take_duration(self, after: str) -> exp.Expr:
        first, number = self._curr, self._take_number(after)
        return self._since(first, Duration(this=number, unit=self._take_unit(number)))

    def _take_unit(self, number: str) -> str:
        expected = f"expected a unit after {number}, for example MINUTES"
        if self._curr and self._curr.text.upper() in _CLAUSES:
            self._refuse(expected)
        return self._take_word(expected)

    def _take_number(self, after: str, like: exp.Expr | None = None) -> str:
        sign = "-" if self._match(TokenType.DASH) else ""
        if not self._match(TokenType.NUMBER):
            what = "a length of time", "5 MINUTES"
            if after in ("WINDOW", "','"):
                what = "a length", "5 MINUTES or 1000 RECORDS"
            elif is_count(like):
                what = "a whole number", "1000"
            is_quoted = self._curr.token_type in (TokenType.STRING, TokenType.INTERVAL)
            plain = " without quotes and INTERVAL" if is_quoted else ""
            self._refuse(f"expected {what[0]}{plain} after {after}, for example {what[1]}")
        return sign + self._prev.text

    def _take_position(self, after: str, like: exp.Expr | None) -> exp.Expr:
        """A point on a job's axis: a quoted time, or a number."""
        first = self._curr
        if self._match(TokenType.STRING):
            return self._since(first, exp.Literal.string(first.text))
        sign = "-" if self._match(TokenType.DASH) else ""
        if self._match(TokenType.NUMBER):
            number = exp.Literal(this=sign + self._prev.text, is_string=False)
            return self._since(first, number)
        what = "a whole number" if is_count(like) else "a quoted time"
        example = "1000" if is_count(like) else "'2026-01-31 12:00:00'"
        return self._refuse(f"expected {what} after {after}, for example {example}")

    def _take_word(self, expected: str) -> str:
        if not self._curr or not self._curr.text[:1].isalpha():
            self._refuse(expected)
        self._advance()
        return self._prev.text

    def _take_end(self, node: exp.Expr) -> exp.Expr:
        if self._curr.token_type in (TokenType.CREATE, TokenType.DROP):
            self._refuse("expected ';' between two statements")
        if self._curr:
            self._refuse(f"did not expect '{self._curr.text}' here{self._hint(node)}")
        return node

    def _groups_joined(self, node: exp.Expr) -> str | None:
        """What to write where a join stands behind GROUP BY."""
        words = " ".join(token.text.upper() for token in self._tokens[self._index :][:3])
        if not node.args["query"].args.get("group") or "JOIN" not in words.split():
            return None
        start, _ = node.args["query"].meta["place"]
        rest = self.sql[self._curr.start :].partition(";")[0]
        return groups_joined(self.sql[start : self._curr.start], rest)

    def _hint(self, node: exp.Expr) -> str:
        """What could have followed where a statement goes on instead of ending."""
        if isinstance(node, CreateStream):
            left = [word for word, key in _OF_STREAMS.items() if not node.args.get(key)]
            close = get_close_matches(self._curr.text.upper(), left, n=1)
            meant = f"did you mean {close[0]}?" if close else f"expected {', '.join(left)} or ';'"
            return f"; {meant}"
        if not isinstance(node, CreateJob):
            return ""
        if windows := node.args.get("windows"):
            if (clause := _BEFORE_WINDOW.get(self._curr.text.upper().split()[0])) is not None:
                return f"; {clause} stands before WINDOW"
            return f"; expected {_next_words(node, windows[-1])} or the end"
        if (shown := self._groups_joined(node)) is not None:
            return f"; groups are joined in parentheses: {shown}"
        if node.args["query"].args.get("from_"):
            words = (token.text.upper() for token in (self._prev, self._curr))
            early = next((word for word in words if word in _LIMITS), None)
            return f"; {early} stands behind WINDOW" if early else "; expected WINDOW"
        if self._curr.token_type is TokenType.FROM:
            return "; it comes right after SELECT's list"
        if get_close_matches(self._prev.text.upper(), ["FROM"]):
            return f"; did you mean FROM in the place of {self._prev.text}?"
        return "; expected ',' or FROM"


def is_count(length: exp.Expr | None) -> TypeGuard[exp.Expr]:
    """Whether a length is counted in records, bytes or a sequence, and not in time."""
    if length is None:
        return False
    return bool(length.args.get("of")) or counted(length.args.get("unit") or "") is not None


def _next_words(job: exp.Expr, window: exp.Expr) -> str:
    """What could follow a job's last window and the bounds that it has already."""
    places = {word: (window, key) for word, key in _OF_WINDOWS.items()}
    places |= {word: (job, word.lower()) for word in _LIMITS}
    bounded = any(job.args.get(word.lower()) for word in _LIMITS)
    paned = {*_OF_WINDOWS, "PANE", "FIDELITY", "STRAGGLERS", "REVISE", "EMIT", "RETAIN"}
    unwanted = paned if window.args.get("gap") else set()
    unwanted |= set(_OF_WINDOWS) if bounded else set()
    unwanted |= {"AT"} if is_count(window.args.get("range")) else set()
    unwanted |= (
        {"EVERY", "CUMULATE"} if window.args.get("slide") or window.args.get("step") else set()
    )
    words = [w for w, (n, key) in places.items() if w not in unwanted and not n.args.get(key)]
    longer = {"MAX": "MAX ERRORS", "AT": "AT TIME ZONE", "EMIT": "EMIT CHANGES"}
    words = [longer.get(word, word) for word in words]
    return ", ".join(words if bounded or window.args.get("gap") else [*words, "','"])


class Muntin(DuckDB):
    Parser = MuntinParser

    class Tokenizer(DuckDB.Tokenizer):
        HEX_STRINGS: ClassVar = [("x'", "'"), ("X'", "'")]
        KEYWORDS: ClassVar = {k: v for k, v in DuckDB.Tokenizer.KEYWORDS.items() if k != "RESET"}
