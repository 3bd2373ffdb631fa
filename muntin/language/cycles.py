"""Jobs that use one another: who names whose results, and where that comes back to a job.

A job may be named before it is defined, in LATEST alone: by itself, or by those whose results it
uses. What its columns are is then looked for as the types of PREVIOUS are: a text is checked with
nothing known of them, and again with what came out, until that stays.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from sqlglot import exp

from muntin.errors import LanguageError
from muntin.kernel.kinds import kind_of
from muntin.language import dialect
from muntin.language.derived import result_columns, with_results
from muntin.language.queries import usual_name
from muntin.language.scope import WINDOW_COLUMNS
from muntin.language.script import Script
from muntin.model.jobs import Job, Program
from muntin.model.records import Column
from muntin.model.streams import Stream

T = TypeVar("T")
UNKNOWN = '"NULL"'  # the type of a column of which nothing is known
_GUESSES = (UNKNOWN, "BIGINT", "VARCHAR", "DOUBLE")  # of types, for a first look
_LOOKS = 5


@dataclass(frozen=True)
class Expected:
    """What the results of a job that is not defined yet are taken to be."""

    columns: tuple[Column, ...]
    windows: tuple[str, ...] = ()  # none, as long as they are not known
    of_time: bool = True

    @classmethod
    def of(cls, job: Job) -> Expected:
        names = tuple(kind_of(job.shape).names(job))
        return cls(result_columns(job), names, job.shape.axis.is_time)


@dataclass
class Ahead:
    """Jobs that were named before they were defined, by their names in lower case."""

    known: Mapping[str, Expected] = field(default_factory=dict)
    named: dict[str, Expected] = field(default_factory=dict)
    looks: int = 0
    guess: int = 0

    def find(
        self, script: Script, name: str, place: exp.Expr, streams: Mapping[str, Stream]
    ) -> Expected | None:
        """What to take for the results of a job that the text defines further on, if it does."""
        lower = name.lower()
        if lower in self.known:
            self.named[lower] = self.known[lower]
            return self.known[lower]
        for statement in script.statements:
            if isinstance(statement, dialect.CreateJob) and statement.name.lower() == lower:
                guess = _GUESSES[self.guess]
                self.named[lower] = _first_look(script, statement, place, streams, guess)
                return self.named[lower]
        return None

    def otherwise(self) -> Ahead | None:
        """What to look with where the first look has failed; None if there is nothing."""
        if not self.named or self.looks or self.guess + 1 == len(_GUESSES):
            return None
        return Ahead(guess=self.guess + 1)

    def next(self, script: Script, jobs: Mapping[str, Job]) -> Ahead | None:
        """What to look with again; None if what was taken for results is what they are."""
        titles = {job.title.lower(): job for job in reversed(list(jobs.values()))}
        made = {name: Expected.of(titles[name]) for name in self.named if name in titles}
        unsettled = {n: each for n, each in made.items() if each != self.named[n]}
        if not unsettled and not any(_unknown(each) for each in made.values()):
            return None
        if self.looks >= _LOOKS or not unsettled:
            name, each = next(iter((unsettled or made).items()))
            raise _unsettled(script, name, self.named[name], each)
        return Ahead(made, looks=self.looks + 1)


def looked(look: Callable[[Ahead], T], told: Callable[[T], tuple[Script, Mapping[str, Job]]]) -> T:
    """What comes of looks at a text, until what jobs were taken to be is what they are.

    Of what a look gives it is `told` what it has made of the text.
    """
    ahead, first = Ahead(), None
    while True:
        try:
            found = look(ahead)
        except LanguageError as error:
            first, other = first or error, ahead.otherwise()
            if other is None:
                raise first from None
            ahead = other
            continue
        following = ahead.next(*told(found))
        if following is None:
            return found
        ahead = following


def _first_look(
    script: Script,
    statement: exp.Expr,
    place: exp.Expr,
    streams: Mapping[str, Stream],
    guess: str,
) -> Expected:
    """The names of a job's columns, with what can be said of their types at first sight."""
    read = {table.name.lower() for table in statement.find_all(exp.Table)}
    kinds = {
        column.name.lower(): column.type
        for stream in streams.values()
        if stream.name.lower() in read
        for column in stream.visible_columns()
    }
    first = statement.args["query"]
    while isinstance(first, exp.SetOperation | exp.Subquery):
        first = first.this
    if statement.args.get("code") is not None or not isinstance(first, exp.Select):
        message = f"job '{statement.name}' is in Python, and defined behind this one; put it before"
        raise script.error(message, place)
    columns = []
    for item in first.expressions:
        shown = item.unalias()
        if isinstance(shown, exp.Star) or isinstance(shown.this, exp.Star):
            message = f"LATEST({statement.name}) has the columns of this SELECT, so they need names"
            raise script.error(f"{message} instead of *", item, first)
        name = item.alias or usual_name(script, item)
        if name.lower() not in WINDOW_COLUMNS:
            kind = "BIGINT" if isinstance(shown, exp.Count | exp.Sum) else guess
            if isinstance(shown, exp.Column):
                kind = kinds.get(shown.name.lower(), guess)
            columns.append(Column(name, kind))
    return Expected(with_results(columns))


