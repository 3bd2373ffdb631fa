"""Relays of tests: in threads of this process, or as processes that can be killed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from muntin.relay.relay import Relay
from muntin.wire.client import Client
from muntin.wire.keys import Keys
from muntin.wire.server import Server
from tests.agent.serving import Started


@contextmanager
def relaying(
    *agents: str, at: str = "127.0.0.1:0", keys: Keys | None = None, mutual: bool = False
) -> Iterator[tuple[Relay, str]]:
    """A relay in front of some addresses, and its own."""
    relay = Relay("relay", agents, Client(keys))
    server = Server(relay, at, keys, mutual)
    try:
        yield relay, f"127.0.0.1:{server.port}"
    finally:
        server.shutdown()
        relay.close()


class RelayProcess(Started):
    """`muntin relay` in front of some addresses."""

    def __init__(self, agents: str) -> None:
        self._agents = agents
        self.start()

    def start(self) -> None:
        words = ["relay", "--from", self._agents, "--listen", self.address]
        self.launch("relay 'relay'", words, {})
