"""A client's connection: it asks in time, reads in time, and is one of not too many."""

from __future__ import annotations

import asyncio
import resource
import socket

from uvicorn.protocols.http.h11_impl import H11Protocol

MOST = 128  # connections that are answered; others are told that there are too many
_PATIENCE = 10.0  # seconds in which a client says what it wants
_UNREAD_MS = 30_000  # in which a client reads some of what it was sent


def most_open() -> int:
    """How many connections there are at the most: files are needed for logs first."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 8 * MOST if files == resource.RLIM_INFINITY else max(2 * MOST, min(8 * MOST, files // 4))


class Connection(H11Protocol):
    """One that sends nothing, or half of a request, is closed."""

    _patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > most_open():
            transport.abort()
            return
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            own = transport.get_extra_info("socket")
            own.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNREAD_MS)
        self._patience = self.loop.call_later(_PATIENCE, transport.abort)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        asked = self.cycle is not None and not self.cycle.response_complete
        if asked and self._patience is not None:
            self._patience.cancel()
            self._patience = None
        elif not asked and self._patience is None:  # the next request on this connection has begun
            self._patience = self.loop.call_later(_PATIENCE, self.transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._patience is not None:
            self._patience.cancel()
        super().connection_lost(exc)
