"""The JVM that Spark runs in: started as a child of ours, and ended with us.

It is started before anything of PySpark is loaded, and spoken to when it is ready. A start can
be given up at any moment, and the process never outlives its use.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from muntin.errors import SparkError, StartError
from muntin.spark.archive import Archive
from muntin.spark.java import NEEDS_JAVA, Java, given, submit_arguments
from muntin.spark.master import require_reached
from muntin.spark.nursery import Nursery
from muntin.spark.settings import prepare_environment, settings_on

_POLL_SECONDS = 0.02
_END_SECONDS = 10.0
_OURS = {"spark.master", "spark.python.daemon.module"}  # whatever else is given


class JvmError(Exception):
    """The JVM ended before it could be spoken to; the message is what it had to say."""


class Jvm:
    """A JVM, from the moment that it is started."""

    def __init__(self, master: str | None, may_archive: bool = False) -> None:
        """Returns at once. Raises OSError if there is nothing to start.

        `may_archive` has it list its classes where no archive of them exists, to make one.
        """
        prepare_environment()
        self.settings = settings_on(master)
        for name in given(os.environ) & self.settings.keys() - _OURS:
            del self.settings[name]
        self.gateway: Any = None
        # Java writes what it has to say to a file: a terminal is for results.
        self._log: IO[bytes] = tempfile.TemporaryFile(prefix="muntin-spark-")  # noqa: SIM115
        self._folder = tempfile.TemporaryDirectory(prefix="muntin-spark-")
        folder = Path(self._folder.name)
        self._told, self._classes = folder / "connection", folder / "classes"
        self._nursery: Nursery | None = None
        java = Java.plain(self.settings["spark.master"], os.environ)
        self._archive = Archive.of(java) if java is not None else None
        try:
            if java is None:
                self._process = self._run(_submit_command(self.settings), {})
            else:
                options = []
                if self._archive is not None:
                    options = self._archive.options(self._classes if may_archive else None)
                command = java.command(self.settings, os.environ, *options)
                address = Nursery.address(folder)
                self._process = self._run(command, java.variables(os.environ) | address)
                self._nursery = Nursery(address)
        except BaseException:
            self._close()
            raise

    def connect(self, given_up: Callable[[], bool]) -> Any:
        """Waits until the JVM can be spoken to; returns the way to do so.

        Raises KeyboardInterrupt if the start is given up, and JvmError if it fails.
        """
        from muntin.spark.internals import connect

        while not self._told.exists():
            if given_up():
                raise KeyboardInterrupt
            code = self._process.poll()
            if code is not None and code < 0:
                raise SparkError(f"the JVM of Spark was killed by signal {-code} while it started")
            if code is not None:
                raise JvmError(self.said())
            time.sleep(_POLL_SECONDS)
        self.gateway = connect(self._told)
        return self.gateway

    def said(self) -> str:
        """All that the JVM has written so far."""
        self._log.seek(0)
        return self._log.read().decode(errors="replace")

    def end(self) -> None:
        """Lets the JVM end by itself, as it does when nobody can speak to it any more."""
        if self.gateway is None or self._is_over():
            self.kill()
            return
        self.gateway.shutdown()
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            return
        if self._archive is not None and self._classes.exists():
            self._archive.make(self._classes)
        self._close()

    def kill(self) -> None:
        """Ends the JVM, and the script that starts it, at once; nothing if it has ended."""
        if not self._is_over():
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._close()

    def _is_over(self) -> bool:
        return self._process.returncode is not None

    def _close(self) -> None:
        if self._nursery is not None:
            self._nursery.end()
            self._nursery = None
        self._folder.cleanup()
        self._log.close()

    def _run(self, command: list[str], variables: Mapping[str, str]) -> subprocess.Popen[bytes]:
        """Starts the JVM, which will write how to speak to it, and which ends when its input does.

        In a session of its own it is spared the signals of the terminal: ending it is up to us.
        """
        told = {"_PYSPARK_DRIVER_CONN_INFO_PATH": str(self._told), "SPARK_CONNECT_MODE": "0"}
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=self._log,
            env={**os.environ, **variables, **told},
            start_new_session=True,
        )


@contextmanager
def starting(master: str | None) -> Iterator[Jvm]:
    """A JVM on its way, which is ended with the block if nothing else has ended it.

    Meanwhile SIGTERM interrupts like Ctrl-C.
    """

    def interrupt(number: int, _: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    jvm: Jvm | None = None
    try:
        require_reached(master)
        with held_back():
            jvm = start(master, may_archive=True)
        yield jvm
    finally:
        if jvm is not None:
            jvm.kill()
        signal.signal(signal.SIGTERM, before)


@contextmanager
def held_back() -> Iterator[None]:
    """Lets signals wait for the end of the block, which must not be left halfway.

    A library that is interrupted while it loads says strange things, and a process that is
    interrupted while it starts another does not know that one.
    """
    came: list[int] = []
    signals = (signal.SIGINT, signal.SIGTERM)
    before = {s: signal.signal(s, lambda number, _: came.append(number)) for s in signals}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if came:
        raise KeyboardInterrupt


def start(master: str | None, may_archive: bool = False) -> Jvm:
    """A JVM on its way, for Spark on `master`."""
    try:
        return Jvm(master, may_archive)
    except OSError as error:
        raise not_started(master, str(error)) from error


def not_started(master: str | None, said: str) -> StartError:
    """Spark's own reason where it gives one, or the cause of all others in a trace of Java's, or
    what that begins with.

    Else the end of what was said, and what it needs.
    """
    begin = f"Spark did not start on {master or 'local[*]'}"
    reason = re.search(r"(?:SparkException|Error): (.+)", said)
    causes = re.findall(r"^(?:Caused by)?: [\w.$]+: (.+)", said, re.MULTILINE)
    if reason is not None or causes:
        return StartError(f"{begin}: {reason[1] if reason else causes[-1]}")
    return StartError(f"{begin}: {said[-2000:].strip()}\n{NEEDS_JAVA}")


def _submit_command(settings: Mapping[str, str]) -> list[str]:
    from muntin.spark.internals import spark_home

    more = shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
    return [str(spark_home() / "bin" / "spark-submit"), *submit_arguments(settings), *more]
