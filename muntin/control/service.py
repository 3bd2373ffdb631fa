"""The service of a running program: HTTP with JSON, in a thread of its own.

It begins before the program does, and ends when that has ended: those who follow results are told,
and given what is final by then.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from muntin.ask.answering import Asking
from muntin.ask.keeping import Memory
from muntin.control.access import Access
from muntin.control.address import Address, announced
from muntin.control.connection import MOST, Connection
from muntin.control.feed import Feed
from muntin.control.guard import Guard
from muntin.control.ordering import Ordering
from muntin.control.reading import Bell, Reading
from muntin.control.refusals import RefusedError, refusal_of
from muntin.errors import InputError, MuntinError
from muntin.run.door import Door
from muntin.store.storage import Place

_BACKLOG = 128  # connections that wait to be taken
_GRACE = 2  # seconds for what is under way at the end


@contextmanager
def serving(access: Access, door: Door, feed: Feed, state: Place) -> Iterator[Address]:
    """Has a service for as long as the program runs; its address is in the state folder."""
    listening = _listening(access)
    host, port = listening.getsockname()[:2]
    token = None if access.file is None else str(access.file)
    address = Address(host, port, os.getpid(), token)
    service = _Service(access, door, feed, state)
    # No daemon, and so are none of its workers: they end their connections of DuckDB before Python.
    thread = threading.Thread(target=service.run, args=[listening], name="muntin-control")
    thread.start()
    try:
        with announced(state, address):
            yield address
    finally:
        service.stop()
        thread.join()
        listening.close()


def _listening(access: Access) -> socket.socket:
    family = socket.AF_INET6 if ":" in access.host else socket.AF_INET
    # With the protocol named, asyncio sends answers at once and not after those of the client.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((access.host, access.port))
        listening.listen(_BACKLOG)  # from here on clients may come, and wait
    except OSError as error:
        listening.close()
        message = f"the control service cannot listen at {access.host}:{access.port}"
        raise InputError(
            f"{message}: {error.strerror}; give another --control HOST:PORT, or off"
        ) from error
    return listening


class _Service:
    def __init__(self, access: Access, door: Door, feed: Feed, state: Place) -> None:
        self._access = access
        self._door = door
        self._feed = feed
        self._state = state
        self._bell: Bell | None = None
        self._server: uvicorn.Server | None = None
        self._begun = threading.Event()

    def run(self, listening: socket.socket) -> None:
        """Serves until it is stopped."""
        try:
            asyncio.run(self._serve(listening))
        finally:
            self._begun.set()  # nobody waits for what has failed

    def stop(self) -> None:
        """Ends it, once all who follow have what there is."""
        self._begun.wait()
        if self._bell is not None and self._server is not None:
            self._bell.end()
            self._server.should_exit = True

    async def _serve(self, listening: socket.socket) -> None:
        bell = Bell(asyncio.get_running_loop())
        self._feed.on_change(bell.ring)
        config = uvicorn.Config(
            self._app(bell),
            http=Connection,
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="critical",
            access_log=False,
            server_header=False,
            headers=[("muntin-process", str(os.getpid()))],
            backlog=_BACKLOG,
            timeout_graceful_shutdown=_GRACE,
        )
        server = uvicorn.Server(config)
        self._bell, self._server = bell, server
        self._begun.set()
        await server.serve(sockets=[listening])

    def _app(self, bell: Bell) -> Guard:
        ordering = Ordering(self._door, self._state)
        reading = Reading(self._feed, bell, ordering.name_of, Asking(self._state, Memory()))
        handlers = {MuntinError: _refused, HTTPException: _unknown, Exception: _failed}
        app = Starlette(
            routes=[*ordering.routes, *reading.routes],
            exception_handlers=handlers,  # type: ignore[arg-type]
        )
        return Guard(app, self._access, self._is_full)

    def _is_full(self) -> bool:
        assert self._server is not None
        return len(self._server.server_state.connections) > MOST


def _refused(_: Request, error: MuntinError) -> Response:
    return refusal_of(error).answer


def _unknown(request: Request, error: HTTPException) -> Response:
    path = request.url.path[:200]
    message = f"there is no {request.method} {path} here; GET /openapi.json lists what there is"
    return RefusedError(error.status_code, "path", message).answer


def _failed(_: Request, error: Exception) -> Response:
    """Raised again after this, and logged where all requests come through."""
    message = f"a fault of Muntin's: {type(error).__name__}: {error}; the program goes on"
    return RefusedError(500, "fault", message).answer
