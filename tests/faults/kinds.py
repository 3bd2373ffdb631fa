"""The faults there are. Each picks its target, strikes, and says what heals it."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from tests.faults.processes import Process, words_of
from tests.faults.servers import Server
from tests.faults.trial import Struck, Trial
from tests.store.s3 import Proxy

Fault = Callable[[Trial], Struck | None]


def _is_java(words: str) -> bool:
    return words.split(" ", 1)[0].endswith("java")


def _is_worker(words: str) -> bool:
    """Or the parent of such. (Java is told of daemons, too.)"""
    return "daemon" in words and "python" in words and not _is_java(words)


def _java(trial: Trial) -> int | None:
    return _one_of(trial, trial.program.family(), _is_java)


def _worker(trial: Trial) -> int | None:
    """A Python worker of the program, or of its executors elsewhere."""
    elsewhere = trial.grid.families() if trial.grid is not None else {}
    return _one_of(trial, trial.program.family() | elsewhere, _is_worker)


def _one_of(trial: Trial, family: Mapping[int, str], fits: Callable[[str], bool]) -> int | None:
    found = sorted(pid for pid, words in family.items() if fits(words))
    return trial.random.choice(found) if found else None


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def kill_driver(trial: Trial) -> Struck | None:
    """Kills the process that runs the program; who supervises it starts it again."""
    pid = trial.program.runner
    if pid is None:
        return None
    _signal(pid, signal.SIGKILL)
    return Struck("", f"process {pid}", excuses="" if trial.is_supervised else "program")


def kill_supervisor(trial: Trial) -> Struck | None:
    """What it supervised ends a moment later, and until then another one is refused."""
    if not trial.is_supervised or not trial.program.send(signal.SIGKILL):
        return None
    return Struck("", "program", seconds=20.0, excuses="program")


def end_driver(trial: Trial) -> Struck | None:
    """Ends it in peace, as a new release would."""
    there = trial.program.send(signal.SIGTERM)
    return Struck("", "program", excuses="program") if there else None


def kill_java(trial: Trial) -> Struck | None:
    return _killed_of(trial, _java(trial), trial.is_supervised)


def kill_worker(trial: Trial) -> Struck | None:
    """No run ends of it, as its task is done again."""
    return _killed_of(trial, _worker(trial), True)


def _killed_of(trial: Trial, pid: int | None, goes_on: bool) -> Struck | None:
    if pid is None:
        return None
    _signal(pid, signal.SIGKILL)
    # A Spark that cannot even be started is for the user to mend, also under supervision.
    goes_on = goes_on and not trial.program.is_young()
    return Struck("", f"process {pid}", excuses="" if goes_on else "program")


def _stops(choose: Callable[[Trial], int | None]) -> Fault:
    """Stops a process for seconds."""

    def stop(trial: Trial) -> Struck | None:
        pid = choose(trial)
        if pid is None:
            return None
        _signal(pid, signal.SIGSTOP)
        seconds = trial.random.uniform(0.5, 8.0)
        return Struck("", f"process {pid}", lambda: _signal(pid, signal.SIGCONT), seconds)

    return stop


def _executor(trial: Trial) -> int | None:
    found = sorted(trial.grid.executors()) if trial.grid is not None else []
    return trial.random.choice(found) if found else None


def kill_executor(trial: Trial) -> Struck | None:
    """No run ends of it, as another executor comes."""
    pid = _executor(trial)
    if pid is None:
        return None
    _signal(pid, signal.SIGKILL)
    return Struck("", f"process {pid}")


def _kills_daemon(which: str) -> Fault:
    """Kills the master of a cluster, or a worker with its executor; then it is started again."""

    def kill(trial: Trial) -> Struck | None:
        grid = trial.grid
        if grid is None:
            return None
        found = {name: pid for name, pid in grid.daemons().items() if name.startswith(which)}
        name = trial.random.choice(sorted(found))
        if not words_of(found[name]):
            return None
        _signal(found[name], signal.SIGKILL)
        seconds = trial.random.uniform(1.0, 8.0)
        return Struck("", name, grid.up, seconds, bars="program" if name == "master" else "")

    return kill


def _storage(share: tuple[float, float], how: Callable[[Trial], int | float | str]) -> Fault:
    """For seconds, some requests to the storage do not fare well."""

    def hurt(trial: Trial) -> Struck | None:
        bucket = trial.bucket
        if bucket is None:
            return None
        of = trial.random.uniform(*share)
        bucket.hurt(trial.random.random(), of, how(trial))
        seconds = trial.random.uniform(1.0, 15.0)
        return Struck("", f"{of:.0%} of requests", bucket.heal, seconds)

    return hurt


def clock_jumps(trial: Trial) -> Struck | None:
    """The clock of all processes, but not that of the servers' logs."""
    ahead = trial.random.choice([-1, 1]) * trial.random.uniform(1.0, 30.0)
    trial.set_clock(ahead)
    seconds = trial.random.uniform(1.0, 8.0)
    return Struck("", f"{ahead:+.1f} s", lambda: trial.set_clock(0.0), seconds, ahead=ahead)


def disk_is_full(trial: Trial) -> Struck | None:
    """Fills the disk under the state of the program, or of an agent."""
    free = [name for name, disk in trial.disks.items() if not (disk / "filler").exists()]
    if not free:
        return None
    name = trial.random.choice(["program", *free] if "program" in free else free)
    filler = trial.disks[name] / "filler"
    with suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(1 << 20))
    with suppress(OSError), filler.open("ab", buffering=0) as file:
        while True:
            file.write(bytes(512))
    seconds = trial.random.uniform(1.0, 6.0)
    return Struck("", name, lambda: filler.unlink(missing_ok=True), seconds, excuses=name)


