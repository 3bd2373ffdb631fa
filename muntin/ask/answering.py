"""Answers to questions: panes of a range are merged as a window over it would be, then asked.

The cells of the panes are merged for the groups that are asked for, and finished by the kernel as
those of any window are. The score of the range is made of what is known of its panes.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from math import gcd
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa

from muntin.ask.columns import Columns, rows_of
from muntin.ask.keeping import Keeping, Memory, Read, Retained, empty_rows, require
from muntin.ask.question import Question, Wanted, question_of
from muntin.ask.ranges import Asked
from muntin.ask.records import Kept, database
from muntin.ask.versions import Chosen, chosen
from muntin.errors import BadValueError, EngineError, InputError, LanguageError
from muntin.fidelity.score import C2, Reason
from muntin.kernel.due import Due
from muntin.kernel.engine import column_types, run
from muntin.kernel.engine import describe as described
from muntin.kernel.finish import finish, order
from muntin.kernel.kinds import kind_of
from muntin.kernel.python.partials import merge_blocks
from muntin.kernel.python.states import merged as merged_states
from muntin.kernel.statements import FAULT, WINDOW, WINDOW_END, count_cell, merged_cells
from muntin.language.messages import reason
from muntin.model.counts import Fault
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
    between: tuple[int, int] | None = None  # of records: where in these panes they are

    @property
    def lower(self) -> int:
        return self.start if self.between is None else self.between[0]

    @property
    def upper(self) -> int:
        return self.end if self.between is None else self.between[1]


class Asking:
    """Answers questions about a state; rows that were read are remembered if there is a memory."""

    def __init__(self, state: Place, memory: Memory | None = None) -> None:
        self._state = state
        self._keeping = Keeping(state, memory)

    def ask(self, text: str, merge: Merge | None = None) -> PastRows:
        """The answer, from what was committed last.

        `merge` is how panes become merged rows, if not in this process.
        """
        return self._keeping.again(lambda: self._answer(text, merge))

    def explain(self, text: str) -> str:
        """What would be read."""

        def told() -> str:
            jobs = self._jobs()
            question = _question(text, jobs)
            lines = []
            for wanted in question.wanted:
                found = chosen(jobs[wanted.title], wanted.asked, text)
                part, notes = _part(wanted, found)
                told = self._explained(wanted, part, found.number)
                lines += [*told, *(f"  note     {n}" for n in notes)]
            return "\n".join(lines)

        return self._keeping.again(told)

    def _explained(self, wanted: Wanted, part: Part, version: int) -> list[str]:
        of = part.of
        read = self._keeping.look(of, part.start, part.end, part.keys)
        panes = (part.end - part.start) // of.past.pane
        inside = min(part.end, of.moved) - part.start
        kept = max(0, inside // of.past.pane)
        groups = "one group" if wanted.groups == () else ", ".join(wanted.groups or ())
        what, by = "job", f"groups   {_named(groups, of.job) or 'those of the job, as rows'}"
        if wanted.records is not None:
            columns = [o.name for o in of.job.outputs if o.name in wanted.records]
            what, by = "stream", f"columns  {', '.join(columns) or 'none'}"
        from_ = f"{read.remembered:,} from memory, {read.pieces - read.remembered:,} from disk"
        open_ = f"{read.open_rows:,} open rows"
        if read.open_rows:
            open_ += " from memory" if read.open_remembered else " from disk"
        return [
            f"{wanted.called}: {what} '{of.title}', version {version}",
            f"  range    {describe_time(part.lower)} to {describe_time(part.upper)}",
            f"  panes    {panes:,} of {describe(of.past.pane)}: {kept:,} in files, "
            f"{panes - kept:,} in blocks of the newest state",
            f"  read     {read.pieces:,} of {read.of_pieces:,} pieces of {read.files:,} files "
            f"({from_}): {read.rows:,} rows; {open_}; {read.bytes:,} bytes",
            f"  filter   {_named(' AND '.join(wanted.where), of.job) or 'none'}",
            f"  {by}",
        ]

    def _jobs(self) -> dict[str, tuple[Retained, ...]]:
        jobs = self._keeping.jobs()
        require(list(jobs), self._state)
        return jobs

    def _answer(self, text: str, merge: Merge | None) -> PastRows:
        jobs = self._jobs()
        question = _question(text, jobs)
        tables: dict[str, pa.Table] = {}
        reads: dict[str, Read] = {}
        notes: list[str] = []
        parts: dict[str, Part] = {}
        numbers: dict[str, int] = {}
        for wanted in question.wanted:
            found = chosen(jobs[wanted.title], wanted.asked, text)
            part, told = _part(wanted, found)
            _check_keys(wanted, part, question.text)
            parts[wanted.relation] = part
            numbers[wanted.relation] = found.number
            notes += [*told, *_told_of_bad(part)]
            if wanted.records is None:
                block, reads[wanted.relation] = (merge or self.merged)(part)
                tables[wanted.relation], faults = _finished(wanted, part, block)
                notes += faults
        if len(tables) == len(parts):
            rows = _run(question, tables, [part.of.job for part in parts.values()])
        else:
            rows, more = self._of_records(question, parts, tables, merge)
            reads |= more
        ranges = [
            Range(
                part.of.title, wanted.called, part.lower, part.upper, numbers[wanted.relation],
                _score(part), reads[wanted.relation],
            )
            for wanted, part in ((wanted, parts[wanted.relation]) for wanted in question.wanted)
        ]  # fmt: skip
        return PastRows(rows, tuple(ranges), tuple(dict.fromkeys(notes)))

    def _of_records(
        self,
        question: Question,
        parts: Mapping[str, Part],
        tables: Mapping[str, pa.Table],
        merge: Merge | None,
    ) -> tuple[pa.Table, dict[str, Read]]:
        """The answer to a question about records and rows of jobs, and what was read of each."""
        reads: dict[str, Read] = {}
        streams = {
            wanted.relation: Kept.of(parts[wanted.relation].of.job, wanted.records)
            for wanted in question.wanted
            if wanted.records is not None
        }
        with database() as records:
            for relation, rows in tables.items():
                records.beside(relation, rows)
            for relation, kept in streams.items():
                records.create(relation, kept)
            records.check(question, [part.of.job for part in parts.values()])
            for relation, kept in streams.items():
                part, read = parts[relation], Read()
                if merge is None:
                    for rows in self._keeping.pieces(
                        part.of, part.start, part.end, part.keys, read
                    ):
                        records.add(relation, kept, rows, part.where)
                else:
                    rows, read = merge(part)
                    records.add(relation, kept.moved, rows)
                reads[relation] = read
            return records.answer(question), reads

    def merged(self, part: Part) -> tuple[pa.Table, Read]:
        """The panes of a part, merged in this process."""
        rows, read = self._keeping.rows(part.of, part.start, part.end, part.keys)
        return merged_rows(part, rows), read


def _told_of_bad(part: Part) -> Iterator[str]:
    """What there is to say of rows of logs that are in no pane, as they could not be parsed."""
    bad, exactly = part.of.past.bad.between(part.start, part.end)
    if bad:
        many = f"{'' if exactly else 'up to '}{bad:,} row{'' if bad == 1 else 's'}"
        what = "stream" if part.of.job.is_keeper else "job"
        yield (
            f"{many} of the logs of {what} '{part.of.title}' in this range could not be parsed, "
            "and are not in the answer; its score does not count them"
        )


def _named(sql: str, job: Job) -> str:
    """SQL over keys with the names that users know."""
    for column in Columns(job).every:
        if column.is_key:
            sql = sql.replace(f"({column.output.sql})", column.name)
    return sql


def _question(text: str, jobs: Mapping[str, Sequence[Retained]]) -> Question:
    def known(title: str, asked: Asked | None) -> Job:
        return chosen(jobs[title], asked, text).of.job

    return question_of(text, known, list(jobs))


def _part(wanted: Wanted, found: Chosen) -> tuple[Part, list[str]]:
    """What is asked of a job, with its range on panes, and what there is to say of that."""
    of, past, notes = found.of, found.of.past, list[str]()
    start, end = max(found.start, found.lower), min(found.end, found.upper)
    if not found.newest:
        notes.append(f"{found.there}, and answers for them: later ones are of another version")
    if (start, end) != (found.start, found.end):
        notes.append(f"{found.there}: the answer is about that part of the range")
    first, last = past.grid(start), past.grid(end - 1)
    lower, upper = start // first * first, -(-end // last) * last
    if (lower, upper) != (start, end) and wanted.records is None:
        notes.append(
            f"job '{of.title}' has panes of {describe(max(first, last))}: the answer is from "
            f"{describe_time(lower)} to {describe_time(upper)}"
        )
    sizes = [past.pane, *(size for size, _ in past.grids)]
    unit = reduce(gcd, [*sizes, lower, upper])
    if wanted.records is not None:
        kept = Kept.of(of.job, wanted.records)
        inside = kept.inside(start, end) if (lower, upper) != (start, end) else ()
        where = (*inside, *wanted.where)
        shape = of.shape.answered
        part = Part(of, lower, upper, unit, kept.keys, shape, where, wanted.keys, (start, end))
        return part, notes
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
    if not kind_of(shape).has_cells:
        block = _as_block(part, rows)
        merged = merge_blocks(shape, [block, block.slice(0, 0)])
        return merged.drop_columns(["pane", "spec", "not_before"])
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
    try:
        made = run(sql, {"rows": rows}, f"job '{part.of.title}'")
    except BadValueError as error:
        told = error.reason.partition("\n")[0]
        raise InputError(
            f"job '{part.of.title}': its keys do not fit what they are compared with: {told}; "
            f"keys and their types: {_typed_keys(part.of.job)}"
        ) from error
    return merged_states(shape, made)


def _check_keys(wanted: Wanted, part: Part, text: str) -> None:
    """Raises a LanguageError if what is asked of keys cannot be asked of values of their types."""
    if not wanted.places or not kind_of(part.shape).has_cells:
        return
    types = column_types(empty_rows(part.of.shape.answered))
    for sql, place in wanted.places:
        try:
            described(f"SELECT {sql} FROM rows AS p0", types, "rows")
        except duckdb.Error as error:
            told = f"{reason(error)}; keys of job '{part.of.title}' and their types: "
            raise LanguageError(f"{told}{_typed_keys(part.of.job)}", text, *place) from error


def _typed_keys(job: Job) -> str:
    keys = (each for each in Columns(job).every if each.is_key)
    return ", ".join(f"{each.name} ({each.output.type})" for each in keys)


def _as_block(part: Part, rows: pa.Table) -> pa.Table:
    """Merged rows as a block of the first pane of the range."""
    pane = pa.repeat(pa.scalar(part.start // part.unit, pa.int64()), len(rows))
    shared = pa.repeat(pa.scalar(0, pa.int32()), len(rows))
    columns = {"pane": pane, "spec": shared, "not_before": pa.nulls(len(rows), pa.int64())}
    there = [name for name in rows.column_names if name not in columns]
    return pa.table({**columns, **{name: rows.column(name) for name in there}})


def _finished(wanted: Wanted, part: Part, block: pa.Table) -> tuple[pa.Table, list[str]]:
    """A merged block as the rows of one window, which is the range."""
    job, span = part.of.job, part.end - part.start
    spec = WindowSpec(span, span, part.start % span, part.unit)
    asked = _asked(wanted, part, job, block)
    asked = replace(asked, windows=(spec,), shape=replace(asked.shape, pane=part.unit))
    due, kind = Due({asked.name: [[part.end // part.unit]]}), kind_of(asked.shape)
    done = finish(asked.shape, {asked.name: asked}, _as_block(part, block), due)
    rows = done.rows[asked.name]
    plain = kind.has_cells and asked.around is None and "fault" not in rows.column_names
    if plain:  # the question has its own order
        columns = {o.name: rows.column(f"x{i}") for i, o in enumerate(asked.outputs)}
        return pa.table(columns), []
    rows, faults = order(asked, [kind.later_rounds(asked, [rows])]), list[str]()
    if FAULT in rows.column_names:
        faults += _told_of(job, rows.column(FAULT).drop_null().to_pylist())
        rows = rows.filter(rows.column(FAULT).is_null()).drop_columns([FAULT])
    return rows.drop_columns([n for n in (WINDOW, WINDOW_END) if n in rows.column_names]), faults


def _told_of(job: Job, failed: Sequence[bytes]) -> Iterator[str]:
    """What there is to say of rows that could not be made."""
    faults: list[Fault] = [pickle.loads(each) for each in failed]
    lost = [fault for fault in faults if fault.errors]
    if lost:
        rows = "a row" if len(lost) == 1 else f"{len(lost):,} rows"
        yield f"the answer lacks {rows} of job '{job.title}': {lost[0]}"
    yield from (str(fault) for fault in faults if not fault.errors)


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


def _run(question: Question, tables: Mapping[str, pa.Table], jobs: Sequence[Job]) -> pa.Table:
    """The rows that the question comes to; a LanguageError where its words are at fault."""
    try:
        return run(f"FROM (\n{question.sql}\n)", tables, "this question")
    except EngineError as error:
        with database() as beside:
            for relation, rows in tables.items():
                beside.beside(relation, rows.slice(0, 0))
            beside.check(question, jobs)
        if isinstance(error, BadValueError):
            raise
        told = error.reason.partition("\n\nLINE")[0]
        raise InputError(f"this question cannot be answered: {told}") from error
