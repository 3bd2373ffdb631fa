"""From parsed statements to streams and jobs, refusing what cannot be answered.

Every refusal points at the place in the text. Types are DuckDB's own answer: expressions are
bound against an empty relation with the stream's columns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import duckdb
from sqlglot import exp

from muntin.errors import LanguageError
from muntin.kernel.engine import describe
from muntin.language import dialect
from muntin.language.durations import microseconds
from muntin.language.messages import first_line, located, nearest
from muntin.language.queries import QueryChecker
from muntin.logs.regexes import group_names, portable
from muntin.logs.formats import TIMESTAMP_OF
from muntin.logs.patterns import PathPattern
from muntin.model import Column, Format, Job, Program, Stream
from muntin.windows.spec import WindowSpec

ColumnsOf = Callable[[Stream], tuple[Column, ...]]


def check(text: str, columns_of: ColumnsOf, streams: Mapping[str, Stream] | None = None) -> Program:
    """The program a text defines. `columns_of` looks at the logs for columns not declared."""
    checker = _Checker(text, columns_of, dict(streams or {}))
    for statement in dialect.parse(text):
        checker.take(statement)
    return Program(checker.streams, checker.jobs)


class _Checker:
    def __init__(self, text: str, columns_of: ColumnsOf, streams: dict[str, Stream]) -> None:
        self.text = text
        self.columns_of = columns_of
        self.streams = streams
        self.jobs: dict[str, Job] = {}

    def take(self, statement: exp.Expr) -> None:
        if isinstance(statement, dialect.CreateStream):
            self._stream(statement)
        elif isinstance(statement, dialect.CreateJob):
            self._job(statement)
        else:
            self._drop(statement)

    def _stream(self, node: exp.Expr) -> None:
        name = self._new_name(node, "stream", self.streams)
        stream = Stream(
            name=name,
            patterns=tuple(self._pattern(p) for p in node.args["patterns"]),
            format=self._format(node.args["format"]),
            columns=tuple(self._column(c) for c in node.args.get("columns") or ()),
            timestamp="",
            slack_us=self._slack(node.args.get("slack")),
            on_bad_row=node.args.get("on_bad_row") or "skip",
        )
        if not stream.columns:
            stream = replace(stream, columns=self.columns_of(stream))
        self.streams[name] = replace(stream, timestamp=self._timestamp(node, stream))

    def _timestamp(self, node: exp.Expr, stream: Stream) -> str:
        timestamp = node.args.get("timestamp")
        if timestamp is None:
            if stream.format.kind in TIMESTAMP_OF:
                return TIMESTAMP_OF[stream.format.kind]
            raise self.error("expected TIMESTAMP and the column or expression of the time", node)
        resolved = QueryChecker(self.text, stream, stream.name).resolved(timestamp)
        sql = resolved.sql("duckdb")
        try:
            columns = {c.name: c.type for c in stream.columns}
            ((_, kind),) = describe(f"SELECT {sql} AS t FROM records", columns, "records")
        except duckdb.Error as error:
            raise self.error(first_line(error), timestamp) from error
        if not kind.startswith((*_TIMES, *_NUMBERS)):
            raise self.error(
                f"TIMESTAMP is of type {kind}; expected a timestamp, text or a number", timestamp
            )
        return sql

    def _format(self, node: exp.Expr) -> Format:
        kind = node.args["this"]
        pattern = node.args.get("pattern")
        delimiter = node.args.get("delimiter")
        if pattern is not None:
            try:
                named = group_names(pattern.name)
            except ValueError as error:
                raise self.error(str(error), pattern) from error
            if not named:
                message = "the regular expression names no group; expected (?P<name>…)"
                raise self.error(message, pattern)
        text = delimiter.name.replace("\\t", "\t") if delimiter is not None else ","
        if len(text) != 1:
            raise self.error("the delimiter must be one character", delimiter)
        return Format(
            kind=kind,
            pattern=portable(pattern.name) if pattern is not None else None,
            header=node.args.get("header", "true") == "true",
            delimiter=text,
        )

    def _pattern(self, node: exp.Expr) -> str:
        try:
            PathPattern(node.name)
        except ValueError as error:
            raise self.error(str(error), node) from error
        return str(node.name)

    def _column(self, node: exp.Expr) -> Column:
        kind = node.args["kind"].sql("duckdb")
        try:
            describe(f"SELECT NULL::{kind} AS t FROM records", {}, "records")
        except duckdb.Error as error:
            raise self.error(first_line(error), node) from error
        return Column(node.name, kind)

    def _slack(self, node: exp.Expr | None) -> int | None:
        if node is None:
            return None
        slack = self._microseconds(node)
        if slack < 0:
            raise self.error("SLACK must not be negative", node)
        return slack

    def _job(self, node: exp.Expr) -> None:
        name = self._new_name(node, "job", self.jobs)
        query = node.args["query"]
        stream = self._stream_of(query)
        window = self._window(node)
        checker = QueryChecker(self.text, stream, _alias(query) or stream.name)
        self.jobs[name] = checker.job(name, query, window)

    def _stream_of(self, query: exp.Expr) -> Stream:
        if not isinstance(query, exp.Select):
            raise self.error("a job is one SELECT; UNION and the like are not possible", query)
        for clause, words in _REFUSED.items():
            found = query.args.get(clause)
            if found:
                place = found[0] if isinstance(found, list) else found
                raise self.error(f"{words} cannot be used in a job", place, query)
        source = query.args.get("from_")
        table = source.this if source else None
        if not isinstance(table, exp.Table):
            raise self.error("expected FROM and the name of a stream", table or query)
        if table.name not in self.streams:
            known = nearest(table.name, self.streams, "no stream is defined yet")
            raise self.error(f"unknown stream '{table.name}'; {known}", table)
        return self.streams[table.name]

    def _window(self, node: exp.Expr) -> WindowSpec:
        clause = node.args.get("window")
        if clause is None:
            end = int(node.args["end"]) + 1
            message = "expected WINDOW and its length, for example WINDOW 5 MINUTES EVERY 1 MINUTE"
            raise LanguageError(message, self.text, end)
        length, every = clause.args["range"], clause.args.get("slide") or clause.args["range"]
        range_us, slide_us = self._microseconds(length), self._microseconds(every)
        for node_, size in ((length, range_us), (every, slide_us)):
            if size <= 0:
                raise self.error("a window must be longer than zero", node_)
        if slide_us > range_us:
            message = "EVERY is longer than the window, so records in between would be in none"
            raise self.error(message, every)
        return WindowSpec(range_us, slide_us)

    def _microseconds(self, node: exp.Expr) -> int:
        try:
            return microseconds(node.args["this"], node.args["unit"])
        except ValueError as error:
            raise self.error(str(error), node) from error

    def _drop(self, node: exp.Expr) -> None:
        if node.name not in self.jobs and not node.args.get("if_exists"):
            known = nearest(node.name, self.jobs, "no job is defined before this line")
            raise self.error(f"unknown job '{node.name}'; {known}", node)
        self.jobs.pop(node.name, None)

    def _new_name(self, node: exp.Expr, kind: str, taken: Mapping[str, object]) -> str:
        if node.name in taken:
            raise self.error(f"there is already a {kind} named '{node.name}'", node.this)
        if not node.name.replace("_", "").replace("-", "").isalnum():
            message = f"the name of a {kind} is made of letters, digits, '_' and '-'"
            raise self.error(message, node.this)
        return str(node.name)

    def error(self, message: str, *places: exp.Expr) -> LanguageError:
        return located(message, self.text, *places)


_TIMES = ("TIMESTAMP", "DATE", "VARCHAR")
_NUMBERS = ("BIGINT", "INTEGER", "UBIGINT", "UINTEGER", "HUGEINT", "DOUBLE", "FLOAT", "DECIMAL")
_REFUSED = {
    "joins": "JOIN",
    "laterals": "LATERAL",
    "with_": "WITH",
    "qualify": "QUALIFY",
    "distinct": "SELECT DISTINCT (use GROUP BY)",
    "offset": "OFFSET",
    "sample": "SAMPLE",
}


def _alias(query: exp.Expr) -> str | None:
    return query.args["from_"].this.alias or None
