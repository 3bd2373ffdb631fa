"""A process that answers pipelines: where it listens, to whom, and how it ends."""

from __future__ import annotations

import ipaddress
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread

import pyarrow as pa

from muntin.errors import InputError
from muntin.units import parse_bytes
from muntin.wire.keys import Keys, read_keys
from muntin.wire.server import Answering, Server

LIBRARIES = 128 << 20  # bytes of a process that does nothing
_LEAST_MEMORY = 2 * LIBRARIES
_Host = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True)
class Door:
    """Where a process listens, and who may come in. Without keys that is this machine alone."""

    listen: str
    keys: Keys | None = None
    mutual: bool = False

    def host(self, kind: str) -> _Host:
        """The host; refuses to be open to everybody. `kind` is what listens, as "an agent"."""
        host, _, port = self.listen.rpartition(":")
        try:
            if not port.isdigit() or int(port) >= 1 << 16:
                raise ValueError
            found = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host.strip("[]"))
        except ValueError:
            raise InputError(
                f"--listen {self.listen} is no address; say for example 127.0.0.1:7070"
            ) from None
        if self.keys is None and not found.is_loopback:
            raise InputError(
                f"{self.listen} is open to others: {_alone(kind)}; give --keys, or 127.0.0.1:PORT"
            )
        return found


def door_of(listen: str, keys: str | None, name: str, mutual: bool) -> Door:
    """The door that options of a command line mean; `keys` is a folder."""
    if mutual and keys is None:
        raise InputError("--mutual is about certificates; give --keys too")
    own = None if keys is None else read_keys(Path(keys), name, required=True)
    return Door(listen, own, mutual)


def memory_of(text: str) -> int:
    """Bytes that an option of a command line means."""
    try:
        return parse_bytes(text)
    except ValueError as error:
        raise InputError(f"--memory {text}: {error}") from error


def room(memory: int, kind: str) -> int:
    """What is left of some bytes beside libraries; refuses too few. `kind` is as "an agent"."""
    if memory < _LEAST_MEMORY:
        least = _LEAST_MEMORY >> 20
        raise InputError(f"{kind} needs {least} MB, half of it for libraries; give --memory")
    return memory - LIBRARIES


def serve(
    answering: Answering,
    kind: str,
    name: str,
    door: Door,
    tell: Callable[[str], None],
    run: Callable[[], None],
    stop: Event,
) -> None:
    """Has somebody answered for while `run` runs, which ends once `stop` is set: by a signal."""
    host = door.host(kind)
    try:
        server = Server(answering, door.listen, door.keys, door.mutual)
    except (OSError, pa.ArrowException) as error:  # Flight does not say which
        raise InputError(
            f"nothing can listen at {door.listen}; see whether something else does"
        ) from error
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    serving = Thread(target=server.serve, name="flight")
    serving.start()
    limits = _alone(kind) if door.keys is None else "who has its token may ask"
    try:
        tell(f"{kind.split()[-1]} '{name}' listens at {host}:{server.port}; {limits}")
        run()
    finally:
        server.shutdown()
        serving.join()


def _alone(kind: str) -> str:
    return f"without keys {kind} listens on this machine alone"
