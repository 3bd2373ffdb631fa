"""From parsed statements to streams and jobs, refusing what cannot be answered.

Every refusal points at the place in the text. Types are DuckDB's own answer: expressions are
bound against an empty relation with the stream's columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from difflib import get_close_matches
from functools import cache

import duckdb
from sqlglot import exp

from muntin.errors import InputError, LanguageError
from muntin.kernel import tables as files
from muntin.kernel.engine import describe, is_function, quote
from muntin.kernel.kinds import kind_of
from muntin.language import dialect
from muntin.language.around import finished_job
from muntin.language.bounds import bounded
from muntin.language.calls import PYTHON, check_one_record
from muntin.language.cores import find_cores, needs_finish
from muntin.language.cycles import Ahead, looked, no_window, unwindowed
from muntin.language.derived import results_of, stream_name, stream_of
from muntin.language.foreign import translation
from muntin.language.keeper import check_name, keep_of
from muntin.language.latest import is_latest, latest_tables
from muntin.language.messages import nearest, reason
from muntin.language.over import Over, duration_of, overs_of
from muntin.language.python import Python, aggregate_code, python_job
from muntin.language.queries import sql_job, table_of
from muntin.language.scope import Scope, is_number, is_time, is_whole
from muntin.language.script import Script
from muntin.language.sources import OF_JOB
from muntin.logs.formats import FIXED_COLUMNS, TIMESTAMP_OF
from muntin.logs.patterns import PathPattern
from muntin.logs.regexes import group_names, portable
from muntin.logs.times import EPOCH_UNITS, since_epoch_sql
from muntin.model.jobs import Edition, Job, Program
from muntin.model.records import Column
from muntin.model.shapes import Code
from muntin.model.streams import Format, Stream
from muntin.model.tables import Table
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
    columns_of, settings_of = cache(columns_of), cache(settings_of)
    known: dict[str, Stream] = {}

    def look(ahead: Ahead) -> Checker:
        script = Script(text)
        if not script.statements:
            message = "nothing is defined here; expected CREATE STREAM or CREATE JOB"
            raise LanguageError(message, text, 0)
        known.clear()
        known.update(streams or {})
        checker = Checker(script, columns_of, settings_of, known, python or Python(), ahead)
        checker.jobs.update(jobs or {})
        checker.tables.update(tables or {})
        for statement in script.statements:
            checker.take(statement)
        return checker

    try:
        checker = looked(look, lambda checker: (checker.script, checker.jobs))
        for _, message in unwindowed(checker.program):
            raise LanguageError(message, text, 0)
    except LanguageError as error:
        otherwise = translation(text.removeprefix("\ufeff"), error.start)
        if otherwise is not None:
            said = otherwise.message, text, otherwise.start, otherwise.end
            error = LanguageError(*said).with_traceback(error.__traceback__)
        error.streams = tuple(known.values())
        raise error from None
    return checker.program


class Checker:
    """Takes one statement after another; each sees what those before it have defined."""

    def __init__(
        self,
        script: Script,
        columns_of: ColumnsOf,
        settings_of: SettingsOf,
        streams: dict[str, Stream],
        python: Python,
        ahead: Ahead | None = None,
    ) -> None:
        """Jobs that are named before they are defined are known `ahead`, or noted there."""
        self.script = script
        self.ahead = ahead or Ahead()
        self.python = python
        self.columns_of = columns_of
        self.settings_of = settings_of
        self.streams = streams
        self.jobs: dict[str, Job] = {}
        self.tables: dict[str, Table] = {}
        self.aggregates: dict[str, Code] = {}

    @property
    def program(self) -> Program:
        read = {job.stream for job in self.jobs.values()}
        kept = {n: s for n, s in self.streams.items() if n in read or not s.members}
        return Program(kept, share_panes(self.jobs), self.tables, self.aggregates)

    def take(self, statement: exp.Expr) -> None:
        if isinstance(statement, dialect.CreateStream):
            self._stream(statement)
        elif isinstance(statement, dialect.CreateJob):
            if statement.args.get("replaces"):
                known = spelled(statement.name, self.jobs)
                self.jobs = {n: job for n, job in self.jobs.items() if job.title != known}
            self._job(statement)
            written = self.script.written[self.script.statements.index(statement)]
            edition = Edition(text=written.text, values=tuple(written.values.items()))
            for name, job in self.jobs.items():
                if job.title == statement.name:
                    self.jobs[name] = replace(job, edition=edition)
            check_name(self.script, statement, self.streams, self.jobs)
        elif isinstance(statement, dialect.CreateAggregate):
            self._aggregate(statement)
        elif isinstance(statement, dialect.CreateTable):
            self._table(statement)
        elif isinstance(statement, dialect.DropJob):
            self._drop(statement)
        else:
            message = "this is said to jobs that run; a program defines them"
            raise self.script.error(message, statement)

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
        stream = _with_blanks(node, self._timed(node, stream))
        self.streams[name] = replace(stream, keep=keep_of(self.script, node, stream))
        check_name(self.script, node, self.streams, self.jobs)

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
        checker = Checker(script, self.columns_of, self.settings_of, self.streams, self.python)
        checker.take(script.statements[self.script.statements.index(node)])

    def _agent(self, node: exp.Expr) -> str:
        """An address, or the name of a file that lists some."""
        host, colon, port = str(node.name).rpartition(":")
        if colon and not (host and port.isdigit() and 0 < int(port) < 1 << 16):
            message = "this is no address of an agent; expected 'host:port', or a file of them"
            raise self.script.error(message, node)
        return str(node.name)

    def _timed(self, node: exp.Expr, stream: Stream) -> Stream:
        """The stream with its times; texts of which they are made are not taken for times."""
        try:
            return self._spanning(node, replace(stream, timestamp=self._timestamp(node, stream)))
        except LanguageError:
            texts = self._texts(node, stream)
            if texts == stream.columns:
                raise
            with suppress(LanguageError):  # then what is wrong with times is told
                return self._timed(node, replace(stream, columns=texts))
            raise

    def _texts(self, node: exp.Expr, stream: Stream) -> tuple[Column, ...]:
        """The columns, with those as text that a sample shows as times and the clauses use."""
        told = [node.args.get("timestamp"), node.args.get("until")]
        used = {c.name.lower() for e in told if e is not None for c in e.find_all(exp.Column)}
        return tuple(
            replace(column, type="VARCHAR")
            if stream.inferred and column.type == "TIMESTAMP" and column.name.lower() in used
            else column
            for column in stream.columns
        )

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
            close = get_close_matches(name, EPOCH_UNITS, n=1)
            expected = f"expected {', '.join(EPOCH_UNITS[:-1])} or {EPOCH_UNITS[-1]}"
            meant = f"did you mean {close[0]}?" if close else expected
            raise self.script.error(f"unknown unit '{unit.name}'; {meant}", unit)
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
        self._results(name, query)
        if not node.args.get("code") and needs_finish(query):
            latest = latest_tables(self.script, query, self.jobs, self.ahead, self.streams)
            if not node.args.get("windows") and (way := self._way_back(name, latest)) is not None:
                raise self.script.error(no_window(way, name), node.this)
            tables = {**self.tables, **latest}
            found = find_cores(self.script, query, name, self._readable, tables)
            stream = found.cores[0].view.stream
            if stream.members:
                self.streams[stream.name] = stream
            self._parts(
                name, node, stream, lambda over: finished_job(self.script, found, name, query, over)
            )
            return
        table = table_of(self.script, query)
        name_of_stream = spelled(stream_name(table), self._readable)
        if name_of_stream is None and spelled(table.name, self.tables) is not None:
            message = (
                f"'{table.name}' is a table; a job reads a stream, and may join it with tables"
            )
            raise self.script.error(message, table)
        if name_of_stream is None:
            declared = [s.name for s in self._readable.values() if s.job is None]
            known = nearest(table.name, declared, "no stream is defined yet")
            if (read := spelled(table.name, self.jobs)) is not None:
                known = f"for the results of the job say FROM JOB {read}"
            elif "." in table.name:
                known = f"files are declared: CREATE STREAM name FROM '{table.name}'"
            raise self.script.error(f"unknown stream '{table.name}'; {known}", table)
        stream = self.streams[name_of_stream]
        if node.args.get("code"):
            self.jobs[name] = python_job(self.script, stream, name, node, self.python)
            return
        self._parts(
            name, node, stream, lambda over: sql_job(self.script, stream, name, query, over)
        )

    def _way_back(self, name: str, latest: Mapping[str, Table]) -> str | None:
        """How a job uses its own results, as far as that is known before it is defined."""
        users = {job.title: job.latest for job in self.jobs.values()}
        for table in latest.values():
            if table.job == name:
                return f"{name} → {name}"
            if table.job is not None and name in users.get(table.job, ()):
                return f"{name} → {table.job} → {name}"
        return None

    def _parts(
        self, name: str, node: exp.Expr, stream: Stream, made: Callable[[Over], Job]
    ) -> None:
        """Takes a job, or one for each shape that its windows have: they differ in these alone."""
        first, *others = overs_of(self.script, stream, node)
        self._check_agents(name, node, stream, (first, *others))
        self.jobs[name] = bounded(self.script, node, first, made(first))
        for over in others:
            job = bounded(self.script, node, over, made(over))
            (window,) = kind_of(job.shape).names(job)
            part = f"{name} ({window})"
            self.jobs[part] = replace(job, name=part, part_of=name)

    def _check_agents(
        self, name: str, node: exp.Expr, stream: Stream, overs: Iterable[Over]
    ) -> None:
        """Refuses what agents cannot be told in time: a session has no pane to begin with."""
        latest = [t for t in node.args["query"].find_all(exp.Table) if is_latest(t)]
        if stream.agents and latest and any(over.gap is not None for over in overs):
            message = (
                f"job '{name}' has sessions, and agents use another job's result from a pane on, "
                "which sessions do not have; give it windows"
            )
            raise self.script.error(message, latest[0])

    @property
    def _titles(self) -> set[str]:
        """What the user calls the jobs."""
        return {job.title for job in self.jobs.values()}

    @property
    def _readable(self) -> dict[str, Stream]:
        """The streams that a query may name."""
        return {name: stream for name, stream in self.streams.items() if not stream.members}

    def _results(self, name: str, query: exp.Expr) -> None:
        """Has a stream for the results of every job that the query of a job reads as such."""
        for table in query.find_all(exp.Table):
            if not table.meta.get(OF_JOB):
                continue
            job = spelled(table.name, self.jobs)
            if job is None:
                known = nearest(table.name, self._titles, "no job is defined before this one")
                if table.name.lower() == name.lower():
                    known = (
                        f"in itself, a job has its last results as PREVIOUS({name}), or as "
                        f"LATEST({name})"
                    )
                elif any(table.name.lower() == s.name.lower() for s in self.script.statements):
                    known = (
                        "it is defined behind this one: put it before, or take its newest result, "
                        f"LATEST({table.name}), where jobs use one another"
                    )
                raise self.script.error(f"unknown job '{table.name}'; {known}", table)
            if [each.title for each in self.jobs.values()].count(job) > 1:
                message = (
                    f"job '{job}' has sessions beside other windows; they are not read together"
                )
                hint = "give the windows that you mean a job of their own"
                raise self.script.error(f"{message}: {hint}", table)
            stream = stream_of(self.script, self.jobs[job], table)
            self.streams[stream.name] = stream

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
        name = spelled(node.name, self.jobs)
        if name is not None:
            read = self.streams.get(results_of(name))
            reader = next(
                (j.name for j in self.jobs.values() if read and j.stream == read.name), ""
            )
            if reader:
                raise self.script.error(f"job '{reader}' reads its results; drop that first", node)
            self.jobs = {n: job for n, job in self.jobs.items() if job.title != name}
        elif not node.args.get("if_exists"):
            known = nearest(node.name, self._titles, "no job is defined before this line")
            raise self.script.error(f"unknown job '{node.name}'; {known}", node)

    def _new_name(self, node: exp.Expr, kind: str, taken: Mapping[str, object]) -> str:
        if spelled(node.name, taken) is not None:
            raise self.script.error(f"there is already {_a(kind)} named '{node.name}'", node.this)
        if not node.name.replace("_", "").replace("-", "").isalnum():
            message = f"the name of {_a(kind)} is made of letters, digits, '_' and '-'"
            raise self.script.error(message, node.this)
        return str(node.name)


def _a(kind: str) -> str:
    return f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"


def spelled(name: str, among: Iterable[str]) -> str | None:
    """The name as it was first written: case does not tell names apart."""
    return next((known for known in among if known.lower() == name.lower()), None)


def _names_in(format_: Format) -> list[str] | None:
    """The fields that a format has whatever the files hold, or None when files tell."""
    if format_.kind in FIXED_COLUMNS:
        return [column.name for column in FIXED_COLUMNS[format_.kind]]
    return list(group_names(format_.pattern)) if format_.pattern is not None else None


def _with_blanks(node: exp.Expr, stream: Stream) -> Stream:
    """The stream, of whose texts every line is a record if it has a time whatever is in it."""
    time = node.args.get("timestamp")
    known = (
        stream.format.kind == "text" and time is not None and not list(time.find_all(exp.Column))
    )
    return replace(stream, format=replace(stream.format, blanks=True)) if known else stream
