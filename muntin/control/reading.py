"""What clients read: the status of the program, and results of its jobs, at once or as they come.

Nothing here waits for the program, and it waits for nobody here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from typing import Any, TypeVar

from anyio import CapacityLimiter, to_thread
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from muntin.ask.answering import Asking
from muntin.ask.parcels import ARROW, as_json, packed
from muntin.control.feed import ROWS, Feed
from muntin.control.ordering import body_of
from muntin.control.refusals import RefusedError
from muntin.control.told import FIRST, Position, Told

FOLLOWERS = 100  # at the most
ANSWER = 1 << 28  # bytes of an answer about the past
_READERS = 2  # who are answered at a time, beside the program
_HEARTBEAT = 15.0  # seconds of silence
T = TypeVar("T")


class Bell:
    """Wakes those who follow a job. It is rung by the runner's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._rings: dict[str, asyncio.Event] = {}
        self.is_over = False

    def of(self, job: str) -> asyncio.Event:
        """What is set when there is more of a job than there was before this call, or never."""
        return self._rings.setdefault(job, asyncio.Event())

    def ring(self, jobs: Iterable[str]) -> None:
        """Tells that there is more; the runner goes on even if nobody listens any more."""
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._wake, tuple(jobs))

    def end(self) -> None:
        """Nothing comes any more."""
        self._loop.call_soon_threadsafe(self._end)

    def _wake(self, jobs: Iterable[str]) -> None:
        for job in jobs:
            if (ring := self._rings.pop(job, None)) is not None:
                ring.set()

    def _end(self) -> None:
        self.is_over = True
        self._wake(tuple(self._rings))


class Reading:
    """The routes to read by."""

    def __init__(
        self, feed: Feed, bell: Bell, name_of: Callable[[str], str], asking: Asking
    ) -> None:
        """`name_of` gives a job's name as it is written, or refuses one that there is not."""
        self._asking = asking
        self._feed = feed
        self._bell = bell
        self._name_of = name_of
        self._threads = CapacityLimiter(_READERS)
        self._followers = 0

    @property
    def routes(self) -> list[Route]:
        return [
            Route("/jobs/{job}/results", self._results),
            Route("/jobs/{job}/events", self._events),
            Route("/ask", self._ask, methods=["POST"]),
        ]

    async def _apart(self, do: Callable[..., T], *args: Any) -> T:
        """Does something that may take a while, in a thread; not many at a time."""
        return await to_thread.run_sync(do, *args, limiter=self._threads)

    async def _results(self, request: Request) -> Response:
        which = request.query_params.get("window", "latest")
        if which not in ("latest", "all"):
            raise RefusedError(400, "input", f"window is 'latest' or 'all', not '{which[:100]}'")
        text = await self._apart(self._told, request.path_params["job"], which == "latest")
        return Response(text, media_type="application/json")

    def _told(self, name: str, latest: bool) -> str:
        job = self._name_of(name)
        if not latest and self._feed.rows(job) > ROWS:
            raise _too_many(job, "window=latest gives less, and ")
        results: list[str] = []
        rows = 0
        for one in self._feed.latest(job) if latest else self._feed.every(job):
            rows += one.rows
            if rows > ROWS:
                raise _too_many(job)
            results.append(one.text)
        return '{"results": [' + ",\n".join(results) + "]}\n"

    async def _ask(self, request: Request) -> Response:
        """A question about the past; rows that were read for one stay in memory for the next."""
        body = await body_of(request)
        text = body.get("text")
        if not isinstance(text, str) or not text.strip():
            message = "expected a question: SELECT … FROM a job or stream with RETAIN"
            raise RefusedError(400, "input", f'{message}; over HTTP as {{"text": "SELECT …"}}')
        if body.get("explain"):
            return JSONResponse({"explain": await self._apart(self._asking.explain, text)})
        answer = await self._apart(self._asking.ask, text)
        if answer.rows.nbytes > ANSWER:
            message = f"the answer takes {answer.rows.nbytes >> 20:,} MB, and {ANSWER >> 20:,} are"
            less = "WHERE, coarser groups or LIMIT ask for less, and --master has Spark answer"
            raise RefusedError(413, "size", f"{message} the most that is sent; {less}")
        if request.headers.get("accept") == ARROW:
            return Response(await self._apart(packed, answer), media_type=ARROW)
        if answer.rows.num_rows > ROWS:
            message = f"the answer has {answer.rows.num_rows:,} rows, and {ROWS:,} are the most"
            less = "LIMIT asks for fewer, and `muntin ask` gets all"
            raise RefusedError(413, "size", f"{message} that is sent at once; {less}")
        told = await self._apart(as_json, answer)
        return Response(told, media_type="application/json")

    async def _events(self, request: Request) -> Response:
        job = await self._apart(self._name_of, request.path_params["job"])
        begin = request.query_params.get("from", "now")
        if begin not in ("now", "start"):
            raise RefusedError(400, "input", f"from is 'now' or 'start', not '{begin[:100]}'")
        last = request.headers.get("last-event-id")
        if last is not None:
            position = Position.of(last)
        else:
            position = FIRST if begin == "start" else await self._apart(self._feed.last, job)
        if self._followers >= FOLLOWERS:
            message = f"{FOLLOWERS} clients follow results, which is the most; try again later"
            raise RefusedError(503, "busy", message)
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        follow = self._follow(job, position)
        return StreamingResponse(follow, media_type="text/event-stream", headers=headers)

    async def _follow(self, job: str, position: Position) -> AsyncIterator[str]:
        self._followers += 1
        try:
            yield f": results of {job} follow\n\n"
            while True:
                ring, is_over = self._bell.of(job), self._bell.is_over
                some = await self._apart(self._feed.after, job, position)
                for one in some:
                    yield _event(one)
                    position = one.position
                if not some and is_over:
                    yield 'event: end\ndata: {"message": "the program has stopped"}\n\n'
                    return
                if not some and not await _rung(ring):
                    yield ": nothing new\n\n"
        finally:
            self._followers -= 1


def _too_many(job: str, less: str = "") -> RefusedError:
    message = f"the results of job '{job}' have more than {ROWS:,} rows, which is the most that"
    read = f"{less}`muntin results {job}` or its Delta table has all"
    return RefusedError(413, "size", f"{message} is sent at once; {read}")


def _event(one: Told) -> str:
    return f"id: {one.position}\nevent: result\ndata: {one.text}\n\n"


async def _rung(ring: asyncio.Event) -> bool:
    """Whether there is more; False after some silence."""
    try:
        async with asyncio.timeout(_HEARTBEAT):
            await ring.wait()
    except TimeoutError:
        return False
    return True
