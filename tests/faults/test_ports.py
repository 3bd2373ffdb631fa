"""What a process of a test listens at stays its own while it is started again."""

from __future__ import annotations

import socket

from tests.ports import free_port


def test_a_port_is_none_that_the_system_hands_out() -> None:
    ports = [free_port() for _ in range(50)]
    for port in ports:
        socket.create_server(("127.0.0.1", port)).close()
    handed_out = [socket.create_server(("127.0.0.1", 0)) for _ in range(200)]
    try:
        assert not {*ports} & {server.getsockname()[1] for server in handed_out}
        assert max(ports) < min(server.getsockname()[1] for server in handed_out)
    finally:
        for server in handed_out:
            server.close()
