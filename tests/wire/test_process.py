"""Where a process listens: not where others could come in without keys."""

from __future__ import annotations

from threading import Event

import pytest
from pyarrow import flight

from muntin.errors import InputError
from muntin.relay.relay import Relay
from muntin.wire.client import Client
from muntin.wire.keys import Keys
from muntin.wire.process import Door, serve


@pytest.mark.parametrize(
    ("listen", "message"),
    [
        ("0.0.0.0:7070", "open to others: without keys an agent listens on this machine alone"),
        ("7070", "--listen 7070 is no address; say for example 127.0.0.1:7070"),
        ("web01:port", "--listen web01:port is no address"),
        ("127.0.0.1:65536", "--listen 127.0.0.1:65536 is no address"),
    ],
)
def test_doors_that_are_refused(listen: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Door(listen).host("an agent")


def test_doors_that_are_taken() -> None:
    assert str(Door("localhost:1").host("an agent")) == "127.0.0.1"
    assert str(Door("[::1]:1").host("an agent")) == "::1"
    assert str(Door("0.0.0.0:1", Keys("t" * 16, b"")).host("an agent")) == "0.0.0.0"


def test_it_answers_while_it_runs_and_tells_where() -> None:
    relay, stop = Relay("r", (), Client()), Event()
    told: list[str] = []
    answers: list[flight.Result] = []

    def run() -> None:
        place = told[0].split("listens at ")[1].split(";")[0]
        with flight.connect(f"grpc+tcp://{place}") as own:
            answers.extend(own.do_action(flight.Action("exchange", ASKED)))

    serve(relay, "a relay", "r", Door("127.0.0.1:0"), told.append, run, stop)
    assert [answer.body.to_pybytes() for answer in answers] == [b'{"news":[],"away":{}}']
    assert told[0].startswith("relay 'r' listens at 127.0.0.1:")
    assert told[0].endswith("; without keys a relay listens on this machine alone")
    relay.close()


ASKED = b'{"pipeline": "p", "stream": "s", "digest": "d"}'


def test_a_place_that_is_taken_is_told(capfd: pytest.CaptureFixture[str]) -> None:
    relay = Relay("r", (), Client())

    def again(place: str) -> None:
        address = place.split("listens at ")[1].split(";")[0]
        with pytest.raises(InputError, match=f"nothing can listen at {address}"):
            serve(relay, "a relay", "r", Door(address), print, print, Event())

    serve(relay, "a relay", "r", Door("127.0.0.1:0"), again, lambda: None, Event())
    relay.close()
    assert capfd.readouterr() == ("", "")  # gRPC has nothing to add
