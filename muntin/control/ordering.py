"""What clients order: each request is a statement, which the program takes between two turns.

Versions tell writers apart: one who names the version that he has seen is refused if it is another
one by now, and told which.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from anyio import CapacityLimiter, to_thread
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from muntin.control.openapi import DOCUMENT
from muntin.control.refusals import RefusedError
from muntin.control.statements import as_written, created, named, replacing, setting
from muntin.errors import LanguageError, OrderError
from muntin.kernel.kinds import kind_of
from muntin.language.messages import nearest
from muntin.model.jobs import Job
from muntin.run.door import Door, Reply
from muntin.run.succession import Effect
from muntin.store import history
from muntin.store.checkpoint import saved_in
from muntin.store.status import rows_of
from muntin.store.storage import Place, place_of
from muntin.units import moment

_Body = dict[str, Any]
T = TypeVar("T")
_WRITERS = 16  # whose orders are under way at a time; others wait
_NAME = re.compile(r"[\w-]+")  # of a job: it is that of a folder, too


class Ordering:
    """The routes to order by, and to see what there is."""

    def __init__(self, door: Door, state: Place) -> None:
        self._door = door
        self._state = state
        self._writers = CapacityLimiter(_WRITERS)

    @property
    def routes(self) -> list[Route]:
        return [
            Route("/status", self._status),
            Route("/sql", self._sql, methods=["POST"]),
            Route("/jobs", self._list),
            Route("/jobs", self._create, methods=["POST"]),
            Route("/jobs/{job}", self._show),
            Route("/jobs/{job}", self._replace, methods=["PUT"]),
            Route("/jobs/{job}", self._drop, methods=["DELETE"]),
            Route("/jobs/{job}/parameters/{parameter}", self._set, methods=["PUT"]),
            *(
                Route(f"/jobs/{{job}}/{does}", self._ordering(does), methods=["POST"])
                for does in ("pause", "resume", "reset")
            ),
            Route("/openapi.json", self._describe),
        ]

    # What there is.

    def name_of(self, name: str) -> str:
        """A job's name as it is written: one that runs, or one that has left results."""
        known: tuple[str, ...] = ()
        with suppress(OrderError):  # not begun, or ended: there may be results all the same
            known = self._door.program[0].titles
        for title in known:
            if title.lower() == name.lower():
                return title
        if _NAME.fullmatch(name) and history.has_results(self._state, name):
            return name
        raise _unknown(name, known)

    def _jobs(self) -> dict[str, _Known]:
        """What runs, by the user's names."""
        program, paused = self._door.program
        parts: dict[str, list[Job]] = {}
        for job in program.jobs.values():
            parts.setdefault(job.title, []).append(job)
        return {
            title: _Known(title, tuple(jobs), any(job.name in paused for job in jobs))
            for title, jobs in parts.items()
        }

    def _job(self, name: str) -> _Known:
        """A job that runs."""
        known = self._jobs()
        for title, job in known.items():
            if title.lower() == name.lower():
                return job
        raise _unknown(name, known)

    async def _status(self, _: Request) -> Response:
        return await self._apart(self._tell_status)

    def _tell_status(self) -> Response:
        jobs, sources = rows_of(saved_in(self._state))
        told = {
            "process": os.getpid(),
            "state": place_of(self._state),
            "jobs": jobs,
            "sources": sources,
        }
        return Response(json.dumps(told, default=_iso), media_type="application/json")

    async def _list(self, _: Request) -> Response:
        jobs = [job.told for job in self._jobs().values()]
        streams = {
            name: [column.name for column in stream.columns]
            for name, stream in self._door.program[0].streams.items()
        }
        return JSONResponse({"jobs": jobs, "streams": streams})

    async def _show(self, request: Request) -> Response:
        told = self._job(request.path_params["job"]).told
        return JSONResponse(told, headers={"etag": f'"{told["version"]}"'})

    async def _describe(self, _: Request) -> Response:
        return JSONResponse(DOCUMENT)

    # What is to be.

    async def _sql(self, request: Request) -> Response:
        body = await body_of(request)
        expected = body.get("expected", {})
        if not isinstance(expected, dict) or not all(map(_is_version, expected.values())):
            message = 'expected is an object of versions, as in {"hot_products": 3}'
            raise RefusedError(400, "input", message)
        return await self._do(lambda: self._door.submit(_text(body), expected))

    async def _create(self, request: Request) -> Response:
        body = await body_of(request)

        def create() -> Reply:
            if created(_text(body)).args.get("replaces"):
                message = "CREATE OR REPLACE may change a job that there is; PUT /jobs/NAME does"
                raise LanguageError(message, _text(body), 0)
            return self._door.submit(_text(body))

        return await self._do(create, 201)

    async def _replace(self, request: Request) -> Response:
        body, name = await body_of(request), str(request.path_params["job"])
        expected = _expected(request, body, name)

        def replace() -> Reply:
            title = self._job(name).title
            text = replacing(_text(body), body.get("at"))
            if created(text).name.lower() != title.lower():
                message = f"the text creates job '{created(text).name}', and not '{title}'"
                raise RefusedError(400, "input", message)
            try:
                return self._door.submit(text, expected)
            except LanguageError as error:
                raise as_written(error, _text(body)) from None

        return await self._do(replace)

    async def _drop(self, request: Request) -> Response:
        return await self._say(request, lambda job, _: f"DROP JOB {named(job)}")

    def _ordering(self, does: str) -> Callable[[Request], Awaitable[Response]]:
        async def order(request: Request) -> Response:
            return await self._say(request, lambda job, _: f"{does.upper()} JOB {named(job)}")

        return order

    async def _set(self, request: Request) -> Response:
        name = str(request.path_params["parameter"])
        return await self._say(request, lambda job, body: setting(job, name, body))

    async def _say(self, request: Request, words: Callable[[str, _Body], str]) -> Response:
        """Has a statement done that names a job."""
        body, name = await body_of(request), str(request.path_params["job"])
        expected = _expected(request, body, name)

        def say() -> Reply:
            return self._door.submit(words(self._job(name).title, body), expected)

        return await self._do(say)

    async def _do(self, do: Callable[[], Reply], status: int = 200) -> Response:
        reply = await self._apart(do)
        effects = [_effect(effect) for effect in reply.effects]
        told = {"effects": effects, "notes": list(reply.notes)}
        tags = {"etag": f'"{reply.effects[0].version}"'} if len(reply.effects) == 1 else {}
        return JSONResponse(told, status, tags)

    async def _apart(self, do: Callable[[], T]) -> T:
        """Does in a thread what may wait for the program."""
        return await to_thread.run_sync(do, limiter=self._writers)


