"""Jobs in Python: the class is found, looked at and asked what it needs; SQL says the rest."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import duckdb
from sqlglot import exp

from muntin.errors import CodeError, LanguageError
from muntin.kernel.engine import describe, literal, quote, run
from muntin.kernel.python.code import find, instance_of, payload_of, version_of
from muntin.kernel.python.mapping import batch_of
from muntin.kernel.python.rounds import CAUGHT, FailedCallError, Round, rounds_of
from muntin.kernel.python.states import METHODS, RETURNS
from muntin.language.bounds import MOST_SHOWN, bounded
from muntin.language.messages import nearest, reason
from muntin.language.over import Over, overs_of
from muntin.language.queries import RESERVED, result_type, sql_job
from muntin.language.scope import Scope, is_number, is_whole
from muntin.language.script import Script
from muntin.logs.chunks import LINE
from muntin.model.jobs import Job, Output
from muntin.model.records import Column
from muntin.model.shapes import Code, Key, Part, Shape, Style
from muntin.model.streams import Format, Stream, records_of

T = TypeVar("T")
_COMBINES = ("sum", "min", "max")
_INCREMENTAL = ("map", "init", "update")
_AS_IF = "CREATE JOB job AS PYTHON '' FROM stream "  # what a class says follows
_CLAUSES = ("begin", "extent", "within", "fidelity", "stragglers", "revise", "emit", "retain")


@dataclass(frozen=True)
class Python:
    """Where a text's Python is found: a folder of modules, or what is known by name already.

    `anew` reads modules of the folder again that were read before, as they may have been edited.
    """

    folder: str | None = None
    known: Mapping[str, Any] = field(default_factory=dict)
    anew: bool = False

    def find(self, reference: str) -> Any:
        if reference in self.known:
            return self.known[reference]
        return find(reference, self.folder, self.anew)


def python_job(script: Script, stream: Stream, name: str, node: exp.Expr, python: Python) -> Job:
    """The job that a class over the stream defines."""
    place = node.args["code"]
    try:
        return _Class(script, stream, name, node, python).job()
    except (CodeError, FailedCallError) as error:
        message = str(error) if isinstance(error, CodeError) else _told(error)
        raise script.error(message, place) from error


def aggregate_code(script: Script, name: str, place: exp.Expr, python: Python) -> Code:
    """The Python of an aggregate, if it has what one needs."""
    reference = str(place.name)
    try:
        target = python.find(reference)
        aggregate = _made(reference, target)
        missing = [m for m in METHODS if not callable(getattr(aggregate, m, None))]
        if missing:
            message = f"'{reference}' has no {missing[0]}; an aggregate has"
            raise CodeError(f"{message} {', '.join(METHODS)} and perhaps remove")
        payload = payload_of(target)
        code = Code(
            job=name,
            reference=reference,
            style="pairs",
            version=version_of(target, payload),
            max_errors=_limit(reference, aggregate, "max_errors", 0),
            max_state=_limit(reference, aggregate, "max_state", Code.max_state),
            removable=hasattr(aggregate, "remove"),
            returns=str(getattr(aggregate, "returns", RETURNS)),
            folder=python.folder,
            payload=payload,
        )
        describe(f"SELECT NULL::{code.returns} AS t FROM records", {}, "records")
        return code
    except CodeError as error:
        raise script.error(str(error), place) from error
    except duckdb.Error as error:
        raise script.error(f"returns of '{reference}': {reason(error)}", place) from error


def _made(reference: str, target: Any) -> Any:
    try:
        return instance_of(target, reference)
    except CodeError:
        raise
    except CAUGHT as error:
        told = f"{type(error).__name__}: {error}"
        without = "" if " " in reference else " without arguments"
        raise CodeError(f"{reference} cannot be made{without}: {told}") from error


def _limit(reference: str, owner: Any, name: str, usual: int) -> int:
    limit = getattr(owner, name, usual)
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 0:
        raise CodeError(f"{name} of {reference} is {limit!r}; expected a whole number")
    return limit


def _told(error: FailedCallError) -> str:
    return f"{error.method} failed on {error.given}: {error.reason}"


class _Class:
    def __init__(
        self, script: Script, stream: Stream, name: str, node: exp.Expr, python: Python
    ) -> None:
        self._script = script
        self._stream = stream
        self._name = name
        self._node = node
        self._reference = str(node.args["code"].name)
        self._target = python.find(self._reference)
        self._folder = python.folder
        self._job = self._instance()

    def _instance(self) -> Any:
        if not inspect.isclass(self._target):
            kind = type(self._target).__name__
            raise CodeError(f"'{self._reference}' is of type {kind}; expected a class")
        return _made(self._reference, self._target)

    def job(self) -> Job:
        style = self._style()
        script, node = self._clauses(style)
        *_, over = self._asked(script.text, lambda: overs_of(script, self._stream, node))
        if self._emits_on_update(style, over) and node.args.get("emit") is None:
            node.set("emit", exp.Var(this="changes"))
        job = self._made(style, over)
        return self._asked(script.text, lambda: bounded(script, node, over, job))

    def _emits_on_update(self, style: Style, over: Over) -> bool:
        """Whether update yields what has changed, so that nobody wants to wait for the end."""
        if style != "updates" or not inspect.isgeneratorfunction(self._job.update):
            return False
        return all(spec.overlap <= MOST_SHOWN for spec in over.windows)

    def _made(self, style: Style, over: Over) -> Job:
        if self._stream.spans is not None and over.axis.is_time:
            raise CodeError(
                "jobs in Python count moments; declare the stream's spans BY START or BY END"
            )
        if style == "updates" and self._is_windowless():
            style = "states"
            if self._has("finalize"):
                message = f"finalize of {self._reference} runs when a window ends, but the job has"
                raise CodeError(f"{message} none; give it a window, or leave finalize out")
            if len(over.windows) != 1 or over.windows[0].length != 1:
                raise CodeError(f"every of {self._reference} is one length, as in 10 SECONDS")
        if over.gap is not None:
            raise CodeError("a job in Python has no SESSION windows; let its reducer find sessions")
        where, filtered = self._where()
        takes = self._takes()
        uses = tuple(sorted({*takes, *filtered}))
        shape = Shape(
            stream=self._stream.name,
            records=records_of(self._stream, uses),
            keys=(Key("", "BLOB"),),
            parts=(Part(()),),
            uses=uses,
            axis=over.axis,
            pane=over.windows[0].pane,
            begin=over.begin,
            until=over.until,
            code=self._code(style, takes, where),
        )
        if style == "cells":
            return self._cells(shape, over)
        return Job(self._name, shape, over.windows, (), self._outputs())

    def _style(self) -> Style:
        if all(map(self._has, _INCREMENTAL)):
            return "updates"
        if self._has("map_batches"):
            return "cells" if self._combine() else "pairs"
        if any(r.mapper or r.reducer or r.mapper_final for r in self._rounds()[:1]):
            self._check_pairs()
            return "pairs"
        methods = "mapper and reducer, or map_batches, or map, init and update"
        missing = [method for method in _INCREMENTAL if not self._has(method)]
        lacks = missing[0] if len(missing) < len(_INCREMENTAL) else "methods of a job"
        raise CodeError(f"{self._reference} has no {lacks}; expected {methods}")

    def _has(self, method: str) -> bool:
        return callable(getattr(self._job, method, None))

    def _check_pairs(self) -> None:
        """Refuses what would never run."""
        if self._combine():
            message = f"combine of {self._reference} is for map_batches"
            raise CodeError(f"{message}; beside a mapper, write a combiner and a reducer")
        self._check_files()
        if self._has("uncombiner") and self._rounds()[0].combiner is None:
            message = f"{self._reference} has an uncombiner, but no combiner"
            raise CodeError(f"{message}; what is taken out has to be combined first")

    def _check_files(self) -> None:
        """Refuses files where there are none, or where some of their records are asked for."""
        if not self._rounds()[0].files:
            return
        told = f"mapper_raw of {self._reference} is given files"
        if not self._stream.patterns:
            raise CodeError(f"{told}, but stream '{self._stream.name}' is not read from any")
        if self._node.args["query"].args.get("where") is not None:
            raise CodeError(f"{told}, and WHERE chooses records; leave it out")

    def _rounds(self) -> list[Round]:
        try:
            return rounds_of(self._job)
        except CodeError:
            raise
        except CAUGHT as error:
            told = f"{type(error).__name__}: {error}"
            message = f"steps() of {self._reference} failed: {told}"
            raise CodeError(f"{message}; expected a list of steps") from error

    def _combine(self) -> str | None:
        combine = getattr(self._job, "combine", None)
        if combine is not None and combine not in _COMBINES:
            expected = ", ".join(_COMBINES)
            raise CodeError(f"combine of {self._reference} is {combine!r}; expected {expected}")
        unused = next((m for m in ("combiner", "reducer") if self._has(m)), None)
        if combine is not None and unused is not None and self._has("map_batches"):
            message = f"{self._reference} has combine = {combine!r} and a {unused}"
            raise CodeError(f"{message}, which would never run; leave one of them out")
        return combine

    def _code(self, style: Style, takes: tuple[str, ...], where: str | None) -> Code:
        payload = payload_of(self._target)
        return Code(
            job=self._name,
            reference=self._reference,
            style=style,
            version=version_of(self._target, payload),
            takes=takes,
            lines=self._is_text(),
            files=style == "pairs" and self._rounds()[0].files,
            where=where,
            max_errors=self._limit("max_errors", 0),
            max_state=self._limit("max_state", Code.max_state),
            max_keys=self._limit("max_keys", Code.max_keys),
            named=getattr(self._job, "columns", None) is not None,
            finalizes=self._has("finalize"),
            chained=style == "pairs" and len(self._rounds()) > 1,
            removable=style == "pairs" and self._has("uncombiner"),
            folder=self._folder,
            payload=payload,
        )

    def _limit(self, name: str, usual: int) -> int:
        return _limit(self._reference, self._job, name, usual)

    def _where(self) -> tuple[str | None, set[str]]:
        """The condition on records, and the columns in it."""
        where = self._node.args["query"].args.get("where")
        if where is None:
            return None, set()
        alias = self._node.args["query"].args["from_"].this.alias
        columns = self._stream.visible_columns()
        scope = Scope(self._script, self._stream, columns, alias)
        return scope.condition(where.this, "WHERE"), scope.used

    def _is_text(self) -> bool:
        return self._stream.format.kind == "text"

    def _takes(self) -> tuple[str, ...]:
        """The columns given to the mapper."""
        if self._is_text():
            return (LINE,)
        known = [column.name for column in self._stream.visible_columns()]
        asked = getattr(self._job, "uses", None)
        if isinstance(asked, str) or not isinstance(asked, Iterable | None):
            message = f"uses of {self._reference} is {asked!r}"
            raise CodeError(f"{message}; expected names of columns, as in ('k', 'n')")
        for name in asked or ():
            if name not in known:
                told = nearest(name, known, "it has no columns")
                message = f"{self._reference} uses '{name}', which stream"
                raise CodeError(f"{message} '{self._stream.name}' does not have; {told}")
        return tuple(known if asked is None else asked)

    def _is_windowless(self) -> bool:
        return not self._node.args.get("windows") and getattr(self._job, "window", None) is None

    def _clauses(self, style: Style) -> tuple[Script, exp.Expr]:
        """The clauses of the statement, or else what the class says in the same words."""
        if self._node.args.get("windows"):
            return self._script, self._node
        window = getattr(self._job, "window", None)
        if window is None and style == "updates":
            window = getattr(self._job, "every", "1 SECOND")
        if window is None:
            message = "expected WINDOW and its length, or a class with the attribute window"
            raise LanguageError(message, self._script.text, int(self._node.args["end"]) + 1)
        clauses = [f"WINDOW {window}"]
        for name in _CLAUSES:
            said = getattr(self._job, name, None)
            if name == "begin" and isinstance(said, str):
                said = literal(said)
            if name == "revise" and isinstance(said, str):
                said = f"FOR {said}"
            if said is not None and said is not False:
                clauses.append(name.upper() if said is True else f"{name.upper()} {said}")
        text = f"{_AS_IF}{' '.join(clauses)}"
        script = self._asked(text, lambda: Script(text))
        return script, script.statements[0]

    def _asked(self, text: str, call: Callable[[], T]) -> T:
        """What a call makes of the text; a mistake in the class's own words is told as theirs."""
        try:
            return call()
        except LanguageError as error:
            if not text.startswith(_AS_IF):
                raise
            asked = text.removeprefix(_AS_IF)
            raise CodeError(f"{self._reference} asks for {asked}: {error.message}") from error

    def _outputs(self) -> tuple[Output, ...]:
        columns = self._columns()
        if columns is None:
            return Output("key", "", "VARCHAR"), Output("value", "", "VARCHAR")
        return tuple(Output(name, "", self._type(name, kind)) for name, kind in columns.items())

    def _columns(self) -> Mapping[str, str] | None:
        columns = getattr(self._job, "columns", None)
        if columns is None:
            return None
        texts = isinstance(columns, Mapping) and all(
            isinstance(name, str) and isinstance(kind, str) for name, kind in columns.items()
        )
        if not texts or not columns:
            wanted = "expected names and SQL types, as in {'word': 'VARCHAR', 'n': 'BIGINT'}"
            raise CodeError(f"columns of {self._reference} are {columns!r}; {wanted}")
        names = [name.lower() for name in columns]
        twice = next((name for name in columns if names.count(name.lower()) > 1), None)
        if twice is not None:
            raise CodeError(f"columns of {self._reference} have two named '{twice}'")
        return dict(columns)

    def _type(self, name: str, kind: str) -> str:
        if name.lower() in RESERVED:
            raise CodeError(f"every result has a column '{name}'; choose another name in columns")
        try:
            ((_, exact),) = describe(f"SELECT NULL::{kind} AS t FROM records", {}, "records")
        except duckdb.Error as error:
            raise CodeError(f"column '{name}' of {self._reference}: {reason(error)}") from error
        return result_type(exact)

    def _cells(self, shape: Shape, over: Over) -> Job:
        """A job over keys and values in SQL, whose records are what map_batches makes."""
        made = self._mapped_columns(shape.code.takes if shape.code else ())
        mapped = Stream("mapped", (), Format("parquet"), made, "0")
        columns = self._columns() or {"key": "", "value": ""}
        if len(columns) != 2:
            raise CodeError(f"columns of {self._reference} are {len(columns)}; expected two")
        self._check_cells(made, columns)
        values = ["key", f"{self._combine()}(value)"]
        items = [
            f"{f'CAST({value} AS {kind})' if kind else value} AS {quote(name)}"
            for value, (name, kind) in zip(values, columns.items(), strict=True)
        ]
        text = f"CREATE JOB job AS SELECT {', '.join(items)} FROM mapped GROUP BY key"
        script = Script(text)
        job = sql_job(script, mapped, self._name, script.statements[0].args["query"], over)
        shape = replace(shape, keys=job.shape.keys, parts=job.shape.parts)
        return replace(job, shape=shape)

    def _check_cells(self, made: Iterable[Column], columns: Mapping[str, str]) -> None:
        """Refuses values that cannot be added up, and types that would round."""
        for column, (name, kind) in zip(made, columns.items(), strict=True):
            told = f"map_batches of {self._reference} gives {column.name}s of type {column.type}"
            if column.name == "value" and self._combine() == "sum" and not is_number(column.type):
                raise CodeError(f"{told}, which cannot be added up; expected numbers")
            whole = kind and is_whole(self._type(name, kind))
            if whole and is_number(column.type) and not is_whole(column.type):
                raise CodeError(f"{told}, but column '{name}' is {kind}, which would round them")

    def _mapped_columns(self, takes: tuple[str, ...]) -> tuple[Column, ...]:
        """The types of keys and values, told by what the class makes of no records."""
        types = {c.name: c.type for c in self._stream.visible_columns()}
        fields = ", ".join(f"NULL::{types[name]} AS {quote(name)}" for name in takes)
        empty = run(f"SELECT {fields} LIMIT 0", {}, f"describing job {self._name}")
        mapped = batch_of(self._job.map_batches, takes, empty)
        kinds = run("FROM (DESCRIBE mapped)", {"mapped": mapped}, "describing batches").to_pylist()
        return tuple(Column(row["column_name"], row["column_type"]) for row in kinds)
