"""Answers to questions: panes of a range are merged as a window over it would be, then asked.

The cells of the panes are merged for the groups that are asked for, and finished by the kernel as
those of any window are. The score of the range is made of what is known of its panes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from math import gcd
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from muntin.ask.columns import Columns, rows_of
from muntin.ask.keeping import Keeping, Memory, Read, Retained, require
from muntin.ask.question import Question, Wanted, question_of
from muntin.ask.ranges import positions_of
from muntin.errors import BadValueError, EngineError, InputError
from muntin.fidelity.score import C2, Reason
from muntin.kernel.due import Due
from muntin.kernel.engine import column_types, run
from muntin.kernel.finish import finish, order
from muntin.kernel.statements import FAULT, WINDOW, WINDOW_END, count_cell, merged_cells
from muntin.model.jobs import Finish, Job, Output
from muntin.model.shapes import Key, Shape
from muntin.store.storage import Place
from muntin.units import describe, describe_time
from muntin.windows.spec import WindowSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Merge = Callable[["Part"], tuple[pa.Table, Read]]
"""The rows of panes of one job, merged to the groups that are asked for, and what was read."""


@dataclass(frozen=True)
class Range:
    """One job's range in an answer: positions `[start, end)` in microseconds, and its score."""

    job: str
    called: str
    start: int
    end: int
    version: int
    c2: C2
    read: Read


@dataclass(frozen=True)
class PastRows:
    """The answer to a question: rows, and for each range of a job how complete it is.

    `notes` say where the answer is about something else than was asked for.
    """

    rows: pa.Table
    ranges: tuple[Range, ...]
    notes: tuple[str, ...] = ()

    @property
    def c2(self) -> C2:
        """How complete the answer is: of several ranges the least complete."""
        return min((each.c2 for each in self.ranges), key=lambda c2: c2.area)

    def to_pandas(self) -> Any:
        """A DataFrame of pandas."""
        return self.rows.to_pandas()

    def to_spark(self, spark: SparkSession) -> DataFrame:
        """A DataFrame of Spark."""
        return spark.createDataFrame(self.rows)


@dataclass(frozen=True)
class Part:
    """What is asked of the panes of one job: the range, and the groups to merge them to."""

    of: Retained
    start: int
    end: int
    unit: int  # that start and end are multiples of
    groups: tuple[str, ...]
    shape: Shape  # with the cells that are needed, and no others
    where: tuple[str, ...] = ()
    keys: frozenset[str | int] | None = None


