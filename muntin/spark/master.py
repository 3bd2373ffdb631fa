"""Whether the master of a cluster can be reached: Spark itself takes a minute to say so."""

from __future__ import annotations

import re
import socket

from muntin.errors import StartError

_SCHEME = "spark://"
_PORT = 7077
_SECONDS = 3.0
_NUMBER = re.compile(r"\d+|0x[0-9a-f]*", re.IGNORECASE)


def is_local(master: str | None) -> bool:
    """Whether Spark runs on this machine alone."""
    return master is None or master.startswith("local")


def is_alone(master: str | None) -> bool:
    """Whether the driver is the only executor."""
    return master is None or re.fullmatch(r"local(\[[^\]]*\])?", master) is not None


def require_reached(master: str | None) -> None:
    """Refuses a standalone master when none of its addresses takes a connection."""
    if master is None or not master.startswith(_SCHEME):
        return
    reasons = []
    for address in master.removeprefix(_SCHEME).split(","):
        reason = _unreached(address)
        if reason is None:
            return
        reasons.append(f"{address}: {reason}")
    raise StartError(
        f"the Spark master {master} is not reached ({'; '.join(reasons)}); check that it runs, and "
        "that --master has the URL that its page or log shows; without --master, Spark runs on "
        "this machine"
    )


def _unreached(address: str) -> str | None:
    """Why nobody takes a connection at an address; None if somebody does."""
    found = re.fullmatch(r"\[?([^\[\]]+?)\]?(?::(\d+))?", address)
    # A number would be taken for an address: 127001 for 0.1.240.25.
    if found is None or _NUMBER.fullmatch(found[1]) or int(found[2] or _PORT) > 65535:
        return "this is no HOST:PORT"
    try:
        socket.create_connection((found[1], int(found[2] or _PORT)), _SECONDS).close()
    except TimeoutError:
        return f"no answer within {_SECONDS:.0f} s"
    except OSError as error:
        return error.strerror or str(error)
    return None
