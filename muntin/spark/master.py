"""Whether the master of a cluster can be reached: Spark itself takes a minute to say so."""

from __future__ import annotations

import os
import re
import socket

from muntin.errors import InputError, StartError
from muntin.spark.yarn import managers

_SCHEME = "spark://"
_YARN = "yarn"
_PORT = 7077
_SECONDS = 3.0
_CORES = r"(\*|[1-9]\d*)"
_KNOWN = re.compile(
    rf"yarn|local(\[\s*{_CORES}\s*(,\s*\d+\s*)?\])?|local-cluster\[\s*\d+\s*,\s*\d+\s*,\s*\d+\s*\]"
)
_NUMBER = re.compile(r"\d+|0x[0-9a-f]*", re.IGNORECASE)


def is_local(master: str | None) -> bool:
    """Whether Spark runs on this machine alone."""
    return master is None or master.startswith("local")


def is_alone(master: str | None) -> bool:
    """Whether the driver is the only executor."""
    return master is None or re.fullmatch(r"local(\[[^\]]*\])?", master) is not None


def require_known(master: str | None) -> None:
    """Refuses what Spark would not know as a master once it has started."""
    if master is None or "://" in master or _KNOWN.fullmatch(master):
        return
    raise InputError(
        f"--master {master} is no Spark master; give local[4] or local[*] for this machine, "
        "spark://HOST:PORT, yarn or k8s://URL"
    )


def require_reached(master: str | None) -> None:
    """Refuses a master, or a YARN, when none of its addresses takes a connection."""
    if master is None:
        return
    reasons = []
    for address in _addresses(master):
        reason = _unreached(address)
        if reason is None:
            return
        reasons.append(f"{address}: {reason}")
    if not reasons:
        return
    check = "--master has the URL that its page or log shows"
    if master == _YARN:
        check = "HADOOP_CONF_DIR has the settings of the right cluster"
    raise StartError(
        f"{_named(master)} is not reached ({'; '.join(reasons)}); check that it runs, and that "
        f"{check}; without --master, Spark runs on this machine"
    )


def unanswered(master: str) -> str:
    """That a master, which takes connections, says nothing."""
    addresses = _addresses(master) if master == _YARN else []
    at = f" at {', '.join(addresses)}" if addresses else ""
    name = _named(master) if master == _YARN else master
    return f"{name}{at} has not answered yet; Ctrl-C stops"


def _named(master: str) -> str:
    return "the resource manager of YARN" if master == _YARN else f"the Spark master {master}"


def _addresses(master: str) -> list[str]:
    """Where it is to be reached, HOST:PORT; none where that is not known."""
    if master == _YARN:
        return managers(os.environ)
    return master.removeprefix(_SCHEME).split(",") if master.startswith(_SCHEME) else []


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
