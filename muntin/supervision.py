"""`muntin run --supervise`: a process that starts the run again when it dies.

A run that was killed, whose JVM has gone or that met a bug is started again, and goes on from its
last commit. What the user has to mend is not tried again, and neither is a run that keeps dying.
Loads next to nothing: it stays beside the run.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Thread

from muntin.errors import MuntinError, SparkError, StartError
from muntin.loading import Stop

DIED = 75  # the exit code of a run that may fare better another time
_SUPERVISED = "MUNTIN_SUPERVISED"  # "FD N": a pipe that ends with the supervisor, and which start
_DELAYS = (1.0, 2.0, 4.0, 8.0, 16.0)  # seconds before a start, time after time
_STEADY_SECONDS = 60.0  # after which a death is the first one again


class Supervisor:
    """Runs a command, and again when it dies."""

    def __init__(
        self,
        command: Sequence[str],
        tell: Callable[[str], None],
        seconds: float | None = None,
        delays: Sequence[float] = _DELAYS,
    ) -> None:
        """After so many `seconds` the command is asked to end."""
        self._command = command
        self._tell = tell
        self._delays = delays
        self._until = None if seconds is None else time.monotonic() + seconds
        self._stop = Stop()
        self._child: subprocess.Popen[bytes] | None = None

    def run(self) -> int:
        """The exit code of the last run, as a shell has it."""
        starts = deaths = 0
        with self._forwarding():
            while True:
                began = time.monotonic()
                code = self._run(starts)
                if self._stop.is_set() or code not in (DIED, *range(-64, 0)):
                    return _shell_code(code)
                starts, deaths = starts + 1, deaths + 1
                if time.monotonic() - began > _STEADY_SECONDS:
                    deaths = 1
                how = f"was killed by {signal.Signals(-code).name}" if code < 0 else "has failed"
                if deaths > len(self._delays):
                    self._tell(f"the run {how}, {deaths} times in a row, and is not started again")
                    return _shell_code(code)
                delay = self._delays[deaths - 1]
                self._tell(f"the run {how}; it is started again in {delay:g} s")
                if self._stop.wait(delay):
                    return 130

    def _run(self, starts: int) -> int:
        """One run, up to its end. In a group of its own it hears signals from here alone."""
        ours, theirs = os.pipe()
        try:
            variables = {_SUPERVISED: f"{ours} {starts}"}
            self._child = subprocess.Popen(
                self._command, env=os.environ | variables, pass_fds=[ours], process_group=0
            )
            if self._stop.is_set():  # since a moment ago
                self._child.terminate()
            return self._wait(self._child)
        finally:
            self._child = None
            os.close(ours)
            os.close(theirs)

    def _wait(self, child: subprocess.Popen[bytes]) -> int:
        try:
            return child.wait(None if self._until is None else self._until - time.monotonic())
        except subprocess.TimeoutExpired:
            self._stop.set()
            child.terminate()
            return child.wait()

    @contextmanager
    def _forwarding(self) -> Iterator[None]:
        def forward(number: int, _: object) -> None:
            self._stop.set()
            if self._child is not None:
                self._child.send_signal(number)

        before = {s: signal.signal(s, forward) for s in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _shell_code(code: int) -> int:
    if code == DIED:
        return 1
    return code if code >= 0 else 128 - code


class Supervised:
    """A run that may be supervised, as it sees that."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        pipe, _, starts = environment.get(_SUPERVISED, "").partition(" ")
        self._pipe = int(pipe) if pipe else None
        self._starts = int(starts or 0)

    def watch(self) -> None:
        """Has this process end as by SIGTERM when its supervisor has gone."""
        if self._pipe is not None:
            Thread(target=self._end_with_it, name="muntin supervised", daemon=True).start()

    def _end_with_it(self) -> None:
        assert self._pipe is not None
        os.read(self._pipe, 1)
        os.kill(os.getpid(), signal.SIGTERM)

    def code_of(self, error: Exception) -> int:
        """The exit code with which an error ends the run.

        A Spark that cannot even be started the first time is for the user to mend.
        """
        if self._pipe is None:
            return 1
        if isinstance(error, StartError):
            return DIED if self._starts else 1
        return DIED if isinstance(error, SparkError) or not isinstance(error, MuntinError) else 1
