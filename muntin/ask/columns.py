"""What the panes of a job hold, by the names and words that a question may use for it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from sqlglot import exp

from muntin.errors import LanguageError
from muntin.kernel.around import looks_back
from muntin.kernel.kinds import kind_of
from muntin.kernel.statements import count_cell
from muntin.language.script import Script, tokens
from muntin.model.jobs import Finish, Job, Output

RECORDS = "__records"
_KEYS = re.compile(r"\bp0\.k(\d+)\b")
_CELLS = re.compile(r"\bp\d+\.(?!k\d)\w+")
# Which aggregate of merged values is the merged value: the sum of sums is one.
_AGAIN = {"count": "sum", "sum": "sum", "min": "min", "max": "max", "avg": "avg",
          "count_star": "sum", "count_if": "sum", "countif": "sum", "mean": "avg",
          "bool_and": "bool_and", "bool_or": "bool_or"}  # fmt: skip


@dataclass(frozen=True)
class Column:
    """A column of a job's results: what it is called, and how it is made of keys and aggregates."""

    name: str
    output: Output
    words: str  # as the job's text has it

    @property
    def is_key(self) -> bool:
        """Whether it is made of keys alone."""
        return not _CELLS.search(self.output.sql) and bool(_KEYS.search(self.output.sql))

    @property
    def has_keys(self) -> bool:
        return bool(_KEYS.search(self.output.sql))

    @property
    def again(self) -> str | None:
        """The aggregate that merges it, for example `sum` where it is a count."""
        called = re.match(r"(\w+)\s*\(", self.words)
        whole = called and _is_one_call(self.words)
        return _AGAIN.get(called[1].lower()) if called and whole else None


def _is_one_call(words: str) -> bool:
    """Whether the words are one call, and nothing around it."""
    depth = 0
    for at, letter in enumerate(words):
        depth += (letter == "(") - (letter == ")")
        if letter == ")" and not depth:
            return at == len(words) - 1 and "distinct" not in words.lower()
    return False


class Columns:
    """The columns of one job."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.every = tuple(_columns(job))

    def named(self, name: str) -> Column | None:
        return next((c for c in self.every if c.name.lower() == name.lower()), None)

    def made_as(self, words: str) -> Column | None:
        """The column that is made by an expression of the job's own."""
        wanted = tokens(words)
        return next((c for c in self.every if c.words and tokens(c.words) == wanted), None)

    @cached_property
    def records(self) -> tuple[Finish, Column]:
        """How many records there are."""
        cell = count_cell(self.job.shape.parts[0]).name
        finish = Finish(RECORDS, 0, cell)
        return finish, Column(RECORDS, Output(RECORDS, f"p0.{RECORDS}", "BIGINT"), "count(*)")

    @property
    def told(self) -> str:
        """What there is, in words."""
        keys = [c.name for c in self.every if c.is_key]
        others = [f"{c.name} ({c.words})" if c.words and c.words != c.name else c.name
                  for c in self.every if not c.is_key]  # fmt: skip
        held = ", ".join([*others, "count(*)"])
        return f"keys: {', '.join(keys) or 'none'}; aggregates: {held}"


def _columns(job: Job) -> Iterator[Column]:
    if job.around is None:
        words = _words(job)
        for number, output in enumerate(job.outputs):
            yield Column(output.name, output, words[number] if words else "")
        return
    said = dict(job.around.words)
    for output in job.around.columns:
        if output.name in said:
            yield Column(said[output.name], output, said[output.name])


def _words(job: Job) -> Sequence[str] | None:
    """What each output is made of, as the job's text has it; None where that cannot be told."""
    code, part = job.shape.code, job.shape.parts[0]
    if code is not None:  # a key, and what the cells of its values merge to
        rules = [cell.merge for cell in part.cells if cell is not count_cell(part)]
        return ["key", f"{rules[0]}(value)"] if code.style == "cells" and rules else None
    words = _listed(job.edition.text, job.edition.values)
    return words if len(words) == len(job.outputs) else None


@lru_cache(maxsize=256)
def _listed(text: str, values: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    """The items that a job selects, in its own words."""
    try:
        script = Script(text, dict(values))
        query = script.statements[0].args["query"]
    except (LanguageError, IndexError, KeyError):
        return ()
    items = [item.this if isinstance(item, exp.Alias) else item for item in query.expressions]
    return tuple("" if isinstance(item, exp.Star) else script.words(item) for item in items)


def rows_of(job: Job) -> Job:
    """The job whose result is every row that a range has, without order and limit."""
    return job if job.around is not None else Job(
        job.name, job.shape, job.windows, job.finishes, job.outputs, edition=job.edition
    )  # fmt: skip


def refuse_groups(job: Job) -> str | None:
    """Why the panes of a job cannot be merged for groups of a question."""
    if kind_of(job.shape).has_cells:
        return None
    return (
        "only its Python knows what its values come to, for its own keys: ask for its rows, and "
        f"group them in a query around: FROM (SELECT * FROM {job.title} …)"
    )


def refuse_previous(job: Job) -> str | None:
    """Why the rows of a job cannot be asked for as a whole."""
    if looks_back(job):
        return "it looks back at PREVIOUS results, which a range has none of; ask for aggregates"
    return None
