"""A standalone Spark cluster on this machine's loopback: a master, and workers that act as hosts.

    folder/cluster.json   what was asked for, and each process that was started
    folder/*.log          what they say
    folder/work           what executors unpack and spill, as long as the cluster is up

A process is known by its id and by when it started, so that another one which has got the same
id since is never taken for ours, and never ended.
"""

from __future__ import annotations

import fcntl
import ipaddress
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from muntin.errors import InputError, StartError, StateError
from muntin.spark.archive import Archive
from muntin.spark.java import NEEDS_JAVA, Java

PORT = 7077
_HOST = "127.0.0.1"
_FILE, _LOCK, _WORK = "cluster.json", "lock", "work"
_MASTER = "master"
_MOST_WORKERS = 100
_START_SECONDS = 60.0
_END_SECONDS = 15.0
_LOOK_SECONDS = 0.1
_CLASS = "org.apache.spark.deploy."
# They only hand out work: a small heap, and code that is not worth compiling well.
_JVM = ("-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


@dataclass(frozen=True)
class Started:
    """A process, by its id and by when it started, in ticks since the machine did."""

    pid: int
    ticks: int

    @staticmethod
    def of(pid: int) -> Started | None:
        """None if there is no such process, or only what is left of one."""
        try:
            # The name of a program, which comes second, may have any characters.
            told = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None
        return None if told[0] == "Z" else Started(pid, int(told[19]))

    @property
    def runs(self) -> bool:
        return Started.of(self.pid) == self

    def signal(self, number: signal.Signals) -> None:
        if self.runs:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)


@dataclass(frozen=True)
class Plan:
    """What was asked for."""

    workers: int
    cores: int = 1
    memory: str = "1g"
    port: int = PORT

    def __post_init__(self) -> None:
        if not 1 <= self.workers <= _MOST_WORKERS:
            message = f"--workers is a number from 1 to {_MOST_WORKERS}, not {self.workers}"
            raise InputError(message)
        if self.cores < 1:
            raise InputError(f"--cores is 1 or more, not {self.cores}")
        if not 1 <= self.port <= 65535:
            raise InputError(f"--port is a number from 1 to 65535, not {self.port}")
        if not re.fullmatch(r"\d+[mgMG]", self.memory):
            raise InputError(f"--memory is as Spark has it, 1g or 1500m, not '{self.memory}'")
        if self.megabytes < 1024:
            raise InputError(
                f"--memory {self.memory} is less than 1g, which Spark gives to an executor; a "
                "worker with less would get none"
            )

    @property
    def megabytes(self) -> int:
        return int(self.memory[:-1]) * (1024 if self.memory[-1] in "gG" else 1)

    @property
    def master(self) -> str:
        return f"spark://{_HOST}:{self.port}"


@dataclass(frozen=True)
class Up:
    """A cluster that was started, as far as its processes still run."""

    plan: Plan
    page: int  # the port of the master's page
    processes: Mapping[str, Started] = field(default_factory=dict)


