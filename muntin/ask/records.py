"""Records of streams that a question is about, as tables that any SQL can be asked of.

Kept records lie in panes as keys: each column as it is compared, and how many records are alike.
Here they become what was parsed, each as often as it was read. A question may be about more of
them than there is memory for, so they are put into a database piece by piece, whose tables and
sorts go to disk where they are large; only the answer has to fit.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from muntin.ask.columns import Columns
from muntin.ask.question import Question
from muntin.errors import InputError, LanguageError
from muntin.kernel.engine import NO_USER, literal, quote
from muntin.kernel.statements import count_cell
from muntin.language.messages import located, reason
from muntin.model.jobs import Job, Output
from muntin.model.records import POSITION

MEMORY = 1 << 30  # bytes that records and what is made of them may take
MOST = 1 << 30  # bytes of an answer
_ROWS = 1 << 16  # of an answer that are taken at once
_KEY = re.compile(r"\bp0\.k(\d+)\b")
_MISSING = re.compile(r"there is no column '|has no column '")
_ADVICE = "ask about a shorter range or fewer records (WHERE), or aggregate them"


@dataclass(frozen=True)
class Kept:
    """The columns of a stream that a question needs, and the keys that they are made of.

    `outputs` are SQL over panes.
    """

    job: Job
    outputs: tuple[Output, ...]

    @classmethod
    def of(cls, job: Job, names: Collection[str]) -> Kept:
        outputs = tuple(output for output in job.outputs if output.name in names)
        return cls(job, outputs or job.outputs[-1:])  # rows are counted even if nothing is named

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of panes that the columns are made of."""
        numbers = {int(n) for output in self.outputs for n in _KEY.findall(output.sql)}
        return tuple(f"p0.k{number}" for number in sorted(numbers))

    @property
    def moved(self) -> Kept:
        """The same of rows that have these keys and no others."""
        place = {key: f"p0.k{number}" for number, key in enumerate(self.keys)}
        outputs = (
            replace(output, sql=_KEY.sub(lambda found: place[found[0]], output.sql))
            for output in self.outputs
        )
        return replace(self, outputs=tuple(outputs))

    def inside(self, start: int, end: int) -> tuple[str, str]:
        """That records are between two positions, as SQL over panes."""
        keys = [key.sql for key in self.job.shape.keys]
        position = f"p0.k{keys.index(quote(POSITION))}"
        return f"{position} >= {start}", f"{position} < {end}"


class Records:
    """A database of the records of a question, and of rows of jobs beside them."""

    def __init__(self, con: duckdb.DuckDBPyConnection, memory: int) -> None:
        self._con = con
        self._memory = memory

    def create(self, relation: str, kept: Kept) -> None:
        """Has a table for the records of a stream, without any so far."""
        columns = ", ".join(f"{quote(o.name)} {o.type}" for o in kept.outputs)
        self._con.execute(f"CREATE TABLE {relation} ({columns})")

    def add(
        self, relation: str, kept: Kept, rows: pa.Table, where: Sequence[str] = ("true",)
    ) -> None:
        """Adds the records of rows of panes for which conditions hold."""
        count = count_cell(kept.job.shape.parts[0]).name
        columns = ", ".join(output.sql for output in kept.outputs)
        several = pc.max(rows.column(count)).as_py() or 0
        # One of each, and then the others of those that there are several of.
        froms = ["rows AS p0"]
        if several > 1:
            froms.append(f"(FROM rows WHERE {count} > 1) AS p0, unnest(range(1, p0.{count}))")
        self._con.register("rows", rows)
        try:
            for each in froms:
                conditions = " AND ".join(f"({condition})" for condition in where) or "true"
                self._do(f"INSERT INTO {relation} SELECT {columns} FROM {each} WHERE {conditions}")
        finally:
            self._con.unregister("rows")

    def beside(self, relation: str, rows: pa.Table) -> None:
        """Has rows of a job as a relation."""
        self._con.register(relation, rows)

    def check(self, question: Question, jobs: Iterable[Job]) -> None:
        """Raises a LanguageError if the question cannot be asked of these relations."""
        if re.search(r"\bPIVOT\b", question.sql, re.IGNORECASE):
            return  # its columns are known with the records only
        before = "EXPLAIN FROM (\n"
        statement = f"{before}{question.sql}\n)"
        try:
            self._con.execute(statement)
        except duckdb.Error as error:
            plain, (start, end) = located(error, statement)
            start, end = (min(max(0, at - len(before)), len(question.sql)) for at in (start, end))
            message, place = reason(plain), question.place(start, end)
            if _MISSING.search(message):
                message = message.partition("; ")[0]
                for each in {job.title: job for job in jobs}.values():
                    names = ", ".join(column.name for column in Columns(each).every)
                    has = f"stream '{each.title}' keeps" if each.is_keeper else (
                        f"a range of job '{each.title}' has"
                    )  # fmt: skip
                    message += f"; {has} {names}"
            raise LanguageError(message, question.text, *place) from error

    def answer(self, question: Question) -> pa.Table:
        """The rows that the question comes to."""
        size, batches = 0, list[pa.RecordBatch]()
        reader: Any = self._do(f"FROM (\n{question.sql}\n)").to_arrow_reader(_ROWS)
        while True:
            try:
                batch = reader.read_next_batch()
            except StopIteration:
                return pa.Table.from_batches(batches, reader.schema)
            except (duckdb.Error, OSError, pa.ArrowException) as error:
                raise _refused(error, self._memory) from error
            size += batch.nbytes
            if size > MOST:
                message = f"this answer is larger than {MOST >> 20:,} MB; add LIMIT, or {_ADVICE}"
                raise InputError(message)
            batches.append(batch)

    def _do(self, sql: str) -> duckdb.DuckDBPyConnection:
        try:
            return self._con.execute(sql)
        except duckdb.InterruptException:
            raise KeyboardInterrupt from None
        except duckdb.Error as error:
            raise _refused(error, self._memory) from error


@contextmanager
def database(memory: int = MEMORY) -> Iterator[Records]:
    """An empty database, which is gone afterwards. It sees no files but those of its own."""
    with TemporaryDirectory(prefix="muntin-ask-") as folder:
        con = duckdb.connect(":memory:", config={"threads": 1})
        try:
            con.execute("SET TimeZone = 'UTC'")
            con.execute("SET enable_progress_bar = false")
            con.execute("SET python_enable_replacements = false")
            con.execute("SET errors_as_json = true")
            con.execute(f"CREATE TEMP MACRO {NO_USER}")
            con.execute("SET preserve_insertion_order = false")
            con.execute(f"SET temp_directory = {literal(folder)}")
            con.execute(f"SET memory_limit = '{memory >> 10}KiB'")
            con.execute("SET enable_external_access = false")
            con.execute("SET lock_configuration = true")
            yield Records(con, memory)
        finally:
            con.close()


def _refused(error: Exception, memory: int) -> InputError:
    text = str(error)
    if isinstance(error, duckdb.Error):
        error, _ = located(error, "")
    if isinstance(error, duckdb.OutOfMemoryException) or "Out of Memory Error" in text:
        return InputError(f"this question takes more than {memory >> 20:,} MB of memory; {_ADVICE}")
    told = reason(error) if isinstance(error, duckdb.Error) else text
    return InputError(f"this question cannot be answered: {told}")
