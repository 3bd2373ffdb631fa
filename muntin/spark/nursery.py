"""Loads the parent of Spark's Python workers while the JVM starts, and hands it over then.

Spark starts `muntin.spark.daemon` with its first task, which would only then load its libraries. On
this machine a process that has loaded all of it waits by then: the one that Spark has started
hands its streams and its environment over to it, and stays as the name under which Spark knows it.
Where there is none that waits, on executors elsewhere or a second time, it loads by itself.
"""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

_ADDRESS = "MUNTIN_NURSERY"  # the variable with the path of the socket on which one waits
_WAITING = "MUNTIN_NURSERY_WAITS"
_END_SECONDS = 5.0
_LONGEST = 1 << 22  # of an environment, in bytes


class Nursery:
    """The process that loads, as the driver sees it."""

    @staticmethod
    def address(folder: Path) -> dict[str, str]:
        """The variable that tells both processes where to meet: in a private folder."""
        return {_ADDRESS: str(folder / "nursery")}

    def __init__(self, address: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            [os.environ["PYSPARK_PYTHON"], "-m", "muntin.spark.daemon"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **address, _WAITING: "1", "PYTHONHASHSEED": "0"},
            process_group=0,  # spared the signals of the terminal
        )

    def end(self) -> None:
        """To be called after the end of the JVM, with which its workers end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Bed:
    """Where a process that Spark did not start waits for one that it did."""

    @staticmethod
    def asked_for() -> Bed | None:
        """None in a process that Spark has started."""
        return Bed() if os.environ.pop(_WAITING, None) is not None else None

    def __init__(self) -> None:
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(os.environ.pop(_ADDRESS))
        self._listening.listen(1)

    def take_over(self) -> bool:
        """Takes the place of the process that Spark starts; False if the driver ends before."""
        with self._listening:
            ready, _, _ = select.select([0, self._listening.fileno()], [], [])
            if self._listening.fileno() not in ready:
                return False
            connection, _ = self._listening.accept()
        data, streams, _, _ = socket.recv_fds(connection, _LONGEST, 3)
        while not data.endswith(b"\n"):
            data += connection.recv(_LONGEST)
        os.environ.clear()
        os.environ.update(json.loads(data))
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        connection.detach()  # closed by our end, which tells the other process of it
        return True


def hand_over() -> bool:
    """Has the process that waits take the place of this one; returns True when it has ended."""
    address = os.environ.pop(_ADDRESS, None)
    if address is None:
        return False
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(address)
        except OSError:
            return False
        data = json.dumps(dict(os.environ)).encode() + b"\n"
        sent = socket.send_fds(connection, [data], [0, 1, 2])
        connection.sendall(data[sent:])
        os.close(0)  # what Spark writes is the other's to read
        with suppress(OSError):
            connection.recv(1)
    return True