def _unknown(each: Expected) -> Column | None:
    return next((column for column in each.columns if UNKNOWN in column.type), None)


def _unsettled(script: Script, name: str, before: Expected, now: Expected) -> LanguageError:
    kinds = {column.name: column.type for column in before.columns}
    changed = (c for c in now.columns if kinds.get(c.name) != c.type)
    column = next(changed, None) or _unknown(now) or now.columns[0]
    statements = (s for s in script.statements if isinstance(s, dialect.CreateJob))
    place = next((s for s in statements if s.name.lower() == name), None)
    message = (
        f"the type of column '{column.name}' of job '{name}' depends on itself and does not settle;"
        f" say of which it is: CAST(… AS BIGINT) AS {column.name}"
    )
    return script.error(message, None if place is None else place.args["query"], place)


def used_by(job: Job, streams: Mapping[str, Stream]) -> dict[str, str]:
    """The jobs whose results a job uses, by title, and in which words."""
    used = {}
    stream = streams[job.stream]
    for each in stream.members or (stream,):
        if each.job is not None:
            used[each.job] = f"FROM JOB {each.job}"
    return used | {name: f"LATEST({name})" for name in job.latest}


def cycles(program: Program) -> list[tuple[str, ...]]:
    """The shortest way from each job back to itself, each cycle once, from its first job on."""
    uses: dict[str, dict[str, None]] = {}
    for job in program.jobs.values():
        uses.setdefault(job.title, {}).update(dict.fromkeys(used_by(job, program.streams)))
    found: dict[frozenset[str], tuple[str, ...]] = {}
    for title in uses:
        way = _way_back(title, uses)
        if way is not None:
            found.setdefault(frozenset(way), way)
    return list(found.values())


def _way_back(title: str, uses: Mapping[str, Mapping[str, None]]) -> tuple[str, ...] | None:
    ways: deque[tuple[str, ...]] = deque([(title,)])
    seen: set[str] = set()
    while ways:
        way = ways.popleft()
        for name in uses.get(way[-1], ()):
            if name == title:
                return way
            if name not in seen:
                seen.add(name)
                ways.append((*way, name))
    return None


def unwindowed(program: Program) -> Iterator[tuple[str, str]]:
    """The jobs without a window that are part of a cycle, each with what there is to say."""
    windowless = {job.title for job in program.jobs.values() if not kind_of(job.shape).has_windows}
    for way in cycles(program):
        for name in windowless.intersection(way):
            yield name, no_window(" → ".join([*way, way[0]]), name)


def no_window(way: str, name: str) -> str:
    """Why jobs that use one another need windows."""
    return (
        f"these jobs use one another's results: {way}; each step of that takes a finished result, "
        f"and those of job '{name}' are never finished, as it has no window: give it one, as in "
        "WINDOW 10 SECONDS"
    )
