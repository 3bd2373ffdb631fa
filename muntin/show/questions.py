"""Questions of the shell: SELECT over results that are stored, answered by DuckDB.

Each job is a table of its name, and `LATEST(job)` one with its newest result, which has the same
columns as in a job's query. What is wrong is told at its place in the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot.tokenizer_core import Token, TokenType

from muntin.errors import LanguageError
from muntin.fidelity.score import Reason
from muntin.kernel.engine import NO_USER
from muntin.language.derived import with_results
from muntin.language.dialect import Muntin
from muntin.language.messages import located, nearest, reason
from muntin.language.queries import RESERVED
from muntin.model.records import Column
from muntin.run.derived import fields_of
from muntin.store.results import Results
from muntin.units import window_meant

_UNTOLD = ("job", "c2_records", "records_bad", "records_late", "records_failed")
_MISSING = re.compile(r"Table with name (\S+) does not exist")
_NO_COLUMN = re.compile(r"there is no column '(.*?)'")


class Question:
    """One statement of a text, from `start` to `end`."""

    def __init__(self, text: str, start: int, end: int) -> None:
        self._text = text
        self._start, self._end = start, end

    def answer(self, results: Results) -> pa.Table:
        """The answer from results that are stored; a LanguageError where there is none."""
        known, columns = results.jobs(), list[str]()
        with duckdb.connect(":memory:", config={"python_enable_replacements": "false"}) as here:
            here.execute("SET TimeZone = 'UTC'")
            here.execute("SET errors_as_json = true")
            here.execute(f"CREATE TEMP MACRO {NO_USER}")
            statement = self._text[self._start : self._end]
            for number, (start, end, rows) in enumerate(self._newest(results, known)):
                # As long as what was written, so that places stay what they are.
                name = f"__l{number}".ljust(end - start)
                statement = statement[:start] + name + statement[end:]
                here.register(name.rstrip(), rows)
                columns += rows.column_names
            while True:
                try:
                    return here.execute(statement).to_arrow_table()
                except duckdb.Error as error:
                    job = self._meant(error, statement, known, columns)
                rows = results.read(job)
                rows = rows.drop_columns([n for n in _UNTOLD if n in rows.schema.names])
                here.register(job, rows)
                columns += rows.column_names
                known.remove(job)

    def _newest(self, results: Results, jobs: list[str]) -> Iterator[tuple[int, int, pa.Table]]:
        """Where the statement says LATEST(…), and the rows that this means."""
        tokens = Muntin().tokenize(self._text[self._start : self._end])
        for at, token in enumerate(tokens[:-1]):
            opened = tokens[at + 1].token_type is TokenType.L_PAREN
            if token.token_type is TokenType.VAR and token.text.upper() == "LATEST" and opened:
                rest = tokens[at + 2 :]
                ends = (n for n, t in enumerate(rest) if t.token_type is TokenType.R_PAREN)
                given = rest[: next(ends, len(rest))]
                last = rest[len(given)] if len(given) < len(rest) else tokens[-1]
                yield token.start, last.end + 1, self._latest(results, jobs, [token, *given])

    def _latest(self, results: Results, jobs: list[str], call: list[Token]) -> pa.Table:
        latest, *given = call
        comma = len(given) == 1 or (len(given) > 2 and given[1].token_type is TokenType.COMMA)
        if not given or not comma:
            message = "expected the name of a job, and which of its windows: LATEST(x, 1 HOUR)"
            raise self._error(message, latest.start, call[-1].end + 1)
        asked, words = given[0], given[2:]
        name = next((job for job in jobs if job.lower() == asked.text.lower()), None)
        if name is None:
            raise self._no_results(asked.text, asked.start, asked.end + 1, jobs)
        rows, windows = results.read(name, latest=True), results.windows(name)
        if not pa.types.is_timestamp(rows.schema.field("window_end").type):
            message = f"windows of job '{name}' are no spans of time, so no result is the newest"
            raise self._error(message, asked.start, asked.end + 1)
        window = " ".join(word.text.lower() for word in words)
        if words and words[0].token_type is TokenType.STRING:
            window = words[0].text
        meant = window_meant(window, windows)
        if words and meant is None:
            message = f"job '{name}' has no window '{window}'; {nearest(window, windows, '')}"
            raise self._error(message, words[0].start, words[-1].end + 1)
        if not words and len(windows) > 1:
            message = f"job '{name}' has several windows; say of which, as in "
            message += f"LATEST({name}, '{windows[0]}')"
            raise self._error(message, latest.start, asked.end + 1)
        wanted = meant or (windows[0] if windows else "")
        rows = _finished(rows, wanted)
        if not rows.num_rows:  # the newest ones may be open, and shown
            rows = _finished(results.read(name), wanted)
        rows = rows.filter(pc.equal(rows["window_end"], pc.max(rows["window_end"])))
        own = [Column(each, "") for each in rows.column_names if each.lower() not in RESERVED]
        return fields_of(rows, with_results(own))

    def _meant(
        self, error: duckdb.Error, statement: str, known: list[str], columns: list[str]
    ) -> str:
        """The job whose results a question needs, as it is no table yet; else raises the error.

        `columns` are those of tables that there are.
        """
        plain, place = located(error, statement)
        missing = _MISSING.match(str(plain).partition(": ")[2])
        if missing is None:
            message = reason(plain)
            if unknown := _NO_COLUMN.match(message):
                message = f"{unknown[0]}; {nearest(unknown[1], columns, 'nothing is read')}"
            if isinstance(error, duckdb.ParserException) and place[1] == len(statement.rstrip()):
                message = f"{message}, or something is missing behind it"
            raise self._error(message, *place) from error
        name = missing[1].strip('"!')
        found = next((job for job in known if job.lower() == name.lower()), None)
        if found is None:
            raise self._no_results(name, *place, known) from error
        return found

    def _no_results(self, name: str, start: int, end: int, known: list[str]) -> LanguageError:
        there = nearest(name, known, "there are none yet")
        return self._error(f"there are no results of a job '{name}'; {there}", start, end)

    def _error(self, message: str, start: int, end: int) -> LanguageError:
        return LanguageError(message, self._text, self._start + start, self._start + end)


def _finished(rows: pa.Table, window: str) -> pa.Table:
    """The rows of windows of a name that have left; what open ones have shown is no result yet."""
    rows = rows.filter(pc.equal(rows["window_name"], window))
    return rows.filter(pc.not_equal(pc.struct_field(rows["c2"], "reason"), Reason.OPEN.value))