class Asking:
    """Answers questions about a state; rows that were read are remembered if there is a memory."""

    def __init__(self, state: Place, memory: Memory | None = None) -> None:
        self._state = state
        self._keeping = Keeping(state, memory)

    def ask(self, text: str, merge: Merge | None = None) -> PastRows:
        """The answer, from what was committed last.

        `merge` is how panes become merged rows, if not in this process.
        """
        return self._keeping.again(lambda: self._answer(text, merge or self.merged))

    def explain(self, text: str) -> str:
        """What would be read."""

        def told() -> str:
            jobs = self._jobs()
            question = _question(text, jobs)
            lines = []
            for wanted in question.wanted:
                part, notes = _part(wanted, jobs[wanted.title], text)
                lines += [*self._explained(wanted, part), *(f"  note     {n}" for n in notes)]
            return "\n".join(lines)

        return self._keeping.again(told)

    def _explained(self, wanted: Wanted, part: Part) -> list[str]:
        of = part.of
        read = self._keeping.look(of, part.start, part.end, part.keys)
        panes = (part.end - part.start) // of.past.pane
        inside = min(part.end, of.moved) - part.start
        kept = max(0, inside // of.past.pane)
        groups = "one group" if wanted.groups == () else ", ".join(wanted.groups or ())
        from_ = f"{read.remembered:,} from memory, {read.pieces - read.remembered:,} from disk"
        return [
            f"{wanted.called}: job '{of.title}', version {of.job.edition.number}",
            f"  range    {describe_time(part.start)} to {describe_time(part.end)}",
            f"  panes    {panes:,} of {describe(of.past.pane)}: {kept:,} in files, "
            f"{panes - kept:,} in blocks of the newest state",
            f"  read     {read.pieces:,} of {read.of_pieces:,} pieces of {read.files:,} files "
            f"({from_}): {read.rows:,} rows; {read.open_rows:,} open rows; {read.bytes:,} bytes",
            f"  filter   {_named(' AND '.join(part.where), of.job) or 'none'}",
            f"  groups   {_named(groups, of.job) or 'those of the job, as rows'}",
        ]

    def _jobs(self) -> dict[str, Retained]:
        jobs = self._keeping.jobs()
        require(list(jobs), self._state)
        return jobs

    def _answer(self, text: str, merge: Merge) -> PastRows:
        jobs = self._jobs()
        question = _question(text, jobs)
        tables: dict[str, pa.Table] = {}
        ranges: list[Range] = []
        notes: list[str] = []
        for wanted in question.wanted:
            of = jobs[wanted.title]
            part, told = _part(wanted, of, text)
            block, read = merge(part)
            tables[wanted.relation], faults = _finished(wanted, part, block)
            notes += [*told, *faults]
            number = of.job.edition.number
            ranges.append(
                Range(of.title, wanted.called, part.start, part.end, number, _score(part), read)
            )
        return PastRows(_run(question, tables), tuple(ranges), tuple(dict.fromkeys(notes)))

    def merged(self, part: Part) -> tuple[pa.Table, Read]:
        """The panes of a part, merged in this process."""
        rows, read = self._keeping.rows(part.of, part.start, part.end, part.keys)
        return merged_rows(part, rows), read


def _named(sql: str, job: Job) -> str:
    """SQL over keys with the names that users know."""
    for column in Columns(job).every:
        if column.is_key:
            sql = sql.replace(f"({column.output.sql})", column.name)
    return sql


def _question(text: str, jobs: Mapping[str, Retained]) -> Question:
    return question_of(text, lambda title: jobs[title].job, list(jobs))


def _part(wanted: Wanted, of: Retained, text: str) -> tuple[Part, list[str]]:
    """What is asked of a job, with its range on panes, and what there is to say of that."""
    past, notes = of.past, list[str]()
    size = past.grid(past.began)
    began, until = -(-past.began // size) * size, past.until
    there = f"job '{of.title}' has panes from {describe_time(began)} to {describe_time(until)}"
    if began >= until:
        raise InputError(f"job '{of.title}' has no whole pane yet; ask again a little later")
    start, end = positions_of(wanted.asked, began, until, text)
    if end <= began or start >= until:
        raise InputError(
            f"nothing is retained between {describe_time(start)} and {describe_time(end)}: {there}"
        )
    if start < began or end > until:
        notes.append(f"{there}: the answer is about that part of the range")
    start, end = max(start, began), min(end, until)
    first, last = past.grid(start), past.grid(end - 1)
    lower, upper = start // first * first, -(-end // last) * last
    if (lower, upper) != (start, end):
        notes.append(
            f"job '{of.title}' has panes of {describe(max(first, last))}: the answer is from "
            f"{describe_time(lower)} to {describe_time(upper)}"
        )
    sizes = [past.pane, *(size for size, _ in past.grids)]
    unit = reduce(gcd, [*sizes, lower, upper])
    groups = wanted.groups
    if groups is None:
        groups = tuple(f"p0.k{i}" for i in range(len(of.shape.answered.keys)))
    shape = of.shape.answered
    if wanted.groups is not None:
        shape = _narrowed(shape, of.job.finishes, wanted.columns)
    return Part(of, lower, upper, unit, groups, shape, wanted.where, wanted.keys), notes


def _narrowed(shape: Shape, finishes: Sequence[Finish], outputs: Sequence[Output]) -> Shape:
    """The shape with the cells alone that some outputs are made of; parts keep their numbers."""
    said = " ".join(output.sql for output in outputs)
    needed = [f for f in finishes if re.search(rf"\bp{f.part}\.{f.name}\b", said)]
    parts = []
    for number, part in enumerate(shape.parts):
        mine = " ".join(f"{f.sql} {f.whole}" for f in needed if f.part == number)
        if not mine and number:
            parts.append(replace(part, cells=(), ranked=False))
            continue
        count = count_cell(part)
        cells = (c for c in part.cells if c is count or re.search(rf"\b{c.name}\b", mine))
        parts.append(replace(part, cells=tuple(cells)))
    return replace(shape, parts=tuple(parts))


def _score(part: Part) -> C2:
    past = part.of.past
    start, end = part.start // part.unit, part.end // part.unit
    board = past.board(part.unit, part.start, part.end)
    c2 = board.score(start, end, Reason.COMPLETE)
    if part.end > past.settled:
        return replace(c2, reason=Reason.OPEN)
    return c2 if c2.area == 1.0 else replace(c2, reason=Reason.EXHAUSTED)


def merged_rows(part: Part, rows: pa.Table) -> pa.Table:
    """Rows of panes as one block: a row for each of the groups that are asked for."""
    shape = part.shape
    keys = [f"{sql} AS k{i}" for i, sql in enumerate(part.groups)]
    subs = [f"s{i}" for i, each in enumerate(shape.parts) if each.sub_key is not None]
    names = ["part", *keys, *subs]
    there = [str(number) for number, each in enumerate(shape.parts) if each.cells]
    some = [f"part IN ({', '.join(there)})"] if len(there) < len(shape.parts) else []
    where = " AND ".join(f"({each})" for each in (*some, *part.where))
    sql = (
        f"SELECT {', '.join(names)}, {merged_cells(shape)}\nFROM rows AS p0"
        + (f"\nWHERE {where}" if where else "")
        + "\nGROUP BY ALL"
    )
    return _engine(sql, {"rows": rows}, f"job '{part.of.title}'")


def _finished(wanted: Wanted, part: Part, block: pa.Table) -> tuple[pa.Table, list[str]]:
    """A merged block as the rows of one window, which is the range."""
    job, span = part.of.job, part.end - part.start
    spec = WindowSpec(span, span, part.start % span, part.unit)
    pane = pa.repeat(pa.scalar(part.start // part.unit, pa.int64()), len(block))
    nothing, shared = (
        pa.nulls(len(block), pa.int64()),
        pa.repeat(pa.scalar(0, pa.int32()), len(block)),
    )
    columns = {"pane": pane, "spec": shared, "not_before": nothing}
    for number, (name, values) in enumerate(columns.items()):
        block = block.add_column(number, name, values)
    asked = _asked(wanted, part, job, block)
    asked = replace(asked, windows=(spec,), shape=replace(asked.shape, pane=part.unit))
    done = finish(
        asked.shape, {asked.name: asked}, block, Due({asked.name: [[part.end // part.unit]]})
    )
    rows = done.rows[asked.name]
    if asked.around is None and FAULT not in rows.column_names:  # the question has its own order
        columns = {o.name: rows.column(f"x{i}") for i, o in enumerate(asked.outputs)}
        return pa.table(columns), []
    rows, faults = order(asked, [rows]), []
    if FAULT in rows.column_names:
        bad = rows.column(FAULT).drop_null()
        faults = [f"{len(bad):,} rows of job '{job.title}' are left out: SQL refuses their values"]
        rows = rows.filter(rows.column(FAULT).is_null()).drop_columns([FAULT])
    return rows.drop_columns([n for n in (WINDOW, WINDOW_END) if n in rows.column_names]), faults


def _asked(wanted: Wanted, part: Part, job: Job, block: pa.Table) -> Job:
    """The job whose window has the rows that are asked for."""
    shape = replace(part.shape, begin=None, until=None, draws=None, since=None)
    if wanted.groups is None:
        return replace(rows_of(job), shape=shape)
    types = column_types(block)
    keys = tuple(Key(f"k{i}", types[f"k{i}"]) for i in range(len(part.groups)))
    groups = [Output(f"__g{i}", f"p0.k{i}", key.type) for i, key in enumerate(keys)]
    count, _ = Columns(job).records
    there = {cell.name for each in shape.parts for cell in each.cells}
    finishes = [f for f in job.finishes if there.issuperset(re.findall(r"\bc\d+\b", f.sql))]
    finishes = [f for f in finishes if shape.parts[f.part].cells]
    return Job(
        job.name,
        replace(shape, keys=keys),
        job.windows,
        (*finishes, count),
        (*groups, *wanted.columns),
    )


def _run(question: Question, tables: Mapping[str, pa.Table]) -> pa.Table:
    return _engine(f"FROM (\n{question.sql}\n)", tables, "this question")


def _engine(sql: str, tables: Mapping[str, pa.Table], doing: str) -> pa.Table:
    try:
        return run(sql, tables, doing)
    except BadValueError:
        raise
    except EngineError as error:
        reason = error.reason.partition("\n\nLINE")[0]
        raise InputError(f"{doing} cannot be answered: {reason}") from error
