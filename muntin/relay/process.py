"""A relay as a process of its own: it serves, and ends when it is told to."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from threading import Event

from muntin.kernel.engine import confine
from muntin.loading import Stop
from muntin.relay.relay import Relay
from muntin.wire import process
from muntin.wire.addresses import addresses
from muntin.wire.client import Client
from muntin.wire.process import Door

KIND = "a relay"
_LOOK_SECONDS = 0.2
MEMORY = 512 << 20  # bytes, with the libraries that it has loaded


def serve(
    name: str,
    agents: Sequence[str],
    door: Door,
    tell: Callable[[str], None],
    nice: int = 0,
    memory: int = MEMORY,
) -> None:
    """Runs a relay until it is sent SIGINT or SIGTERM. It shows agents the keys of its door."""
    door.host(KIND)
    addresses(agents)  # a list that cannot be read is told now
    left = process.room(memory, KIND)
    confine(left // 2)
    os.nice(nice)
    relay, stop = Relay(name, agents, Client(door.keys), left // 4), Stop()
    try:
        process.serve(relay, KIND, name, door, tell, lambda: _wait(stop), stop)
    finally:
        relay.close()


def _wait(stop: Event) -> None:
    """Signals are heard by a thread of Flight, and so end no wait: this one looks for itself."""
    while not stop.wait(_LOOK_SECONDS):
        pass