def _picked(trial: Trial, processes: list[Process]) -> Process | None:
    return trial.random.choice(processes) if processes else None


def kill_agent(trial: Trial) -> Struck | None:
    return _killed(_picked(trial, trial.agents))


def kill_relay(trial: Trial) -> Struck | None:
    return _killed(_picked(trial, trial.relays))


def _killed(process: Process | None) -> Struck | None:
    if process is None or not process.send(signal.SIGKILL):
        return None
    return Struck("", process.name, excuses=process.name)


def stop_agent_or_relay(trial: Trial) -> Struck | None:
    process = _picked(trial, [*trial.agents, *trial.relays])
    pid = None if process is None else process.pid
    if process is None or pid is None:
        return None
    _signal(pid, signal.SIGSTOP)
    seconds = trial.random.uniform(0.5, 8.0)
    return Struck("", process.name, lambda: _signal(pid, signal.SIGCONT), seconds)


def agent_loses_its_state(trial: Trial) -> Struck | None:
    known = trial.known_before
    ready = [s.name for s in trial.shop if s.gone < known]  # or who knows what it has not read
    process = _picked(trial, [agent for agent in trial.agents if agent.name in ready])
    if process is None or not process.send(signal.SIGKILL):
        return None
    disk = trial.disks.get(process.name, trial.folder / f"{process.name}-disk")
    shutil.rmtree(disk / "state", ignore_errors=True)
    (server,) = (each for each in trial.shop if each.name == process.name)
    server.forgotten = time.time()
    return Struck("", process.name, excuses=process.name, loses=True)


def _of_log(happens: Callable[[Trial, Server], object], loses: bool = False) -> Fault:
    """Something that happens to one log; if it `loses` records, not before it was read from."""

    def strike(trial: Trial) -> Struck | None:
        server = trial.random.choice([*trial.web, *trial.shop])
        begun = max(server.begun, server.forgotten)
        if not server.path.exists() or (loses and begun > trial.known_before):
            return None
        happens(trial, server)
        return Struck("", server.name, loses=loses)

    return strike


def _compressed(trial: Trial, server: Server, damage: int) -> None:
    server.compress(server.rotate(trial.known_before), damage)


def silence(trial: Trial) -> Struck | None:
    server = trial.random.choice([*trial.web, *trial.shop])
    seconds = trial.random.uniform(1.0, 10.0)
    server.quiet(seconds)
    return Struck("", server.name, lambda: None, seconds)


def clock_of_server_jumps(trial: Trial) -> Struck | None:
    server = trial.random.choice([*trial.web, *trial.shop])
    server.clock = trial.random.choice([-1, 1]) * trial.random.uniform(0.5, 20.0)

    def heal() -> None:
        server.clock = 0.0

    target = f"{server.name} {server.clock:+.1f} s"
    return Struck("", target, heal, trial.random.uniform(1.0, 6.0))


FAULTS: dict[str, Fault] = {
    "kill -9 driver": kill_driver,
    "kill -9 JVM": kill_java,
    "kill -9 supervisor": kill_supervisor,
    "kill -9 executor": kill_executor,
    "kill -9 Spark worker": _kills_daemon("worker"),
    "kill -9 Spark master": _kills_daemon("master"),
    "kill -9 Python worker": kill_worker,
    "kill -9 agent": kill_agent,
    "kill -9 relay": kill_relay,
    "SIGTERM driver": end_driver,
    "SIGSTOP driver": _stops(lambda trial: trial.program.runner),
    "SIGSTOP JVM": _stops(_java),
    "SIGSTOP Python worker": _stops(_worker),
    "SIGSTOP executor": _stops(_executor),
    "SIGSTOP agent or relay": stop_agent_or_relay,
    "full disk": disk_is_full,
    "storage answers errors": _storage((0.5, 1.0), lambda trial: trial.random.choice([500, 503])),
    "storage loses answers": _storage((0.2, 0.6), lambda _: Proxy.LOST),
    "storage stalls": _storage((0.5, 1.0), lambda trial: trial.random.uniform(0.5, 4.0)),
    "clock jumps": clock_jumps,
    "agent loses its state": agent_loses_its_state,
    "log rotated": _of_log(lambda trial, server: server.rotate(trial.known_before)),
    "log rotated and compressed": _of_log(lambda trial, server: _compressed(trial, server, 0)),
    "log copied and truncated": _of_log(
        lambda trial, server: server.copy_and_truncate(trial.known_before)
    ),
    "log truncated": _of_log(lambda _, server: server.truncate(), loses=True),
    "log deleted": _of_log(lambda _, server: server.delete(), loses=True),
    "log compressed, cut": _of_log(
        lambda trial, server: _compressed(trial, server, 20), loses=True
    ),
    "log with garbage": _of_log(lambda _, server: server.garbage()),
    "log with a torn line": _of_log(lambda _, server: server.tear()),
    "log edited": _of_log(lambda _, server: server.edit(), loses=True),
    "log restored": _of_log(lambda _, server: server.restore(), loses=True),
    "log overwritten": _of_log(lambda _, server: server.overwrite(), loses=True),
    "server silent": silence,
    "server's clock jumps": clock_of_server_jumps,
}

# What can strike in one place alone, by place.
OF_PLACES = {
    "cluster": (
        "kill -9 executor", "kill -9 Spark worker", "kill -9 Spark master", "SIGSTOP executor",
    ),
    "storage": ("storage answers errors", "storage loses answers", "storage stalls"),
}  # fmt: skip
