"""Deliveries that are damaged on their way are fetched again; agents that are away are told of."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pytest
from pyarrow import flight

from muntin.errors import InputError, WireError
from muntin.kernel.reading import Reading
from muntin.wire.client import Client, ask_any
from muntin.wire.messages import Fetch, Parcel, Range, decode, pack

WANTED = Fetch("p", "logs", "d", (Range("web", 0, 3),))


class Damaging(flight.FlightServerBase):  # type: ignore[misc]  # pyarrow has no types
    """Serves three deliveries, and damages the second the first few times."""

    def __init__(self, times: int) -> None:
        super().__init__("grpc+tcp://127.0.0.1:0")
        self.times = times
        self.asked: list[int] = []

    def do_get(self, context: object, ticket: flight.Ticket) -> flight.RecordBatchStream:
        wanted = decode(ticket.ticket, Fetch)
        (asked,) = wanted.ranges
        self.asked.append(asked.after)
        rows = []
        for number in range(asked.after + 1, asked.upto + 1):
            data = pack(Parcel({"web": number}, (Reading("web", number, records=number),), {}))
            if number == 2 and self.times:
                self.times -= 1
                data = data[:-1] + bytes([data[-1] ^ 1])
            rows.append(data)
        return flight.RecordBatchStream(pa.table({"parcel": pa.array(rows, pa.binary())}))


@contextmanager
def damaging(times: int) -> Iterator[tuple[Damaging, str]]:
    server = Damaging(times)
    try:
        yield server, f"127.0.0.1:{server.port}"
    finally:
        server.shutdown()


def test_a_damaged_delivery_is_fetched_again() -> None:
    with damaging(2) as (server, place):
        parcels = list(Client().fetch(place, WANTED))
        assert [parcel.numbers["web"] for parcel in parcels] == [1, 2, 3]
        assert server.asked == [0, 1, 1]


def test_one_that_stays_damaged_is_told_of() -> None:
    with damaging(9) as (_, place):
        parcels = Client().fetch(place, WANTED)
        assert next(parcels).numbers == {"web": 1}
        with pytest.raises(WireError, match="a delivery was damaged on its way"):
            next(parcels)


def test_nobody_there() -> None:
    with damaging(0) as (_, place):
        pass
    with pytest.raises(WireError, match=f"the agent at {place} cannot be reached"):
        Client().settings(place, "logs")
    message = f"no agent tells the format: the agent at {place} cannot be reached"
    with pytest.raises(InputError, match=message):
        ask_any([place], lambda address: Client().settings(address, "logs"), "the format")
