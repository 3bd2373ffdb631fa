"""Where agents are: addresses, or files that list them and may change at any time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from muntin.errors import InputError


def addresses(agents: Iterable[str]) -> list[str]:
    """All addresses, each once, in order; of files, one a line, with comments after `#`."""
    found = (address for agent in agents for address in _listed(agent))
    return list(dict.fromkeys(found))


def _listed(agent: str) -> Iterator[str]:
    if ":" in agent:
        yield agent
        return
    try:
        lines = Path(agent).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{agent}, which lists agents, cannot be read: {reason}") from error
    for number, line in enumerate(lines, 1):
        address = line.partition("#")[0].strip()
        if address and not address.rpartition(":")[2].isdigit():
            raise InputError(f"{agent}, line {number}: '{address}' is no address; say host:port")
        if address:
            yield address
