"""The JVM that Spark runs in: started as a child of ours, and ended with us.

pyspark starts one too, but keeps its process to itself until it is ready. Here a start can be
given up at any moment, and the process never outlives its use.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from pyspark import SparkConf
from pyspark.find_spark_home import _find_spark_home
from pyspark.java_gateway import launch_gateway
from pyspark.serializers import UTF8Deserializer, read_int

_POLL_SECONDS = 0.05
_END_SECONDS = 10.0
_PORT, _SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"


class JvmError(Exception):
    """The JVM ended before it could be spoken to; the message is what it had to say."""


class Jvm:
    """A running JVM and the way to speak to it."""

    def __init__(self, conf: SparkConf, given_up: Callable[[], bool]) -> None:
        """Raises KeyboardInterrupt if the start is given up."""
        # Java writes what it has to say to a file: a terminal is for results.
        self._log: IO[bytes] = tempfile.TemporaryFile(prefix="muntin-spark-")  # noqa: SIM115
        with tempfile.TemporaryDirectory(prefix="muntin-spark-") as folder:
            told = Path(folder) / "connection"
            self._process = _submit(conf, told, self._log)
            try:
                self._wait_for(told, given_up)
                self.gateway = _connected(told)
            except BaseException:
                self.kill()
                raise

    def said(self) -> str:
        """All that the JVM has written so far."""
        self._log.seek(0)
        return self._log.read().decode(errors="replace")

    def end(self) -> None:
        """Lets the JVM end by itself, as it does when nobody can speak to it any more."""
        self.gateway.shutdown()
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
        self._log.close()

    def kill(self) -> None:
        """Ends the JVM, and the script that starts it, at once."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()

    def _wait_for(self, told: Path, given_up: Callable[[], bool]) -> None:
        while not told.exists():
            if given_up():
                raise KeyboardInterrupt
            if self._process.poll() is not None:
                raise JvmError(self.said())
            time.sleep(_POLL_SECONDS)


def _submit(conf: SparkConf, told: Path, log: IO[bytes]) -> subprocess.Popen[bytes]:
    """Starts the JVM, which will write how to speak to it, and which ends when its input does.

    In a session of its own it is spared the signals of the terminal: ending it is up to us.
    """
    home: str = _find_spark_home()
    settings = [word for key, value in conf.getAll() for word in ("--conf", f"{key}={value}")]
    more = shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
    return subprocess.Popen(
        [str(Path(home) / "bin" / "spark-submit"), *settings, *more],
        stdin=subprocess.PIPE,
        stdout=log,
        stderr=log,
        env=os.environ | {"_PYSPARK_DRIVER_CONN_INFO_PATH": str(told), "SPARK_CONNECT_MODE": "0"},
        start_new_session=True,
    )


def _connected(told: Path) -> Any:
    """pyspark's own connection, to the JVM that has told its port and secret."""
    with told.open("rb") as file:
        port = read_int(file)  # type: ignore[no-untyped-call]
        secret = UTF8Deserializer().loads(file)  # type: ignore[no-untyped-call]
    with _environment({_PORT: str(port), _SECRET: str(secret)}):
        return launch_gateway()  # type: ignore[no-untyped-call]


@contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    os.environ |= variables
    try:
        yield
    finally:
        for name in variables:
            del os.environ[name]
