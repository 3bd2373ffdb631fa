"""How long a storage that does not answer is waited for, and how people hear of it.

One that has answered is waited for as long as its patience is. When a command begins, one that
cannot even be connected to is more likely to have another address, and that is told soon.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from threading import Timer

from muntin.store.requests import LONGEST_PAUSE

FIRST = 8.0  # seconds for a storage that has never answered, and takes no connection
_TOLD_AFTER = 3.0  # seconds
_FIRST_PAUSE = 0.1
_ADDRESS = re.compile(r"\bhttps?://[^/\s)\"]+")
# What errors of obstore and deltalake have in them, and what that means.
_UNCONNECTED = {
    re.compile(r"Connection ?[Rr]efused"): "nobody listens there",
    re.compile(r"dns error"): "no host has that name",
    re.compile(r"TunnelUnsuccessful|tunnel"): "the proxy does not pass requests on",
    re.compile(r"kind: Connect\b|\(Connect\)"): "no connection can be made",
}
_answered: set[str] = set()  # storages that have, since this process began
_silent: set[str] = set()  # those of which people were told that they do not


def _log(text: str) -> None:
    logging.getLogger("muntin").warning(text)


_tell: Callable[[str], None] = _log


def tell_with(tell: Callable[[str], None]) -> None:
    """Says how people are told of storages that do not answer, in this process."""
    global _tell
    _tell = tell


def has_answered(url: str) -> bool:
    """Whether a storage has, since this process began."""
    return _bucket(url) in _answered


def unanswered(said: str) -> str:
    """That a storage does not answer, where it is, and why, from what an error has said."""
    address = _ADDRESS.search(said)
    why = next((why for words, why in _UNCONNECTED.items() if words.search(said)), None)
    at = f" at {address[0]}" if address is not None else ""
    return f"the storage does not answer{at}" + (f": {why}" if why is not None else "")


class Trying:
    """One request to a storage, which may be made several times."""

    def __init__(self, url: str, patience: float, begins: bool) -> None:
        """`begins`: this process is a command of somebody who may have given a wrong address."""
        self._storage = _bucket(url)
        self._patience = patience
        self._is_first = begins and self._storage not in _answered
        self._began, self._pause = time.monotonic(), _FIRST_PAUSE

    @contextmanager
    def watched(self) -> Iterator[None]:
        """An attempt. If it is the first contact, people need not wait for its end to be told."""
        if not self._is_first:
            yield
            return
        timer = Timer(_TOLD_AFTER, self._tell, [f"{self._storage}: the storage does not answer"])
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def failed(self, said: str, reason: str) -> bool:
        """Waits for the next attempt; False if there is none. People are told after a while.

        `said` is what the library has, and `reason` what that means.
        """
        if self._is_first and any(words.search(said) for words in _UNCONNECTED):
            self._patience = min(self._patience, FIRST)
        waited = time.monotonic() - self._began
        if waited + self._pause > self._patience:
            return False
        if waited > _TOLD_AFTER:
            self._tell(f"{self._storage}: {reason}")
        time.sleep(self._pause)
        self._pause = min(2 * self._pause, LONGEST_PAUSE)
        return True

    def answered(self) -> None:
        """The storage has said something, be it a refusal."""
        self._is_first = False
        _answered.add(self._storage)
        if self._storage in _silent:
            _silent.discard(self._storage)
            _tell(f"{self._storage}: the storage answers again")

    def _tell(self, text: str) -> None:
        if self._storage not in _silent:
            _silent.add(self._storage)
            left = self._began + self._patience - time.monotonic()
            until = datetime.now(UTC) + timedelta(seconds=left)
            _tell(f"{text}; it is tried until {until:%H:%M:%S} UTC")


def _bucket(url: str) -> str:
    """What answers or does not, whatever of it is asked for."""
    return "/".join(url.split("/")[:3])
