"""Ports for processes that tests start, and may start again."""

from __future__ import annotations

import random
import socket
from pathlib import Path

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST, _HIGHEST = 10_000, 32_000
_choices = random.SystemRandom()  # other processes look for ports, too


def free_port() -> int:
    """One on which nobody listens.

    None of those that the system hands out itself: such a one may be somebody's connection before
    a process listens there, or listens there again.
    """
    handed_out = int(_RANGE.read_text().split()[0]) if _RANGE.exists() else _HIGHEST
    while True:
        port = _choices.randrange(_LOWEST, max(_LOWEST + 1000, min(_HIGHEST, handed_out)))
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        return port
