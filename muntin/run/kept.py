"""What is remembered of jobs that were changed while they ran, and what a restart makes of it.

A program's file says what runs, and so do orders to the running program. After a restart an order
holds as long as the file says of its job what it said when the order was given. A file that says
something else by then was edited since, and holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from hashlib import sha256
from typing import TypeVar

import msgspec

from muntin.errors import StateError
from muntin.language.script import tokens
from muntin.model.jobs import Edition, Job, Program
from muntin.model.shapes import Code
from muntin.model.streams import Stream
from muntin.run.catalog import Catalog
from muntin.wire.coding import from_json

_Value = TypeVar("_Value")
Texts = Mapping[str, str]  # jobs by name, as JSON


@dataclass(frozen=True)
class Remembered:
    """Jobs of one stream: all by version, and those whole that are not as in the program's file."""

    editions: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    """By job, its version and the digest of what it is."""
    values: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By job, what its parameters are."""
    jobs: Texts = field(default_factory=dict)
    paused: Texts = field(default_factory=dict)
    gone: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    """Jobs that were dropped: the version, and the digest of what the file said."""
    stream: str = ""  # as JSON, if no file has it


@dataclass(frozen=True)
class TakenUp:
    """The catalog that a stream goes on with, and what there is to say of it."""

    catalog: Catalog
    notes: tuple[str, ...] = ()


def kept(catalog: Catalog) -> Remembered:
    """What to remember of a catalog."""
    is_open = {name: job for name, job in catalog.jobs.items() if job.term.is_open}
    changed = {n: job for n, job in catalog.jobs.items() if _is_changed(job)}
    return Remembered(
        {name: (job.edition.number, digest(job)) for name, job in is_open.items()},
        {name: dict(job.edition.values) for name, job in is_open.items() if job.edition.values},
        {name: encoded(job) for name, job in changed.items()},
        {name: encoded(job) for name, job in catalog.paused.items()},
        {name: (edition.number, edition.base or "") for name, edition in catalog.gone.items()},
        encoded(catalog.stream) if catalog.begun else "",
    )


def taken_up(stream: Stream, jobs: Iterable[Job], known: Remembered) -> TakenUp:
    """The jobs of a file, as far as orders have not made something else of them."""
    notes: list[str] = []
    running: dict[str, Job] = {}
    paused = {name: _job(text) for name, text in known.paused.items()}
    gone = {name: Edition(number, base=base) for name, (number, base) in known.gone.items()}
    changed = {name: _job(text) for name, text in known.jobs.items()}
    written = {job.name: job for job in jobs}
    for name, job in written.items():
        ordered, title = changed.get(name) or paused.get(name), job.title
        edition = gone.get(name, None if ordered is None else ordered.edition)
        if edition is None:
            number, told = known.editions.get(name, (0, ""))
            running[name] = _numbered(job, number if told == digest(job) else number + 1)
        elif edition.base != digest(job):
            running[name] = _numbered(job, edition.number + 1)
            gone.pop(name, None)
            paused.pop(name, None)
            notes.append(
                f"job '{title}' was changed by orders while it ran, and the program's file was "
                f"edited since: it goes on as in the file, as version {edition.number + 1}"
            )
        elif name in gone:
            if title in gone:  # not only one of its shapes
                notes.append(f"job '{title}' is in the program's file, but was dropped by DROP JOB")
        elif name in paused:
            notes.append(f"job '{title}' is paused; RESUME JOB {title} has it go on")
        elif ordered is not None:
            running[name] = ordered
            notes.append(
                f"job '{title}' goes on as it was changed while it ran (version {edition.number}), "
                "and not as in the program's file; edit it there to have that hold"
            )
    for name, job in changed.items():
        if job.term.is_open and name not in written and _holds(job, written):
            running[name] = job
            if not job.edition.base:
                notes.append(f"job '{job.title}' was created while the program ran, and goes on")
    here = {*running, *paused}
    ending = {n: job for n, job in changed.items() if not job.term.is_open and job.title in here}
    left = {n: job for n, job in paused.items() if n in written or _holds(job, written)}
    catalog = Catalog.of(stream, [*ending.values(), *running.values()])
    begun = bool(known.stream)
    notes = list(dict.fromkeys(notes))  # of a job with several shapes, each says the same
    return TakenUp(replace(catalog, paused=left, gone=gone, begun=begun), tuple(notes))


def _holds(job: Job, written: Mapping[str, Job]) -> bool:
    """Whether a job goes on that no file has: it was created, or is a shape that another got."""
    whole = written.get(job.title)
    return job.edition.base == ("" if whole is None else digest(whole))


def paused_edition(text: str) -> Edition:
    """The version of a job that is paused."""
    return _job(text).edition


def begun_stream(known: Remembered) -> Stream | None:
    """The stream, if it was begun while the program ran."""
    return decoded(known.stream, Stream) if known.stream else None


def program_of(program: Program, catalogs: Iterable[Catalog]) -> tuple[Program, frozenset[str]]:
    """The program as it runs, for orders to come, and the names of the jobs that are paused."""
    streams, tables = dict(program.streams), dict(program.tables)
    aggregates, jobs, paused = dict(program.aggregates), dict[str, Job](), dict[str, Job]()
    for catalog in catalogs:
        streams.setdefault(catalog.stream.name, catalog.stream)
        jobs |= {n: job for n, job in catalog.jobs.items() if job.term.is_open}
        paused |= catalog.paused
    for job in (*jobs.values(), *paused.values()):
        tables = {**{table.name: table for table in job.tables}, **tables}
        aggregates = {**{code.job: code for code in _codes(job)}, **aggregates}
    every = {name: replace(job, shape=job.shape.pure) for name, job in (jobs | paused).items()}
    return Program(streams, every, tables, aggregates), frozenset(paused)


def digest(job: Job) -> str:
    """Tells whether a job is written as it was: spaces do not matter, values of parameters do."""
    code = job.shape.code
    return _digest(job.edition.text, job.edition.values, "" if code is None else code.version)


@lru_cache(maxsize=8192)  # every commit asks it of all jobs
def _digest(text: str, values: tuple[tuple[str, str], ...], code: str) -> str:
    return sha256(repr(([*tokens(text)], values, code)).encode()).hexdigest()[:16]


def _is_changed(job: Job) -> bool:
    return job.edition.base is not None or not job.term.is_open


def _numbered(job: Job, number: int) -> Job:
    return replace(job, edition=replace(job.edition, number=max(number, 1)))


def _codes(job: Job) -> list[Code]:
    return [cell.code for cell in job.shape.states if cell.code is not None]


def encoded(value: Job | Stream) -> str:
    """The value as JSON, which a state can keep."""
    return msgspec.json.encode(value).decode()


def _job(text: str) -> Job:
    return decoded(text, Job)


def decoded(text: str, kind: type[_Value]) -> _Value:
    try:
        return from_json(text.encode(), kind)
    except (msgspec.MsgspecError, ValueError) as error:
        message = f"a saved {kind.__name__.lower()} cannot be read: {error}"
        raise StateError(f"{message}; use another --state, which reads the files again") from error