@dataclass(frozen=True)
class _Known:
    """A job as the user knows it: windows of several shapes are several jobs in the program."""

    title: str
    parts: tuple[Job, ...]
    paused: bool

    @property
    def told(self) -> dict[str, Any]:
        first = self.parts[0]
        windows = [name for job in self.parts for name in kind_of(job.shape).names(job)]
        return {
            "job": self.title,
            "stream": first.stream,
            "version": first.edition.number,
            "paused": self.paused,
            "windows": windows,
            "columns": [output.name for output in first.outputs],
            "parameters": dict(first.edition.values),
            "text": first.edition.text,
        }


def _unknown(name: str, known: Iterable[str]) -> RefusedError:
    there = nearest(name, known, "there is none")
    return RefusedError(404, "unknown", f"unknown job '{name[:100]}'; {there}")


def _effect(effect: Effect) -> dict[str, Any]:
    """From where on it holds: of windows that start there or later, or of those that end later."""
    begin: str | int | None = effect.position
    if effect.position is not None and effect.axis == "time":
        begin = _iso(moment(effect.position))
    return {
        "does": effect.does,
        "job": effect.job,
        "version": effect.version,
        "from": begin,
        "by": effect.by,
        "axis": effect.axis,
    }


async def body_of(request: Request) -> _Body:
    """The body, which is a JSON object; none is an empty one."""
    body = await request.body()
    try:
        told = json.loads(body) if body else {}
    except (ValueError, RecursionError) as error:
        raise RefusedError(400, "form", f"the body is no JSON: {error}") from error
    if not isinstance(told, dict):
        raise RefusedError(400, "form", 'the body is no JSON object, such as {"text": "…"}')
    return told


def _text(body: _Body) -> str:
    text = body.get("text")
    if not isinstance(text, str):
        raise RefusedError(400, "form", 'expected a statement, as in {"text": "PAUSE JOB x"}')
    return text


def _expected(request: Request, body: _Body, job: str) -> dict[str, int]:
    """The version that a writer has seen, in the body or as If-Match."""
    tag = request.headers.get("if-match", "*").strip().strip('"')
    version = body.get("expected", tag if tag != "*" else None)
    if version is None:
        return {}
    if isinstance(version, str) and version.isascii() and version.isdigit():
        version = int(version)
    if not _is_version(version):
        raise RefusedError(400, "input", "expected is the number of a version, and so is If-Match")
    return {job: version}


def _is_version(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _iso(time: datetime) -> str:
    return time.isoformat().replace("+00:00", "Z")
