"""A conversation with an agent or relay: messages and answers in turn, on one call of Flight.

A call for every message takes most of what sending it takes. A line is good for a second, and then
another one is opened: so one that hangs is given up soon, and a server that ends waits for nobody.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

import pyarrow as pa

from muntin.errors import WireError
from muntin.wire.messages import Heard, decode

LIFE = 1.0  # seconds in which messages are sent on a line
PATIENCE = 1.0  # seconds that the last of them has for its answer
MOST = 32 << 10  # bytes of a message, which the other side can take before it reads them


def seconds() -> float:
    """After which the call of a line ends, whatever becomes of it."""
    return LIFE + PATIENCE


class Line:
    """One conversation, used by one thread at a time. What fails is a WireError; then it is over.

    A message that has failed may have been taken all the same.
    """

    def __init__(self, writer: Any, reader: Any) -> None:
        """Takes both ends of a call that ends by itself after so many `seconds`."""
        self._writer, self._reader = writer, reader
        self._until = time.monotonic() + LIFE

    @property
    def is_good(self) -> bool:
        """Whether there is time for one more message."""
        return time.monotonic() < self._until

    def say(self, data: bytes) -> None:
        """Sends a message, and waits for nobody."""
        try:
            self._writer.write_metadata(data)
        except (pa.ArrowException, ValueError) as error:
            raise WireError(f"the line is over: {error}") from error

    def answer(self) -> Heard:
        """What is said to the last message."""
        try:
            data = self._reader.read_chunk().app_metadata
        except (pa.ArrowException, ValueError, StopIteration) as error:
            raise WireError(f"the line is over: {error}") from error
        return decode(data.to_pybytes() if data is not None else b"", Heard)

    def close(self) -> None:
        """Ends the conversation; the other side is not waited for."""
        self._reader.cancel()
        with suppress(pa.ArrowException):  # that it was cancelled; Arrow prints what nobody hears
            self._writer.close()
