"""Agents of tests: in threads of this process, or as processes that can be killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

from muntin.agent.agent import Agent
from muntin.agent.settings import AgentSettings, Limits, StreamSettings
from muntin.wire.keys import Keys
from muntin.wire.server import Server

CLAUSES = {"FORMAT": "json", "TIMESTAMP": "t", "SLACK": "1 SECOND"}


@contextmanager
def serving(
    name: str,
    folder: Path,
    keys: Keys | None = None,
    mutual: bool = False,
    limits: Limits | None = None,
    at: str = "127.0.0.1:0",
    pattern: str = "*.log",
    slack: str | None = None,
) -> Iterator[tuple[Agent, str]]:
    """An agent that reads some files of a folder as stream logs, and its address.

    A `slack` of "" is none; None is that of CLAUSES.
    """
    (folder / "state").mkdir(parents=True, exist_ok=True)
    clauses = {**CLAUSES, "SLACK": slack or CLAUSES["SLACK"]}
    if slack == "":
        del clauses["SLACK"]
    streams = {"logs": StreamSettings((str(folder / pattern),), clauses)}
    agent = Agent(AgentSettings(name, folder / "state", streams, limits or Limits()))
    server = Server(agent, at, keys, mutual)
    reading = Thread(target=agent.run)
    reading.start()
    try:
        yield agent, f"127.0.0.1:{server.port}"
    finally:
        server.shutdown()
        agent.stop.set()
        reading.join()


class Started:
    """A command of `muntin` that listens; it can be killed and started again at its address."""

    address = "127.0.0.1:0"
    _process: subprocess.Popen[str]

    def launch(
        self, who: str, words: Sequence[str], env: Mapping[str, str], within: Sequence[str] = ()
    ) -> None:
        """Starts it, `within` another command if need be, and waits until it listens."""
        self._process = subprocess.Popen(
            [*within, sys.executable, "-m", "muntin", *words],
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "COLUMNS": "200", **env},
        )
        assert self._process.stderr is not None
        told = self._process.stderr.readline()
        assert f"{who} listens at " in told, told
        self.address = told.split("listens at ")[1].split(";")[0]

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, number: signal.Signals) -> None:
        """Sends a signal; one that is to stop it has done so then."""
        self._process.send_signal(number)
        while number is signal.SIGSTOP and self._state() != "T":
            time.sleep(0.01)

    def _state(self) -> str:
        return Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(") ")[2][0]

    def kill(self) -> None:
        """Ends it at once, if it runs."""
        self._process.kill()
        self._wait()

    def stop(self) -> int:
        """Ends it as systemd would; its exit code."""
        self.send(signal.SIGTERM)
        return self._wait()

    def _wait(self) -> int:
        code = self._process.wait(timeout=60)
        assert self._process.stderr is not None
        self._process.stderr.close()
        return code


class AgentProcess(Started):
    """`muntin agent` for the logs in a folder."""

    def __init__(
        self,
        name: str,
        folder: Path,
        env: Mapping[str, str] | None = None,
        within: Sequence[str] = (),
        more: Mapping[str, str] | None = None,
    ) -> None:
        """`within` is a command that starts another one; `more` are options."""
        self._name = name
        self._env = env or {}
        self._within = within
        self._more = more or {}
        self._folder = folder
        self.address = self._more.get("--listen", self.address)
        folder.mkdir()
        clauses = "\n".join(f"{key.lower()} = '{text}'" for key, text in CLAUSES.items())
        settings = f"[streams.logs]\npaths = '{folder}/*.log'\n{clauses}\n"
        (folder / "agent.toml").write_text(settings)
        self.start()

    def start(self) -> None:
        options = {
            "--name": self._name,
            "--config": str(self._folder / "agent.toml"),
            "--state": str(self._folder / "state"),
            "--nice": "0",
            **self._more,
            "--listen": self.address,
        }
        words = [word for option in options.items() for word in option]
        self.launch(f"agent '{self._name}'", ["agent", *words], self._env, self._within)

    def write(self, records: list[tuple[float, str, int]]) -> None:
        with (self._folder / "a.log").open("a") as file:
            file.writelines(json.dumps({"t": t, "k": k, "n": n}) + "\n" for t, k, n in records)
