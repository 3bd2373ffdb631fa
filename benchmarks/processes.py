"""What a process and its descendants use, read from /proc: memory while they work, and CPU time."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")
_PERIOD_SECONDS = 0.05
_LOOKS = 5  # at known processes, for each search for new ones


@dataclass(frozen=True)
class Process:
    pid: int
    parent: int
    name: str
    cpu: float  # seconds, with those of children that have ended


@dataclass(frozen=True)
class Memory:
    """Resident bytes of the Python processes and of the JVMs of one process tree.

    Pages that a forked worker shares with its parent count in both, so this is an upper bound.
    """

    python: int = 0
    jvm: int = 0

    def most(self, other: Memory) -> Memory:
        return Memory(max(self.python, other.python), max(self.jvm, other.jvm))


class PeakMemory:
    """The most that this process and its descendants held while the block ran."""

    def __init__(self) -> None:
        self.peak = Memory()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        """Searching takes milliseconds of the time that is measured, so it is done seldom."""
        tree: list[Process] = []
        for look in count():
            if look % _LOOKS == 0:
                tree = list(_tree(os.getpid()))
            self.peak = self.peak.most(_memory_of(tree))
            if self._stop.wait(_PERIOD_SECONDS):
                break
        self.peak = self.peak.most(memory_of_tree())


def memory_of_tree(root: int | None = None) -> Memory:
    """What a process, by default this one, and its descendants hold now."""
    return _memory_of(list(_tree(root or os.getpid())))


def _memory_of(processes: Sequence[Process]) -> Memory:
    python = [p for p in processes if p.name.startswith("python")]
    jvm = [p for p in processes if p.name == "java"]
    return Memory(sum(map(_resident, python)), sum(map(_resident, jvm)))


def _resident(process: Process) -> int:
    try:
        return int(Path(f"/proc/{process.pid}/statm").read_text().split()[1]) * _PAGE
    except OSError:  # it has ended meanwhile
        return 0


def cpu_of_tree() -> float:
    """Seconds of CPU that this process and its descendants have used so far."""
    return sum(process.cpu for process in _tree(os.getpid()))


def cpu_of_machine() -> float:
    """Seconds of CPU that all processes of the machine have used since it started."""
    user, nice, system, _, _, *interrupts = Path("/proc/stat").read_text().split()[1:8]
    return sum(int(ticks) for ticks in (user, nice, system, *interrupts)) / _TICKS


def _tree(root: int) -> Iterator[Process]:
    processes = {process.pid: process for process in _processes()}
    for process in processes.values():
        pid = process.pid
        while pid != root and pid in processes:
            pid = processes[pid].parent
        if pid == root:
            yield process


def _processes() -> Iterator[Process]:
    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal():
            continue
        try:
            stat = (folder / "stat").read_text()
        except OSError:  # it has ended meanwhile
            continue
        name = stat[stat.index("(") + 1 : stat.rindex(")")]
        fields = stat[stat.rindex(")") + 2 :].split()  # from the third of proc(5) on
        cpu = sum(int(ticks) for ticks in fields[11:15]) / _TICKS
        yield Process(int(folder.name), int(fields[1]), name, cpu)