class Cluster:
    """The cluster of one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()

    def up(self, plan: Plan) -> list[str]:
        """Starts what does not run yet, and waits until all workers are known to the master.

        Returns what there is to say. What was started is ended again if something fails.
        """
        java = _java()
        with self._alone():
            known, notes = self._known()
            if known is not None and known.processes and known.plan != plan:
                raise StateError(
                    f"a cluster with {_told(known.plan)} is up already in {self.folder}; "
                    "`muntin cluster down` ends it, and --dir names another folder for a second one"
                )
            running = {} if known is None else dict(known.processes)
            if _MASTER not in running:
                _require_free(plan.port)
            if not running:  # nobody is left whom a master should know
                shutil.rmtree(self._remembered, ignore_errors=True)
            page = known.page if known is not None and _MASTER in running else _free_port()
            up = Up(plan, page, running)
            wanted = [_MASTER, *(f"worker-{n}" for n in range(1, plan.workers + 1))]
            missing = [name for name in wanted if name not in running]
            if not missing:
                return [*notes, f"the cluster is up already, with {_told(plan)}"]
            started: dict[str, Started] = {}
            try:
                for name in missing:
                    started[name] = self._start(java, name, up)
                    self._note(replace(up, processes=running | started))
                    if name == _MASTER:
                        self._await(started, lambda: _workers(up) is not None)
                alive = (running | started).keys() - {_MASTER}
                self._await(started, lambda: (_workers(up) or 0) >= len(alive))
            except BaseException:
                _end(started)
                self._note(up)
                raise
            again = f", of which {', '.join(missing)} had to be started" if running else ""
            return [*notes, f"{_told(plan)} {'are' if plan.workers > 1 else 'is'} up{again}"]

    def down(self) -> list[str]:
        """Ends what `up` has started and still runs; returns what there is to say."""
        with self._alone():
            known, notes = self._known()
            if known is None:
                return [f"no cluster is up in {self.folder}"]
            _end(known.processes)
            shutil.rmtree(self.folder / _WORK, ignore_errors=True)
            (self.folder / _FILE).unlink()
            count = len(known.processes)
            return [*notes, f"{count} process{'' if count == 1 else 'es'} ended"]

    def page(self) -> str | None:
        """The address of the master's page, if it is up."""
        known, _ = self._known()
        return None if known is None else f"http://{_HOST}:{known.page}"

    def _known(self) -> tuple[Up | None, list[str]]:
        """What was started and still runs, and what there is to say of the rest."""
        path = self.folder / _FILE
        try:
            up = msgspec.json.decode(path.read_bytes(), type=Up)
        except FileNotFoundError:
            return None, []
        except (OSError, msgspec.MsgspecError) as error:
            raise StateError(
                f"{path} cannot be read: {error}; remove it, after a look whether processes of "
                "a cluster still run"
            ) from error
        running = {name: each for name, each in up.processes.items() if each.runs}
        gone = sorted(up.processes.keys() - running.keys())
        notes = [f"{', '.join(gone)} had ended before; see the logs in {self.folder}"]
        return replace(up, processes=running), notes if gone else []

    def _note(self, up: Up) -> None:
        path = self.folder / _FILE
        made = path.with_suffix(".new")
        made.write_bytes(msgspec.json.encode(up))
        made.replace(path)

    def _start(self, java: Java, name: str, up: Up) -> Started:
        number = int(name.partition("-")[2] or 0)
        host = str(ipaddress.IPv4Address(_HOST) + number)
        if name == _MASTER:
            page, what = up.page, [f"{_CLASS}master.Master", "--port", str(up.plan.port)]
        else:
            work = self.folder / _WORK / name
            work.mkdir(parents=True, exist_ok=True)
            page, what = 0, [f"{_CLASS}worker.Worker", "--work-dir", str(work)]
            what += ["--cores", str(up.plan.cores), "--memory", f"{up.plan.megabytes}m"]
        words = [*what, "--host", host, "--webui-port", str(page)]
        words += [] if name == _MASTER else [up.plan.master]
        archive = Archive.of(java)
        options = [*_JVM, "-Dspark.port.maxRetries=0", "-Dspark.worker.cleanup.enabled=true"]
        options += ["-Dspark.master.rest.enabled=false"]  # its port is the same for all clusters
        # A master that is started again knows workers and programs, so that these go on.
        options += [f"-Dspark.deploy.recoveryDirectory={self._remembered}"]
        options += ["-Dspark.deploy.recoveryMode=FILESYSTEM", "-Dspark.deploy.recoveryTimeout=10"]
        options += [] if archive is None else archive.options(None)
        local = {} if "SPARK_LOCAL_DIRS" in os.environ else {"SPARK_LOCAL_DIRS": self._local(name)}
        variables = java.variables(os.environ) | {"SPARK_LOCAL_IP": host} | local
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                java.process(options, words, os.environ),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env=os.environ | variables,
                start_new_session=True,
            )
        process.returncode = 0  # it goes on without us
        started = Started.of(process.pid)
        if started is None:
            raise self._failed(name)
        return started

    @property
    def _remembered(self) -> Path:
        return self.folder / _WORK / "remembered"

    def _local(self, name: str) -> str:
        return str(self.folder / _WORK / f"{name}-local")

    def _await(self, started: Mapping[str, Started], condition: Callable[[], bool]) -> None:
        limit = time.monotonic() + _START_SECONDS
        while not condition():
            for name, process in started.items():
                if not process.runs:
                    raise self._failed(name)
            if time.monotonic() > limit:
                raise StartError(
                    f"the cluster has not started within {_START_SECONDS:.0f} s; the logs in "
                    f"{self.folder} may tell why"
                )
            time.sleep(_LOOK_SECONDS)

    def _failed(self, name: str) -> StartError:
        log = self.folder / f"{name}.log"
        lines = log.read_text(errors="replace").strip().splitlines()
        said = next((line for line in reversed(lines) if "Exception" in line), "") or "".join(
            lines[-1:]
        )
        return StartError(f"the {name} of the cluster did not start: {said.strip()}; see {log}")

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Refuses to go on while another process starts or ends this cluster."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with (self.folder / _LOCK).open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                yield
        except BlockingIOError:
            message = f"another process starts or ends the cluster of {self.folder}; wait for it"
            raise StateError(message) from None
        except OSError as error:
            where = error.filename or self.folder
            raise StateError(f"{where} cannot be used: {error.strerror}; give another --dir") from (
                error
            )


def default_folder() -> Path:
    """One for each user: a second cluster would want other ports anyway."""
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "muntin" / "cluster"


def _java() -> Java:
    if not Path("/proc/self/stat").exists():
        raise StartError("a cluster on loopback needs Linux, where 127.0.0.2 is an address too")
    java = Java.found(os.environ)
    if java is None:
        raise StartError(f"there is no Java to start a cluster with. {NEEDS_JAVA}")
    return java


def _told(plan: Plan) -> str:
    workers = "1 worker" if plan.workers == 1 else f"{plan.workers} workers"
    cores = "1 core" if plan.cores == 1 else f"{plan.cores} cores"
    return f"{workers} of {cores} and {plan.memory} at {plan.master}"


def _require_free(port: int) -> None:
    try:
        socket.create_server((_HOST, port)).close()
    except OSError as error:
        message = (
            f"port {port} of {_HOST} cannot be used for a master: {os.strerror(error.errno or 0)}"
        )
        raise InputError(f"{message}; give another one with --port") from error


def _free_port() -> int:
    with socket.create_server((_HOST, 0)) as server:
        port: int = server.getsockname()[1]
        return port


def _workers(up: Up) -> int | None:
    """How many workers the master knows; None if it does not answer."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(f"http://{_HOST}:{up.page}/json/", timeout=5) as answer:
            told: Mapping[str, Any] = json.load(answer)
    except (OSError, ValueError):
        return None
    return int(told.get("aliveworkers", 0))


def _end(processes: Mapping[str, Started]) -> None:
    """Ends processes, workers first, as they end their executors: in peace, or after a while."""
    workers = [each for name, each in processes.items() if name != _MASTER]
    for group in (workers, [each for each in processes.values() if each not in workers]):
        limit = time.monotonic() + _END_SECONDS
        for each in group:
            each.signal(signal.SIGTERM)
        while any(each.runs for each in group) and time.monotonic() < limit:
            time.sleep(_LOOK_SECONDS)
        for each in group:
            each.signal(signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(each.pid, os.WNOHANG)  # where they are our own
