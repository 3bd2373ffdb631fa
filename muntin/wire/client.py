"""A pipeline's side of Arrow Flight: one connection an agent, kept by the process that uses it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from threading import Lock
from typing import TypeVar

import pyarrow as pa
from pyarrow import flight

from muntin.errors import InputError, WireError
from muntin.model.records import Column
from muntin.model.streams import Stream
from muntin.wire.addresses import addresses
from muntin.wire.keys import Keys
from muntin.wire.lines import Line
from muntin.wire.lines import seconds as seconds_of_line
from muntin.wire.messages import Exchange, Fetch, Heard, Parcel, Range, decode, encode, unpack

SECONDS = 5.0  # after which an agent that says nothing is away
_OF_RELAY = 0.7  # of the patience that it meets, so that its own answer is in time
_LEAST = 0.1  # seconds that anybody has for an answer
_TRIES = 3  # to get a delivery that arrives damaged
_Answer = TypeVar("_Answer")
_WITHOUT_KEYS = "; one that listens to others needs --keys"
_OF_KEYS = {
    "is not in peer certificate": ": its certificate is for other hosts; `muntin keys FOLDER "
    "NAME=HOST` makes one, where there is none of that name yet",
    "handshake failed": " with these --keys: it has none, or its certificate is of another ca.pem",
    "Socket closed": " with these --keys: with --mutual it wants to see pipeline.pem and "
    "pipeline.key, of its own ca.pem",
}

_clients: dict[tuple[str, Keys | None], flight.FlightClient] = {}
_lock = Lock()


@dataclass(frozen=True)
class Client:
    """Talks to agents with some keys; without any, to those on this machine."""

    keys: Keys | None = None

    def exchange(self, address: str, told: Exchange, spent: float = 0.0) -> Heard:
        """One look at an agent or relay. Raises a WireError if it is away, or refuses.

        So many seconds were `spent` on waiting for it before, and are not waited once more.
        """
        patience = max(_LEAST, SECONDS * _OF_RELAY ** len(told.relays) - spent)
        return self._asked(address, "exchange", told, Heard, patience)

    def line(self, address: str) -> Line:
        """A line for exchanges with an agent or relay, which may not be there."""
        try:
            options = self._options(seconds_of_line())
            descriptor = flight.FlightDescriptor.for_command(b"exchange")
            return Line(*self._connected(address).do_exchange(descriptor, options))
        except (pa.ArrowException, ValueError) as error:
            raise self._refused(address, error) from error

    def columns(self, address: str, stream: Stream) -> tuple[Column, ...]:
        """The columns that an agent finds in its logs of a stream."""
        return self._asked(address, "columns", stream, tuple[Column, ...])

    def settings(self, address: str, stream: str) -> dict[str, str]:
        """The clauses that an agent's settings have for a stream."""
        return self._asked(address, "settings", stream, dict[str, str])

    def fetch(self, address: str, wanted: Fetch) -> Iterator[Parcel]:
        """Deliveries; what arrives damaged is fetched again. Those of who is away are not there."""
        left = {each.agent: each for each in wanted.ranges}
        damage = WireError("")
        for _ in range(_TRIES):
            for data in self._parcels(address, replace(wanted, ranges=tuple(left.values()))):
                try:
                    parcel = unpack(data)
                except WireError as error:
                    damage = error
                    break
                yield parcel
                left = remaining(left, parcel)
            else:
                return
        raise damage

    def _asked(
        self,
        address: str,
        action: str,
        told: object,
        kind: type[_Answer],
        patience: float = SECONDS,
    ) -> _Answer:
        try:
            asked = flight.Action(action, encode(told))
            (answer,) = self._connected(address).do_action(asked, self._options(patience))
            return decode(answer.body.to_pybytes(), kind)
        except (pa.ArrowException, ValueError) as error:
            raise self._refused(address, error) from error

    def _parcels(self, address: str, wanted: Fetch) -> Iterator[bytes]:
        hops = 1 + max((len(each.via) for each in wanted.ranges), default=0)
        try:
            ticket, options = flight.Ticket(encode(wanted)), self._options(hops * SECONDS)
            for chunk in self._connected(address).do_get(ticket, options):
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

    def _options(self, patience: float) -> flight.FlightCallOptions:
        headers = [(b"authorization", f"Bearer {self.keys.token}".encode())] if self.keys else []
        return flight.FlightCallOptions(timeout=patience, headers=headers)

    def _refused(self, address: str, error: Exception) -> WireError:
        """In one sentence. A connection to nobody is made anew next time.

        It is not closed here: another thread may be using it.
        """
        if isinstance(error, flight.FlightUnavailableError | flight.FlightTimedOutError):
            with _lock:
                _clients.pop((address, self.keys), None)
            reason = _WITHOUT_KEYS if self.keys is None else _of_keys(str(error))
            return WireError(f"the agent at {address} cannot be reached{reason}")
        told = str(error).split(". Detail:")[0].split(". gRPC client debug")[0]
        return WireError(f"the agent at {address}: {told}")


def _of_keys(told: str) -> str:
    """Why a connection with keys was not made, as far as gRPC tells."""
    return next((reason for sign, reason in _OF_KEYS.items() if sign in told), "")


def remaining(left: Mapping[str, Range], parcel: Parcel) -> dict[str, Range]:
    """What is left of ranges, by agent, once a parcel has come."""
    moved = {
        name: replace(each, after=max(each.after, parcel.numbers.get(name, 0)))
        for name, each in left.items()
    }
    return {name: each for name, each in moved.items() if each.after < each.upto}


def ask_any(agents: Iterable[str], ask: Callable[[str], _Answer], what: str) -> _Answer:
    """The answer of the first agent that has one."""
    refusals = []
    for address in addresses(agents):
        try:
            return ask(address)
        except WireError as error:
            refusals.append(str(error))
    raise InputError(f"no agent tells {what}: {refusals[0] if refusals else 'there is none'}")
