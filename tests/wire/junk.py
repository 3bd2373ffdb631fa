"""Messages that nobody means, for whoever answers pipelines."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pyarrow as pa
from pyarrow import flight

from muntin.wire.server import Server
from tests.effort import EFFORT

MANY = 50_000 * EFFORT


def damaged(whole: bytes, chance: Random) -> bytes:
    """A message with some bytes that are others, missing or more."""
    data = bytearray(whole)
    for _ in range(chance.randint(1, 6)):
        at = chance.randrange(len(data) or 1)
        data[at : at + chance.randint(0, 9)] = chance.randbytes(chance.randint(0, 9))
    return bytes(data)


def send_junk(server: Server, actions: Sequence[bytes], fetches: Sequence[bytes]) -> int:
    """Has a server answer many messages, as its threads do; how many of them it took.

    What it refuses, it refuses in a sentence.
    """
    chance, taken = Random(4), 0
    for _ in range(MANY):
        try:
            if chance.random() < 0.3:
                server.do_get(None, flight.Ticket(damaged(chance.choice(fetches), chance)))
            else:
                kind = chance.choice(["exchange", "exchange", "columns", "settings", "x"])
                body = damaged(chance.choice(actions), chance)
                list(server.do_action(None, flight.Action(kind, body)))
            taken += 1
        except flight.FlightError as error:
            assert "Traceback" not in str(error)  # noqa: PT017
    return taken


def send_over_the_wire(
    place: str, actions: Sequence[bytes], fetches: Sequence[bytes], number: int = 500
) -> None:
    """The same through a connection, some of them."""
    chance = Random(3)
    with flight.connect(f"grpc+tcp://{place}") as own:
        for _ in range(number):
            try:
                if chance.random() < 0.3:
                    own.do_get(flight.Ticket(damaged(chance.choice(fetches), chance))).read_all()
                else:
                    kind = chance.choice(["exchange", "columns", "settings", "x"])
                    body = damaged(chance.choice(actions), chance)
                    list(own.do_action(flight.Action(kind, body)))
            except (pa.ArrowException, ValueError) as error:
                assert "Traceback" not in str(error)  # noqa: PT017
