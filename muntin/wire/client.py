"""A pipeline's side of Arrow Flight: one connection an agent, kept by the process that uses it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from threading import Lock
from typing import TypeVar

import pyarrow as pa
from pyarrow import flight

from muntin.errors import InputError, WireError
from muntin.model import Column, Stream
from muntin.wire.addresses import addresses
from muntin.wire.messages import Exchange, Fetch, News, Parcel, decode, encode, unpack

SECONDS = 5.0  # after which an agent that says nothing is away
_TRIES = 3  # to get a delivery that arrives damaged
_Answer = TypeVar("_Answer")

_clients: dict[str, flight.FlightClient] = {}
_lock = Lock()


def exchange(address: str, told: Exchange) -> News:
    """One look at an agent. Raises a WireError if it is away, or refuses."""
    return _asked(address, "exchange", told, News)


def columns(address: str, stream: Stream) -> tuple[Column, ...]:
    """The columns that an agent finds in its logs of a stream."""
    return _asked(address, "columns", stream, tuple[Column, ...])


def settings(address: str, stream: str) -> dict[str, str]:
    """The clauses that an agent's settings have for a stream."""
    return _asked(address, "settings", stream, dict[str, str])


def ask_any(agents: Iterable[str], ask: Callable[[str], _Answer], what: str) -> _Answer:
    """The answer of the first agent that has one."""
    refusals = []
    for address in addresses(agents):
        try:
            return ask(address)
        except WireError as error:
            refusals.append(str(error))
    raise InputError(f"no agent tells {what}: {refusals[0] if refusals else 'there is none'}")


def fetch(address: str, wanted: Fetch) -> Iterator[Parcel]:
    """Deliveries of an agent; one that arrives damaged is fetched again."""
    after = wanted.after
    for attempt in range(1, _TRIES + 1):
        try:
            for data in _parcels(
                address, Fetch(wanted.pipeline, wanted.stream, after, wanted.upto)
            ):
                parcel = unpack(data)
                yield parcel
                after = parcel.sequence
            return
        except WireError:
            if attempt == _TRIES:
                raise


def _asked(address: str, action: str, told: object, kind: type[_Answer]) -> _Answer:
    try:
        asked = flight.Action(action, encode(told))
        (answer,) = _client(address).do_action(asked, _options())
        return decode(answer.body.to_pybytes(), kind)
    except (pa.ArrowException, ValueError) as error:
        raise _refused(address, error) from error


def _parcels(address: str, wanted: Fetch) -> Iterator[bytes]:
    try:
        reader = _client(address).do_get(flight.Ticket(encode(wanted)), _options())
        for chunk in reader:
            yield from chunk.data.column(0).to_pylist()
    except (pa.ArrowException, ValueError) as error:
        raise _refused(address, error) from error


def _client(address: str) -> flight.FlightClient:
    with _lock:
        if address not in _clients:
            _clients[address] = flight.connect(f"grpc+tcp://{address}")
        return _clients[address]


def _options() -> flight.FlightCallOptions:
    return flight.FlightCallOptions(timeout=SECONDS)


def _refused(address: str, error: Exception) -> WireError:
    """In one sentence; the connection is made anew next time."""
    with _lock:
        client = _clients.pop(address, None)
    if client is not None:
        client.close()
    if isinstance(error, flight.FlightUnavailableError):
        return WireError(f"the agent at {address} cannot be reached")
    told = str(error).split(". Detail:")[0].split(". gRPC client debug")[0]
    return WireError(f"the agent at {address}: {told}")
