"""The other side of Arrow Flight: who answers pipelines, an agent or a relay, as a server."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from hmac import compare_digest
from typing import Any, Protocol, TypeVar

import pyarrow as pa
from pyarrow import flight

from muntin.errors import MuntinError
from muntin.model.records import Column
from muntin.model.streams import Stream
from muntin.wire.keys import Keys
from muntin.wire.messages import Exchange, Fetch, Heard, decode, encode

PARCELS = pa.schema([("parcel", pa.binary())])
_Message = TypeVar("_Message")
_MOST_TOLD = 16 << 20  # bytes of a message


class Answering(Protocol):
    """Who answers pipelines, from any thread. What is refused is a MuntinError."""

    def exchange(self, told: Exchange) -> Heard:
        """Takes what a pipeline says; tells how far deliveries go."""

    def columns(self, stream: Stream) -> tuple[Column, ...]:
        """What logs of a stream look like."""

    def clauses(self, stream: str) -> dict[str, str]:
        """What the settings of agents say of a stream, in the words of SQL."""

    def fetch(self, wanted: Fetch) -> Iterable[bytes]:
        """Deliveries by number, packed. Those that cannot be had now are left out."""


class Server(flight.FlightServerBase):  # type: ignore[misc]  # pyarrow has no types
    """Serves until it is shut down."""

    def __init__(
        self, host: Answering, address: str, keys: Keys | None = None, mutual: bool = False
    ) -> None:
        """With keys, all is encrypted and only who has the token is answered.

        If it is `mutual`, who asks has to show a certificate of the same authority, too.
        """
        if keys is None:
            super().__init__(f"grpc+tcp://{address}")
        else:
            super().__init__(
                f"grpc+tls://{address}",
                tls_certificates=[(keys.certificate, keys.key)],
                verify_client=mutual,
                root_certificates=keys.ca,
                middleware={"token": _Doorman(keys.token)},
            )
        self._host = host
        self._ending = False

    def do_action(self, context: object, action: flight.Action) -> Iterator[bytes]:
        kinds: dict[str, tuple[type, Callable[[Any], object]]] = {
            "exchange": (Exchange, self._host.exchange),
            "columns": (Stream, self._host.columns),
            "settings": (str, self._host.clauses),
        }
        if action.type not in kinds:
            raise flight.FlightServerError(f"there is no action '{action.type[:40]}'")
        kind, answer = kinds[action.type]
        told: object = _understood(action.body.to_pybytes(), kind)
        return iter([encode(_answered(lambda: answer(told)))])

    def do_exchange(self, context: object, descriptor: object, reader: Any, writer: Any) -> None:
        """Answers exchanges on a line, until who asks has ended it or this server is to end."""
        while not self._ending:
            try:
                data = reader.read_chunk().app_metadata
            except (StopIteration, pa.ArrowException):
                return
            told = _understood(data.to_pybytes() if data is not None else b"", Exchange)
            writer.write_metadata(encode(_answered(partial(self._host.exchange, told))))

    def shutdown(self) -> None:
        """Ends when all calls are answered and lines are over, which is soon."""
        self._ending = True
        super().shutdown()

    def do_get(self, context: object, ticket: flight.Ticket) -> flight.RecordBatchStream:
        wanted = _understood(ticket.ticket, Fetch)
        parcels = iter(_answered(lambda: self._host.fetch(wanted)))
        packed = iter(lambda: _answered(lambda: next(parcels, None)), None)
        batches = (pa.record_batch([pa.array([data], pa.binary())], PARCELS) for data in packed)
        return flight.GeneratorStream(PARCELS, batches)


class _Doorman(flight.ServerMiddlewareFactory):  # type: ignore[misc]  # pyarrow has no types
    """Lets in who has the token."""

    def __init__(self, token: str) -> None:
        self._wanted = f"Bearer {token}".encode()

    def start_call(self, info: object, headers: Mapping[str, Sequence[str]]) -> None:
        shown = [
            text
            for name, texts in headers.items()
            if name.lower() == "authorization"
            for text in texts
        ]
        if not any(compare_digest(text.encode(), self._wanted) for text in shown):
            raise flight.FlightUnauthenticatedError(
                "this agent answers pipelines with its token; see the file `token` in --keys"
            )


def _understood(data: bytes, kind: type[_Message]) -> _Message:
    if len(data) > _MOST_TOLD:
        raise flight.FlightServerError(f"a message of {len(data)} bytes is too long")
    return _answered(lambda: decode(data, kind))


def _answered(answer: Callable[[], _Message]) -> _Message:
    """The answer; what goes wrong is told in one sentence."""
    try:
        return answer()
    except MuntinError as error:
        raise flight.FlightServerError(str(error)) from None
    except TimeoutError:
        raise flight.FlightUnavailableError("the agent is busy; ask again") from None
