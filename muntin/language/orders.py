"""Orders to a running program: what a text of statements asks of it, checked before it is done.

An order is a value. A text gives all of its orders or none: what cannot be is refused here, with
the place in the text, as far as that can be known without looking at what runs.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

from sqlglot import exp

from muntin.errors import LanguageError
from muntin.kernel.kinds import kind_of
from muntin.language import dialect
from muntin.language.check import Checker, ColumnsOf, SettingsOf, spelled
from muntin.language.cycles import Ahead, Expected, looked, unwindowed
from muntin.language.messages import nearest
from muntin.language.parameters import require_constant
from muntin.language.python import Python
from muntin.language.script import Script
from muntin.model.jobs import Job, Program
from muntin.units import describe_window

Moment = Literal["window", "pane"]  # the next one, from which on a job is another


class _OfParts:
    """An order to a job, which is several here where its windows are of several shapes."""

    job: Job
    others: tuple[Job, ...]

    @property
    def jobs(self) -> tuple[Job, ...]:
        return (self.job, *self.others)


@dataclass(frozen=True)
class Create(_OfParts):
    job: Job
    others: tuple[Job, ...] = ()


@dataclass(frozen=True)
class Replace(_OfParts):
    """Another version of a job, for windows that start, or that end, from a boundary on."""

    job: Job
    at: Moment
    others: tuple[Job, ...] = ()


@dataclass(frozen=True)
class Set(_OfParts):
    """The same version with another value of a parameter."""

    job: Job
    parameter: str
    at: Moment
    others: tuple[Job, ...] = ()


@dataclass(frozen=True)
class Drop(_OfParts):
    job: Job
    others: tuple[Job, ...] = ()


@dataclass(frozen=True)
class Pause(_OfParts):
    job: Job
    others: tuple[Job, ...] = ()


@dataclass(frozen=True)
class Resume(_OfParts):
    job: Job
    others: tuple[Job, ...] = ()


@dataclass(frozen=True)
class Reset(_OfParts):
    job: Job
    others: tuple[Job, ...] = ()


Order = Create | Replace | Set | Drop | Pause | Resume | Reset  # to a job


@dataclass(frozen=True)
class Ordered:
    """What a text asks for, one after another, and the program there is then."""

    orders: tuple[Order, ...]
    program: Program
    paused: frozenset[str]


def orders_of(
    text: str,
    program: Program,
    paused: Collection[str],
    columns_of: ColumnsOf,
    settings_of: SettingsOf,
    python: Python,
) -> Ordered:
    """What a text asks of a program, of which some jobs are paused."""
    columns_of, settings_of = cache(columns_of), cache(settings_of)

    def look(ahead: Ahead) -> tuple[tuple[Order, ...], _Taker]:
        script = Script(text)
        if not script.statements:
            asked = "CREATE, DROP, PAUSE, RESUME or RESET JOB, or SET"
            raise LanguageError(f"nothing is asked here; expected {asked}", text, 0)
        taker = _Taker(script, program, paused, Checker(
            script, columns_of, settings_of, dict(program.streams), python, ahead
        ))  # fmt: skip
        taken = tuple(taker.take(each) for each in script.statements)
        _check_kept(script, taker.checker)
        return tuple(order for order in taken if order is not None), taker

    orders, taker = looked(look, lambda found: (found[1].script, found[1].checker.jobs))
    for _, message in unwindowed(taker.checker.program):
        raise LanguageError(message, text, 0)
    return Ordered(orders, taker.checker.program, frozenset(taker.paused))


def _check_kept(script: Script, checker: Checker) -> None:
    """Refuses a stream that is to be kept, and that nothing begins to read."""
    read = {job.stream for job in checker.jobs.values()}
    for node in script.statements:
        name = spelled(node.name, checker.streams) if node.args.get("retain") else None
        if isinstance(node, dialect.CreateStream) and name is not None and name not in read:
            message = (
                f"no job reads stream '{name}', and a program that runs begins to read a stream "
                "with its first job: create one with it, or put the stream into the program's file"
            )
            raise script.error(message, node.this)


class _Taker:
    def __init__(
        self, script: Script, program: Program, paused: Collection[str], checker: Checker
    ) -> None:
        self.script = script
        self.paused = {*paused}
        self.checker = checker
        checker.jobs.update(program.jobs)
        checker.tables.update(program.tables)
        checker.aggregates.update(program.aggregates)

    def take(self, node: exp.Expr) -> Order | None:
        """The order that a statement is; streams, tables and aggregates are for others to use."""
        if isinstance(node, dialect.CreateJob):
            return self._create(node)
        if isinstance(node, dialect.DropJob):
            return self._drop(node)
        if isinstance(node, dialect.SetParameter):
            return self._set(node)
        if isinstance(node, dialect.JobOrder):
            return self._order(node)
        self.checker.take(node)
        return None

    def _create(self, node: exp.Expr) -> Order:
        known, at = spelled(node.name, self.checker.jobs), node.args.get("at")
        if at is not None and not node.args.get("replaces"):
            message = "AT NEXT says when a job changes; expected CREATE OR REPLACE JOB for that"
            raise self.script.error(message, at)
        if known is not None and not node.args.get("replaces"):
            version = self.checker.jobs[known].edition.number
            message = f"there is already a job named '{known}' (version {version})"
            raise self.script.error(f"{message}; CREATE OR REPLACE JOB changes it", node.this)
        before = () if known is None else self._parts(known)
        self.checker.take(node)
        made = self._parts(node.name)
        if not before or known is None:
            return Create(*_first(made))
        old, job = before[0], made[0]
        if job.stream != old.stream:
            message = f"job '{known}' reads stream '{old.stream}', and a job stays with its"
            raise self.script.error(
                f"{message} stream; DROP JOB {known}, then create it", node.this
            )
        edition = replace(job.edition, number=old.edition.number + 1)
        jobs = tuple(replace(_named(each, known), edition=edition) for each in made)
        self._exchange(made, jobs)
        if known in self.paused:
            message = f"job '{known}' is paused; RESUME JOB {known} first, or drop it"
            raise self.script.error(message, node.this)
        self._keep_readers(old, jobs[0], node)
        moment: Moment = "pane" if at is not None and at.name == "pane" else "window"
        if moment == "pane" and (why := _unlike(before, jobs)) is not None:
            message = f"windows cannot change at the next pane: {why}"
            raise self.script.error(f"{message}; AT NEXT WINDOW can be done", at)
        return Replace(jobs[0], moment, jobs[1:])

    def _exchange(self, before: Sequence[Job], jobs: Sequence[Job]) -> None:
        for job in before:
            self.checker.jobs.pop(job.name)
        self.checker.jobs.update({job.name: job for job in jobs})

    def _parts(self, name: str) -> tuple[Job, ...]:
        """What a job is here: one, or one for each shape that its windows have."""
        return tuple(job for job in self.checker.jobs.values() if job.title == name)

    def _drop(self, node: exp.Expr) -> Order | None:
        known = spelled(node.name, self.checker.jobs)
        jobs = () if known is None else self._parts(known)
        self.checker.take(node)
        if not jobs:
            return None
        self.paused -= {job.name for job in jobs}
        return Drop(*_first(jobs))

    def _set(self, node: exp.Expr) -> Order:
        before = self._parts(self._known(node))
        job = before[0]
        values, name = dict(job.edition.values), str(node.args["parameter"].name).lower()
        if name not in values:
            none = f"it has none; CREATE OR REPLACE JOB {job.name} ({name} DEFAULT …) AS … gives it"
            message = f"job '{job.name}' has no parameter '{name}'; {nearest(name, values, none)}"
            raise self.script.error(message, node.args["parameter"])
        value = node.args["value"]
        start, end = value.meta["place"]
        words = self.script.text[start:end]
        require_constant(words, self.script.text, start, end)
        if job.name in self.paused:
            message = f"job '{job.name}' is paused; RESUME JOB {job.name} first"
            raise self.script.error(message, node.this)
        try:
            made = self._made_anew(job, values | {name: words})
        except LanguageError as error:
            message = f"{words} cannot stand for ${name} in job '{job.name}': {error.message}"
            raise LanguageError(message, self.script.text, start, end) from error
        self._exchange(before, made)
        at: Moment = "window" if _unlike(before, made) is not None else "pane"
        return Set(made[0], name, at, made[1:])

    def _made_anew(self, job: Job, values: dict[str, str]) -> tuple[Job, ...]:
        """A job from its text, with these values of its parameters."""
        checker = self.checker
        again = Checker(
            Script(job.edition.text, values),
            checker.columns_of,
            checker.settings_of,
            checker.streams,
            checker.python,
        )
        again.tables, again.aggregates = checker.tables, checker.aggregates
        again.jobs = {n: each for n, each in checker.jobs.items() if each.title != job.title}
        others = {*again.jobs}
        again.ahead = Ahead({job.title.lower(): Expected.of(job)})
        again.take(again.script.statements[0])
        edition = replace(job.edition, values=tuple(values.items()))
        made = (each for name, each in again.jobs.items() if name not in others)
        return tuple(replace(_named(each, job.name), edition=edition) for each in made)

    def _order(self, node: exp.Expr) -> Order:
        name, does = self._known(node), str(node.args["does"])
        if (does == "resume") != (name in self.paused):
            known = "not paused" if does == "resume" else "paused already"
            known = f"paused; RESUME JOB {name} begins anew" if does == "reset" else known
            raise self.script.error(f"job '{name}' is {known}", node.this)
        parts = self._parts(name)
        if does == "reset":
            why = next((why for job in parts if (why := _not_emptied(job)) is not None), None)
            if why is not None:
                raise self.script.error(f"job '{name}' cannot be emptied: {why}", node.this)
            return Reset(*_first(parts))
        if does == "pause":
            if (reader := self._reader(name)) is not None:
                message = f"job '{reader}' reads its results; PAUSE JOB {reader} first"
                raise self.script.error(message, node.this)
            self.paused |= {job.name for job in parts}
            return Pause(*_first(parts))
        self.paused -= {job.name for job in parts}
        return Resume(*_first(parts))

    def _reader(self, name: str) -> str | None:
        """A job that reads the results of another, and is not paused."""
        streams = self.checker.streams
        jobs = (job for job in self.checker.jobs.values() if job.name not in self.paused)
        return next((job.name for job in jobs if streams[job.stream].job == name), None)

    def _keep_readers(self, before: Job, job: Job, node: exp.Expr) -> None:
        """Refuses another version without columns that some job reads."""
        jobs = self.checker.jobs.values()
        looks = (j.name for j in jobs if job.title in j.latest and j.name not in self.paused)
        others = (name for name in looks if name != job.name)
        reader = self._reader(job.name) or next(others, None)
        now = {(o.name, o.type) for o in job.outputs}
        lost = [o.name for o in before.outputs if (o.name, o.type) not in now]
        if reader is not None and lost:
            message = f"job '{reader}' reads column '{lost[0]}' of its results"
            raise self.script.error(f"{message}; keep the column and its type", node.this)

    def _known(self, node: exp.Expr) -> str:
        known = spelled(node.name, self.checker.jobs)
        if known is None:
            titles = {job.title: None for job in self.checker.jobs.values()}
            there = nearest(node.name, titles, "there is none")
            raise self.script.error(f"unknown job '{node.name}'; {there}", node.this)
        return known


def _first(jobs: Sequence[Job]) -> tuple[Job, tuple[Job, ...]]:
    return jobs[0], tuple(jobs[1:])


def _named(job: Job, title: str) -> Job:
    """The job, or its part, by a name as it was first written."""
    if job.part_of is None:
        return replace(job, name=title)
    return replace(job, name=title + job.name.removeprefix(job.part_of), part_of=title)


def _unlike(before: Sequence[Job], jobs: Sequence[Job]) -> str | None:
    """The same of all parts of a job."""
    if [job.name for job in before] != [job.name for job in jobs]:
        return "its windows differ"
    pairs = zip(before, jobs, strict=True)
    return next((why for old, new in pairs if (why := unlike(old, new)) is not None), None)


def unlike(before: Job, job: Job) -> str | None:
    """Why windows of one version cannot be made of panes of the other; None if they can.

    Filters may differ, and all that is done with the rows of a window.
    """
    old, new = before.shape, job.shape
    if not (kind_of(old).has_panes and kind_of(new).has_panes and kind_of(new).has_windows):
        return "it has no windows that are made of panes"
    if (old.code, old.states) != (new.code, new.states) or new.code is not None:
        return "it is in Python, whose panes are its own"
    if old.axis != new.axis:
        return "its windows are measured on something else"
    if [spec.key for spec in before.windows] != [spec.key for spec in job.windows]:
        windows = ", ".join(describe_window(old.axis, spec) for spec in before.windows)
        return f"its windows differ; so far they are {windows}"
    if (old.keys, old.sets, old.copies) != (new.keys, new.sets, new.copies):
        return "it groups by other keys"
    if (old.parts, old.joins, old.lists) != (new.parts, new.joins, new.lists):
        return "it has other aggregates"
    if old.lookups != new.lookups:
        return "it looks up something else"
    kept = (old.revise_us, old.sample, old.apart, old.begin, old.until, old.spans)
    if kept != (new.revise_us, new.sample, new.apart, new.begin, new.until, new.spans):
        return "of its panes, more or others have to be kept by its bounds"
    return None


def _not_emptied(job: Job) -> str | None:
    kind = kind_of(job.shape)
    if not kind.has_panes or not kind.has_windows:
        return "it has no windows that are made of panes; replace it by itself to begin anew"
    return None
