"""From parsed statements to streams and jobs, refusing what cannot be answered.

Every refusal points at the place in the text. Types are DuckDB's own answer: expressions are
bound against an empty relation with the stream's columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import duckdb
from sqlglot import exp

from muntin.errors import InputError, LanguageError
from muntin.kernel import tables as files
from muntin.kernel.engine import describe, is_function, quote
from muntin.language import dialect
from muntin.language.around import finished_job
from muntin.language.bounds import bounded
from muntin.language.calls import PYTHON, check_one_record
from muntin.language.cores import find_cores, needs_finish
from muntin.language.foreign import translation
from muntin.language.messages import nearest, reason
from muntin.language.over import duration_of, over_of
from muntin.language.python import Python, aggregate_code, python_job
from muntin.language.queries import sql_job, table_of
from muntin.language.scope import Scope, is_number, is_time, is_whole
from muntin.language.script import Script
from muntin.logs.formats import FIXED_COLUMNS, TIMESTAMP_OF
from muntin.logs.patterns import PathPattern
from muntin.logs.regexes import group_names, portable
from muntin.logs.times import EPOCH_UNITS, since_epoch_sql
from muntin.model import Code, Column, Format, Job, Program, Stream, Table
from muntin.windows.sharing import share_panes

ColumnsOf = Callable[[Stream], tuple[Column, ...]]
Clauses = Mapping[str, str]  # FORMAT, TIMESTAMP and SLACK, each with what stands behind it
SettingsOf = Callable[[str, tuple[str, ...]], Clauses]


def check(
    text: str,
    columns_of: ColumnsOf,
    streams: Mapping[str, Stream] | None = None,
    python: Python | None = None,
    jobs: Mapping[str, Job] | None = None,
    tables: Mapping[str, Table] | None = None,
    settings_of: SettingsOf = lambda _, __: {},
) -> Program:
    """The program a text defines. `columns_of` looks at the logs for columns not declared.

    `settings_of` asks agents for the clauses of a stream that says nothing of its format.
    """
    known = dict(streams or {})
    try:
        script = Script(text)
        if not script.statements:
            message = "nothing is defined here; expected CREATE STREAM or CREATE JOB"
            raise LanguageError(message, text, 0)
        checker = _Checker(script, columns_of, settings_of, known, python or Python())
        checker.jobs.update(jobs or {})
        checker.tables.update(tables or {})
        for statement in script.statements:
            checker.take(statement)
    except LanguageError as error:
        otherwise = translation(text.removeprefix("\ufeff"), error.start)
        if otherwise is not None:
            said = otherwise.message, text, otherwise.start, otherwise.end
            error = LanguageError(*said).with_traceback(error.__traceback__)
        error.streams = tuple(known.values())
        raise error from None
    return Program(checker.streams, share_panes(checker.jobs), checker.tables)


class _Checker:
    def __init__(
        self,
        script: Script,
        columns_of: ColumnsOf,
        settings_of: SettingsOf,
        streams: dict[str, Stream],
        python: Python,
    ) -> None:
        self.script = script
        self.python = python
        self.columns_of = columns_of
        self.settings_of = settings_of
        self.streams = streams
        self.jobs: dict[str, Job] = {}
        self.tables: dict[str, Table] = {}
        self.aggregates: dict[str, Code] = {}

    def take(self, statement: exp.Expr) -> None:
        if isinstance(statement, dialect.CreateStream):
            self._stream(statement)
        elif isinstance(statement, dialect.CreateJob):
            self._job(statement)
        elif isinstance(statement, dialect.CreateAggregate):
            self._aggregate(statement)
        elif isinstance(statement, dialect.CreateTable):
            self._table(statement)
        else:
            self._drop(statement)

    def _table(self, node: exp.Expr) -> None:
        name = self._new_name(node, "table", self.tables)
        self._new_name(node, "stream", self.streams)
        path = node.args["path"]
        kind = node.args.get("kind") or files.kind_of_file(path.name)
        if kind is None:
            message = f"what '{path.name}' holds is not told by its name; expected FORMAT behind it"
            raise self.script.error(f"{message}, and one of {', '.join(files.KINDS)}", path)
        declared = self._columns(node.args.get("columns") or (), Format("json"))
        table = Table(name, str(path.name), kind, declared)
        try:
            self.tables[name] = replace(table, columns=files.columns_of(table))
        except InputError as error:
            raise self.script.error(str(error), path) from error

    def _stream(self, node: exp.Expr) -> None:
        name = self._new_name(node, "stream", self.streams)
        self._new_name(node, "table", self.tables)
        agents = tuple(self._agent(place) for place in node.args.get("agents") or ())
        if node.args.get("format") is None:
            self._with_settings(node, name, agents)
            return
        stream = Stream(
            name=name,
            agents=agents,
            patterns=tuple(self._pattern(p) for p in node.args.get("patterns") or ()),
            format=self._format(node.args["format"]),
            columns=(),
            timestamp="",
            slack_us=self._slack(node.args.get("slack")),
            sources=self._sources(node.args.get("sources") or ()),
            on_bad_row=node.args.get("on_bad_row") or "skip",
        )
        declared = self._columns(node.args.get("columns") or (), stream.format)
        columns = declared or self.columns_of(stream)
        told = bool(declared) or stream.format.kind in (*FIXED_COLUMNS, "parquet")
        stream = replace(stream, columns=columns, inferred=not told)
        stream = replace(stream, timestamp=self._timestamp(node, stream))
        self.streams[name] = self._spanning(node, stream)

    def _with_settings(self, node: exp.Expr, name: str, agents: tuple[str, ...]) -> None:
        """Takes a stream that leaves its format to the settings of its agents."""
        clauses = self.settings_of(name, agents)
        if "FORMAT" not in clauses:
            message = f"agents say no format for stream '{name}'; expected FORMAT here"
            raise LanguageError(message, self.script.text, int(node.args["listed"]) + 1)
        mine = {clause for clause in clauses if node.args.get(clause.lower()) is not None}
        told = " ".join(f"{c} {text}" for c, text in clauses.items() if c not in mine)
        at, text = int(node.args["listed"]) + 1, self.script.text
        script = Script(f"{text[:at]} {told}{text[at:]}")
        checker = _Checker(script, self.columns_of, self.settings_of, self.streams, self.python)
        checker.take(script.statements[self.script.statements.index(node)])

    def _agent(self, node: exp.Expr) -> str:
        """An address, or the name of a file that lists some."""
        host, colon, port = str(node.name).rpartition(":")
        if colon and not (host and port.isdigit() and 0 < int(port) < 1 << 16):
            message = "this is no address of an agent; expected 'host:port', or a file of them"
            raise self.script.error(message, node)
        return str(node.name)

    def _spanning(self, node: exp.Expr, stream: Stream) -> Stream:
        """The stream with what its records' spans mean: a moment, or every pane they touch."""
        until, spans = node.args.get("until"), node.args.get("spans")
        if until is None:
            if spans is not None:
                message = "BY says what to do with spans; expected TIMESTAMP start TO end before it"
                raise LanguageError(message, self.script.text, int(node.args["end"]))
            return stream
        if node.args.get("timestamp") is None:
            raise self.script.error("expected TIMESTAMP and where a span starts before TO", until)
        end = self._time(until, stream, "TO")
        if spans == "end":
            return replace(stream, timestamp=end)
        if spans in ("touch", "split"):
            return replace(stream, until=end, spans=spans)
        return stream

    def _timestamp(self, node: exp.Expr, stream: Stream) -> str:
        timestamp, usual = node.args.get("timestamp"), TIMESTAMP_OF.get(stream.format.kind)
        if timestamp is None:
            if usual in [quote(column.name) for column in stream.columns]:
                return usual
            message = "expected TIMESTAMP and a column or expression that tells the time"
            raise LanguageError(message, self.script.text, int(node.args["end"]) + 1)
        return self._time(timestamp, stream, "TIMESTAMP")

    def _time(self, node: exp.Expr, stream: Stream, clause: str) -> str:
        unit = node.args.get("field") if isinstance(node, exp.In) else None
        if unit is not None:
            return self._counted(node.this, stream, clause, unit)
        scope = Scope(self.script, stream, stream.columns)
        check_one_record(node, scope, clause)
        sql, kind = scope.bound(node)
        if not (is_number(kind) or is_time(kind) or kind == "VARCHAR"):
            message = f"{clause} is of type {kind}; expected a timestamp, text or a number"
            raise self.script.error(message, node)
        return sql

    def _counted(self, node: exp.Expr, stream: Stream, clause: str, unit: exp.Expr) -> str:
        """A time that is so many of a unit since 1970, whatever the size of the number."""
        name = unit.name.upper()
        if name not in EPOCH_UNITS:
            expected = f"{', '.join(EPOCH_UNITS[:-1])} or {EPOCH_UNITS[-1]}"
            raise self.script.error(f"unknown unit '{unit.name}'; expected {expected}", unit)
        sql = self._time(node, stream, clause)
        columns = {c.name: c.type for c in stream.columns}
        ((_, kind),) = describe(f"SELECT {sql} AS t FROM records", columns, "records")
        if is_time(kind):
            message = f"IN says what numbers since 1970 count, but this is of type {kind}"
            raise self.script.error(message, unit)
        return since_epoch_sql(sql, name, is_whole(kind))

    def _format(self, node: exp.Expr) -> Format:
        pattern, delimiter = node.args.get("pattern"), node.args.get("delimiter")
        separator = delimiter.name.replace("\\t", "\t") if delimiter is not None else ","
        if len(separator) != 1:
            raise self.script.error("the delimiter must be one character", delimiter)
        return Format(
            kind=node.args["this"],
            pattern=self._regex(pattern) if pattern is not None else None,
            header=node.args.get("header", "true") == "true",
            delimiter=separator,
        )

    def _regex(self, node: exp.Expr) -> str:
        try:
            named = group_names(node.name)
        except ValueError as error:
            raise self.script.error(str(error), node) from error
        if not named:
            message = "the regular expression names no group; expected (?P<name>…)"
            raise self.script.error(message, node)
        return portable(node.name)

    def _pattern(self, node: exp.Expr) -> str:
        try:
            PathPattern(node.name)
        except ValueError as error:
            raise self.script.error(str(error), node) from error
        return str(node.name)

    def _columns(self, nodes: Iterable[exp.Expr], format_: Format) -> tuple[Column, ...]:
        columns: dict[str, Column] = {}
        for node in nodes:
            column = self._column(node, _names_in(format_))
            if column.name.lower() in columns:
                raise self.script.error(f"there is already a column '{column.name}'", node.this)
            columns[column.name.lower()] = column
        return tuple(columns.values())

    def _column(self, node: exp.Expr, possible: list[str] | None) -> Column:
        if possible is not None and node.name not in possible:
            known = nearest(node.name, possible, "it has none")
            message = f"the format has no field '{node.name}'; {known}"
            raise self.script.error(message, node.this)
        kind = self.script.words(node.args["kind"])
        try:
            ((_, exact),) = describe(f"SELECT NULL::{kind} AS t FROM records", {}, "records")
        except duckdb.Error as error:
            raise self.script.error(reason(error), node.args["kind"]) from error
        return Column(node.name, exact)

    def _slack(self, node: exp.Expr | None) -> int | None:
        if node is None:
            return None
        slack = duration_of(self.script, node)
        if slack < 0:
            raise self.script.error("SLACK must not be negative", node)
        return slack

    def _sources(self, nodes: Iterable[exp.Expr]) -> tuple[str, ...]:
        names: list[str] = []
        for node in nodes:
            if node.name in names:
                raise self.script.error(f"source '{node.name}' is there twice", node)
            if not node.name:
                raise self.script.error("expected the name of a source", node)
            names.append(str(node.name))
        return tuple(names)

    def _job(self, node: exp.Expr) -> None:
        name = self._new_name(node, "job", self.jobs)
        self._mark_aggregates(node)
        query = node.args["query"]
        if not node.args.get("code") and needs_finish(query):
            found = find_cores(self.script, query, self.streams, self.tables)
            over = over_of(self.script, found.cores[0].view.stream, node)
            job = finished_job(self.script, found, name, query, over)
            self.jobs[name] = bounded(self.script, node, over, job)
            return
        table = table_of(self.script, query)
        spelled = _spelled(table.name, self.streams)
        if _spelled(table.name, self.tables) is not None:
            message = (
                f"'{table.name}' is a table; a job reads a stream, and may join it with tables"
            )
            raise self.script.error(message, table)
        if spelled is None:
            known = nearest(table.name, self.streams, "no stream is defined yet")
            raise self.script.error(f"unknown stream '{table.name}'; {known}", table)
        stream = self.streams[spelled]
        if node.args.get("code"):
            self.jobs[name] = python_job(self.script, stream, name, node, self.python)
            return
        over = over_of(self.script, stream, node)
        job = sql_job(self.script, stream, name, query, over)
        self.jobs[name] = bounded(self.script, node, over, job)

    def _aggregate(self, node: exp.Expr) -> None:
        name = self._new_name(node, "aggregate", self.aggregates).lower()
        if is_function(name):
            raise self.script.error(f"there is already a function named '{name}'", node.this)
        self.aggregates[name] = aggregate_code(self.script, name, node.args["code"], self.python)

    def _mark_aggregates(self, job: exp.Expr) -> None:
        """Tells calls of aggregates in Python from functions that DuckDB has to know."""
        for call in job.find_all(exp.Anonymous):
            code = self.aggregates.get(call.name.lower())
            if code is not None:
                call.meta[PYTHON] = code
            elif not is_function(call.name.lower()):
                self._hint_at_aggregates(call)
            if code is not None and any(
                kind.args.get("gap") for kind in job.args.get("windows") or ()
            ):
                message = "an aggregate in Python cannot be used over sessions"
                raise self.script.error(message, call)

    def _hint_at_aggregates(self, call: exp.Expr) -> None:
        hint = nearest(call.name, self.aggregates, "")
        if hint.startswith("did you mean"):
            raise self.script.error(f"unknown function '{call.name}'; {hint}", call)

    def _drop(self, node: exp.Expr) -> None:
        name = _spelled(node.name, self.jobs)
        if name is not None:
            del self.jobs[name]
        elif not node.args.get("if_exists"):
            known = nearest(node.name, self.jobs, "no job is defined before this line")
            raise self.script.error(f"unknown job '{node.name}'; {known}", node)

    def _new_name(self, node: exp.Expr, kind: str, taken: Mapping[str, object]) -> str:
        if _spelled(node.name, taken) is not None:
            raise self.script.error(f"there is already {_a(kind)} named '{node.name}'", node.this)
        if not node.name.replace("_", "").replace("-", "").isalnum():
            message = f"the name of {_a(kind)} is made of letters, digits, '_' and '-'"
            raise self.script.error(message, node.this)
        return str(node.name)


def _a(kind: str) -> str:
    return f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"


def _spelled(name: str, among: Iterable[str]) -> str | None:
    """The name as it was first written: case does not tell names apart."""
    return next((known for known in among if known.lower() == name.lower()), None)


def _names_in(format_: Format) -> list[str] | None:
    """The fields that a format has whatever the files hold, or None when files tell."""
    if format_.kind in FIXED_COLUMNS:
        return [column.name for column in FIXED_COLUMNS[format_.kind]]
    return list(group_names(format_.pattern)) if format_.pattern is not None else None
