"""Waiting for what other processes and threads do."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")
PATIENCE = 300.0  # seconds, after which something hangs; a loaded machine may need a minute


def wait_for(
    condition: Callable[[], Found], seconds: float = PATIENCE, every: float = 0.01
) -> Found:
    """What the condition gives as soon as that is true of anything; it is asked so often."""
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        found = condition()
        if found:
            return found
        time.sleep(every)
    raise TimeoutError
