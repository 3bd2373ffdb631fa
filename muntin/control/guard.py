"""What stands before every request: who may ask, how much, and in which form."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from muntin.control.access import Access
from muntin.control.refusals import RefusedError

BODY = 1 << 20  # bytes of a request
_SECONDS = 10.0  # in which a body comes
_LOOKS = {"GET", "HEAD"}
_CHANGES = {"POST", "PUT", "DELETE"}  # others are no methods of anything here


class Guard:
    """Passes requests on with their whole body; all that is refused is refused before it is read.

    Whatever goes wrong in an answer ends here: it is told, and the program goes on.
    """

    def __init__(self, app: ASGIApp, access: Access, is_full: Callable[[], bool]) -> None:
        self._app = app
        self._access = access
        self._is_full = is_full

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http", "the server offers nothing else"
        try:
            self._require(scope)
            body = await _body(scope, receive)
        except RefusedError as refused:
            await refused.answer(scope, receive, send)
            return
        try:
            await self._app(scope, _once(body, receive), send)
        except Exception:  # the client was told
            logging.getLogger("muntin").exception("the control service failed to answer")

    def _require(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        if self._is_full():
            raise RefusedError(503, "busy", "too many clients are connected; try again later")
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        why = self._access.forged(headers.get("host", ""), origin, site)
        if why is not None:
            message = f"the request was refused: {why}; give the program a --control-token"
            raise RefusedError(403, "forged", message)
        if not self._access.admits(headers.get("authorization", "")):
            given = "the token is another one" if "authorization" in headers else "a token is asked"
            message = (
                f"{given}: --control-token FILE gives the one that the program was started with"
            )
            message += ", over HTTP `Authorization: Bearer TOKEN`"
            raise RefusedError(401, "token", message)
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if scope["method"] in _CHANGES and kind != "application/json":
            message = f"expected Content-Type: application/json, not '{kind[:100]}'"
            raise RefusedError(415, "form", message)


async def _body(scope: Scope, receive: Receive) -> bytes:
    """The body, if it is no longer than may be and comes in time."""
    told = Headers(scope=scope).get("content-length", "0")
    if not told.isdigit() or int(told) > BODY:
        raise _too_long()
    if scope["method"] in _LOOKS:
        return b""
    body = bytearray()
    try:
        async with asyncio.timeout(_SECONDS):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise RefusedError(400, "form", "the client has gone")
                body += message.get("body", b"")
                if len(body) > BODY:
                    raise _too_long()
                if not message.get("more_body", False):
                    return bytes(body)
    except TimeoutError:
        late = f"the body has not come within {_SECONDS:g} seconds"
        raise RefusedError(408, "form", late) from None


def _too_long() -> RefusedError:
    return RefusedError(413, "form", f"the body is longer than {BODY >> 20} MB, which is the most")


def _once(body: bytes, receive: Receive) -> Receive:
    """Gives the body, and then what the client does: it can only go."""
    given = False

    async def receives() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receives
