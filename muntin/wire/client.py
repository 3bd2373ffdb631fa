"""A pipeline's side of Arrow Flight: one connection an agent, kept by the process that uses it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from threading import Lock
from typing import TypeVar

import pyarrow as pa
from pyarrow import flight

from muntin.errors import InputError, WireError
from muntin.model import Column, Stream
from muntin.wire.addresses import addresses
from muntin.wire.keys import Keys
from muntin.wire.messages import Exchange, Fetch, News, Parcel, decode, encode, unpack

SECONDS = 5.0  # after which an agent that says nothing is away
_TRIES = 3  # to get a delivery that arrives damaged
_Answer = TypeVar("_Answer")

_clients: dict[tuple[str, Keys | None], flight.FlightClient] = {}
_lock = Lock()


@dataclass(frozen=True)
class Client:
    """Talks to agents with some keys; without any, to those on this machine."""

    keys: Keys | None = None

    def exchange(self, address: str, told: Exchange) -> News:
        """One look at an agent. Raises a WireError if it is away, or refuses."""
        return self._asked(address, "exchange", told, News)

    def columns(self, address: str, stream: Stream) -> tuple[Column, ...]:
        """The columns that an agent finds in its logs of a stream."""
        return self._asked(address, "columns", stream, tuple[Column, ...])

    def settings(self, address: str, stream: str) -> dict[str, str]:
        """The clauses that an agent's settings have for a stream."""
        return self._asked(address, "settings", stream, dict[str, str])

    def fetch(self, address: str, wanted: Fetch) -> Iterator[Parcel]:
        """Deliveries of an agent; one that arrives damaged is fetched again."""
        after = wanted.after
        for attempt in range(1, _TRIES + 1):
            try:
                for data in self._parcels(address, replace(wanted, after=after)):
                    parcel = unpack(data)
                    yield parcel
                    after = parcel.sequence
                return
            except WireError:
                if attempt == _TRIES:
                    raise

    def _asked(self, address: str, action: str, told: object, kind: type[_Answer]) -> _Answer:
        try:
            asked = flight.Action(action, encode(told))
            (answer,) = self._connected(address).do_action(asked, self._options())
            return decode(answer.body.to_pybytes(), kind)
        except (pa.ArrowException, ValueError) as error:
            raise self._refused(address, error) from error

    def _parcels(self, address: str, wanted: Fetch) -> Iterator[bytes]:
        try:
            ticket = flight.Ticket(encode(wanted))
            for chunk in self._connected(address).do_get(ticket, self._options()):
                yield from chunk.data.column(0).to_pylist()
        except (pa.ArrowException, ValueError) as error:
            raise self._refused(address, error) from error

    def _connected(self, address: str) -> flight.FlightClient:
        with _lock:
            known = address, self.keys
            if known not in _clients:
                _clients[known] = self._connect(address)
            return _clients[known]

    def _connect(self, address: str) -> flight.FlightClient:
        keys = self.keys
        if keys is None:
            return flight.connect(f"grpc+tcp://{address}")
        own = {"cert_chain": keys.certificate, "private_key": keys.key} if keys.key else {}
        return flight.connect(f"grpc+tls://{address}", tls_root_certs=keys.ca, **own)

    def _options(self) -> flight.FlightCallOptions:
        headers = [(b"authorization", f"Bearer {self.keys.token}".encode())] if self.keys else []
        return flight.FlightCallOptions(timeout=SECONDS, headers=headers)

    def _refused(self, address: str, error: Exception) -> WireError:
        """In one sentence. A connection to nobody is made anew next time.

        It is not closed here: another thread may be using it.
        """
        if isinstance(error, flight.FlightUnavailableError | flight.FlightTimedOutError):
            with _lock:
                _clients.pop((address, self.keys), None)
            hint = "" if self.keys else "; one that listens to others needs --keys"
            return WireError(f"the agent at {address} cannot be reached{hint}")
        told = str(error).split(". Detail:")[0].split(". gRPC client debug")[0]
        return WireError(f"the agent at {address}: {told}")


def ask_any(agents: Iterable[str], ask: Callable[[str], _Answer], what: str) -> _Answer:
    """The answer of the first agent that has one."""
    refusals = []
    for address in addresses(agents):
        try:
            return ask(address)
        except WireError as error:
            refusals.append(str(error))
    raise InputError(f"no agent tells {what}: {refusals[0] if refusals else 'there is none'}")
