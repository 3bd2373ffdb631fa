"""Ctrl-C while libraries are loaded, which would have much to say about it, while a command works,
and while a run waits.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Lock, current_thread, main_thread

from muntin.interrupts import stopped


class Stop(Event):
    """An event that a signal may set, whatever the thread that it interrupts is doing.

    An Event's own methods take a lock for a moment. A signal that comes just then, to a thread that
    waits for the event, would have that thread wait for itself.
    """

    def __init__(self) -> None:
        super().__init__()
        self._set = False
        self._closed = Lock()
        self._closed.acquire()

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        if not self._set:
            self._set = True
            self._closed.release()

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until it is set, or for so many seconds; says whether it is."""
        if self._closed.acquire(timeout=-1 if timeout is None else max(0.0, timeout)):
            self._closed.release()
        return self._set


@contextmanager
def loading() -> Iterator[None]:
    """Ctrl-C within the block ends the process at once, as nothing has begun that has to end."""
    if current_thread() is not main_thread():  # which alone hears signals
        yield
        return
    before = signal.signal(signal.SIGINT, stopped)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def interruptible() -> Iterator[None]:
    """Ctrl-C within the block is a KeyboardInterrupt, where else it ends the process at once."""
    if signal.getsignal(signal.SIGINT) is not stopped:
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, stopped)
