"""The folder of one agent: safe points of its streams, and files of open panes.

It is held by one agent at a time. Two that wrote into it would take each other's safe points for
their own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from muntin.store.hold import require_own, take_lock

_LOCK = "agent.lock"
_SAFE = ".safe"


def safe_path(folder: Path, stream: str) -> Path:
    """Where the safe points of a stream are."""
    return folder / f"{stream}{_SAFE}"


def open_path(folder: Path) -> Path:
    """The folder of open panes that take too much memory. Nothing in it outlives a process."""
    return folder / "open"


@contextmanager
def held(folder: Path, agent: str) -> Iterator[None]:
    """Makes the folder and holds it; refuses one of another agent that runs, or somebody else's."""
    require_own(folder, _is_own)
    handle = take_lock(folder, _LOCK, f"agent '{agent}', process {os.getpid()}")
    try:
        yield
    finally:
        os.close(handle)


def _is_own(name: str) -> bool:
    return name == _LOCK or name.endswith(_SAFE)
