"""Why a request is refused: a status of HTTP, and what the command line would print."""

from __future__ import annotations

from typing import Any

from starlette.responses import JSONResponse

from muntin.errors import (
    ConflictError,
    LanguageError,
    MuntinError,
    OrderError,
    SparkError,
    StateError,
    WireError,
    as_text,
)


class RefusedError(MuntinError):
    """A request that is refused before it comes to the program."""

    def __init__(self, status: int, kind: str, message: str, **more: Any) -> None:
        self.status, self.kind, self.more = status, kind, more
        super().__init__(message)

    @property
    def answer(self) -> JSONResponse:
        """The last answer of its connection if what was sent was not read."""
        headers = {"connection": "close"} if self.status in (408, 413, 503) else {}
        headers |= {"www-authenticate": "Bearer"} if self.status == 401 else {}
        headers |= {"retry-after": "5"} if self.status == 503 else {}
        error = {"kind": self.kind, "message": as_text(str(self)), **self.more}
        return JSONResponse({"error": error}, self.status, headers)


def refusal_of(error: MuntinError) -> RefusedError:
    """The answer to a request that the program has refused."""
    if isinstance(error, RefusedError):
        return error
    if isinstance(error, LanguageError):
        place = {"line": error.line, "column": error.column}
        place |= {"start": error.start, "end": error.end}
        return RefusedError(400, "language", str(error), reason=error.message, **place)
    if isinstance(error, ConflictError):
        known = {"job": error.job, "version": error.version, "expected": error.expected}
        return RefusedError(409, "conflict", str(error), **known)
    statuses = {OrderError: (503, "order"), StateError: (409, "state"), WireError: (502, "wire")}
    statuses[SparkError] = 500, "spark"
    found = (told for kind, told in statuses.items() if isinstance(error, kind))
    return RefusedError(*next(found, (400, "input")), str(error))
