"""Nothing that is sent to an agent can do more than be refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import flight

from muntin.errors import WireError
from muntin.wire.client import Client
from muntin.wire.messages import Exchange, Fetch, Known, Range, encode
from muntin.wire.server import Server
from tests.agent.serving import serving
from tests.wire.junk import MANY, send_junk, send_over_the_wire
from tests.wire.test_messages import PROGRAM, plan


def refusal(address: str, action: str, body: bytes) -> str:
    with flight.connect(f"grpc+tcp://{address}") as own:
        try:
            list(own.do_action(flight.Action(action, body)))
        except (pa.ArrowException, ValueError) as error:
            return str(error)
    return ""


def test_what_is_no_message_is_refused_in_a_sentence(tmp_path: Path) -> None:
    with serving("web01", tmp_path) as (_, place):
        assert "this is no Exchange" in refusal(place, "exchange", b"{")
        assert "there is no action 'shutdown'" in refusal(place, "shutdown", b"")
        assert "of 20971520 bytes is too long" in refusal(place, "exchange", b" " * (20 << 20))
        old = encode(Exchange("p", "logs", "d", version=9))
        assert "agent 'web01' speaks version 1, the pipeline 9" in refusal(place, "exchange", old)
        for stream in ("other", "../logs"):
            other = encode(Exchange("p", stream, plan().digest, {"web01": Known(0)}, plan()))
            assert f"has no stream '{stream}'" in refusal(place, "exchange", other)
        plan_of_other = replace(plan(), stream=replace(plan().stream, name="other"))
        told = encode(
            Exchange("p", "logs", plan_of_other.digest, {"web01": Known(0)}, plan_of_other)
        )
        assert "this is a plan for another stream" in refusal(place, "exchange", told)
        with flight.connect(f"grpc+tcp://{place}") as own:
            with pytest.raises(pa.ArrowException, match="this is no Fetch"):
                own.do_get(flight.Ticket(b"\xff")).read_all()
            with pytest.raises(pa.ArrowException, match="has nothing for this pipeline"):
                own.do_get(
                    flight.Ticket(encode(Fetch("q", "logs", "d", (Range("web01", 0, 1),))))
                ).read_all()
            with pytest.raises((pa.ArrowException, NotImplementedError)):
                list(own.list_flights())
        assert Client().settings(place, "logs")["FORMAT"] == "json"


def test_what_is_no_message_is_refused_on_a_line(tmp_path: Path) -> None:
    told = encode(Exchange("p", "logs", "d"))
    with serving("web01", tmp_path) as (_, place):
        for wrong in (b"", b"{", b"\xff" * 1000, told[:-1], told + b"x", b" " * 9000):
            line = Client().line(place)
            line.say(told)
            assert [news.agent for news in line.answer().news] == ["web01"]
            line.say(wrong)
            with pytest.raises(WireError, match="the line is over"):
                line.answer()
            line.close()
        assert Client().settings(place, "logs")["FORMAT"] == "json"


def junk() -> tuple[list[bytes], list[bytes]]:
    """Actions and fetches, before they are damaged."""
    known = {"web01": Known(0)}
    asked = Exchange("p", "logs", plan().digest, known)
    told = [asked, replace(asked, plan=plan()), plan().stream, "logs"]
    return list(map(encode, told)), [encode(Fetch("p", "logs", "d", (Range("web01", 0, 1),)))]


def test_junk_does_not_end_it(tmp_path: Path) -> None:
    """Fifty thousand messages, while it reads; another fifty thousand are for relays."""
    (tmp_path / "a.log").write_text('{"t": 1, "k": "a", "n": 2}\n' * 1000)
    with serving("web01", tmp_path) as (agent, place):
        send_over_the_wire(place, *junk())
        server = Server(agent, "127.0.0.1:0")
        try:
            assert 0 < send_junk(server, *junk()) < MANY / 2
        finally:
            server.shutdown()
        assert Client().settings(place, "logs")["FORMAT"] == "json"
        told = Exchange("p", "logs", plan().digest, {"web01": Known(0)}, plan())
        assert [news.agent for news in Client().exchange(place, told).news] == ["web01"]


def test_only_its_own_files_are_read(tmp_path: Path) -> None:
    """Patterns come from the agent's settings, whatever a pipeline says."""
    (tmp_path / "a.log").write_text('{"t": 1}\n')
    (tmp_path / "secret").write_text('{"secret": 1}\n')
    stream = replace(PROGRAM.streams["logs"], patterns=(str(tmp_path / "secret"),))
    with serving("web01", tmp_path) as (_, place):
        assert [c.name for c in Client().columns(place, stream)] == ["t"]
