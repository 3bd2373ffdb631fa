"""An agent as a process of its own: it serves, reads, and ends when it is told to."""

from __future__ import annotations

import ipaddress
import os
import signal
from collections.abc import Callable
from threading import Thread

from muntin.agent.agent import Agent
from muntin.agent.server import AgentServer
from muntin.agent.settings import AgentSettings
from muntin.errors import InputError
from muntin.kernel.engine import confine
from muntin.wire.keys import Keys

LOOPBACK = "without keys an agent listens on this machine alone"


def serve(
    settings: AgentSettings,
    listen: str,
    tell: Callable[[str], None],
    nice: int = 0,
    keys: Keys | None = None,
    mutual: bool = False,
) -> None:
    """Runs an agent until it is sent SIGINT or SIGTERM."""
    host = _host(listen)
    if keys is None and not host.is_loopback:
        raise InputError(f"{listen} is open to others: {LOOPBACK}; give --keys, or 127.0.0.1:PORT")
    confine(settings.limits.room // 2)
    os.nice(nice)
    settings.state.mkdir(parents=True, exist_ok=True)
    agent = Agent(settings)
    try:
        server = AgentServer(agent, listen, keys, mutual)
    except OSError as error:
        raise InputError(f"nothing can listen at {listen}: {error}") from error
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: agent.stop.set())
    serving = Thread(target=server.serve, name="flight")
    serving.start()
    limits = LOOPBACK if keys is None else "who has its token may ask"
    tell(f"agent '{settings.name}' listens at {host}:{server.port}; {limits}")
    try:
        agent.run()
    finally:
        server.shutdown()
        serving.join()


def _host(listen: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    host, _, port = listen.rpartition(":")
    try:
        if not port.isdigit():
            raise ValueError
        return ipaddress.ip_address("127.0.0.1" if host == "localhost" else host.strip("[]"))
    except ValueError:
        raise InputError(
            f"--listen {listen} is no address; say for example 127.0.0.1:7070"
        ) from None
