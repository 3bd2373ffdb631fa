"""Relays of tests: in threads of this process, or as processes that can be killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from muntin.relay.relay import Relay
from muntin.wire.client import Client
from muntin.wire.keys import Keys
from muntin.wire.server import Server


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


class RelayProcess:
    """`muntin relay`; it can be killed and started again at the same address."""

    def __init__(self, agents: str) -> None:
        self._agents = agents
        self.address = "127.0.0.1:0"
        self.start()

    def start(self) -> None:
        words = ["--from", self._agents, "--listen", self.address]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "muntin", "relay", *words],
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "COLUMNS": "200"},
        )
        assert self._process.stderr is not None
        told = self._process.stderr.readline()
        assert "relay 'relay' listens at " in told, told
        self.address = told.split("listens at ")[1].split(";")[0]

    def kill(self) -> None:
        """Ends it at once, if it runs."""
        self._process.kill()
        self._wait()

    def stop(self) -> int:
        self._process.send_signal(signal.SIGTERM)
        return self._wait()

    def _wait(self) -> int:
        code = self._process.wait(timeout=60)
        assert self._process.stderr is not None
        self._process.stderr.close()
        return code
