"""Processes under test, which are started again whenever they end, and the processes they have."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Lock, Thread

ROOT = Path(__file__).parents[2]
_LOOK_SECONDS = 0.1
_PAUSES = (0.2, 0.5, 1.0, 2.0, 4.0)  # before it is started again, if it ends again and again
_SOON_SECONDS = 30.0


@dataclass(frozen=True)
class End:
    """A process has ended by itself."""

    at: float
    who: str
    code: int
    said: str
    began: float = 0.0

    @property
    def was_young(self) -> bool:
        """Whether it may have ended before it was ready."""
        return self.at - self.began < _SOON_SECONDS


class Process:
    """A command of `muntin`, for as long as somebody tends it."""

    def __init__(
        self, name: str, words: Sequence[str], folder: Path, env: Mapping[str, str]
    ) -> None:
        self.name = name
        self.log = folder / f"{name}.txt"
        self.starts: list[float] = []
        self.seen: dict[int, str] = {}  # processes that it had
        self._words = words
        self._env = {**os.environ, "COLUMNS": "200", **env}
        self._process: subprocess.Popen[bytes] | None = None
        self._due: float | None = 0.0  # when to start it
        self._lock = Lock()

    @property
    def pid(self) -> int | None:
        with self._lock:
            return None if self._process is None else self._process.pid

    @property
    def runner(self) -> int | None:
        """The process that runs the program: itself, or the one that it supervises."""
        pid = self.pid
        if pid is None or "--supervise" not in self._words:
            return pid
        return next((p for p in descendants(pid) if "-m muntin run" in words_of(p)), None)

    def is_young(self) -> bool:
        """Whether it was started a moment ago, and may not be ready."""
        return not self.starts or time.time() - self.starts[-1] < _SOON_SECONDS

    def tend(self) -> End | None:
        """Starts it if need be; tells if it has ended."""
        with self._lock:
            now = time.time()
            if self._process is not None and self._process.poll() is not None:
                soon = [at for at in self.starts if now - at < _SOON_SECONDS]
                self._due = now + _PAUSES[min(len(soon), len(_PAUSES)) - 1] if soon else now
                code, self._process = self._process.returncode, None
                return End(now, self.name, code, self._said(), self.starts[-1])
            if self._process is None and self._due is not None and now >= self._due:
                with self.log.open("ab") as log:
                    self._process = subprocess.Popen(
                        [sys.executable, "-m", "muntin", *self._words],
                        cwd=ROOT, env=self._env, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                    )  # fmt: skip
                self.starts.append(now)
            return None

    def _said(self) -> str:
        return self.log.read_text(errors="replace")[-2000:].rpartition("\nfollowing")[2]

    def send(self, number: signal.Signals) -> bool:
        """Sends it a signal; whether it was there."""
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                return False
            self._process.send_signal(number)
            return True

    def family(self) -> dict[int, str]:
        """The command lines of the processes below it."""
        pid = self.pid
        found = {} if pid is None else {p: words_of(p) for p in descendants(pid)}
        self.seen |= found
        return found

    def end(self, seconds: float = 60.0) -> int | None:
        """Ends it as a user would, for good; its exit code."""
        with self._lock:
            self._due = None
            if self._process is None:
                return None
            self._process.send_signal(signal.SIGCONT)
            self._process.send_signal(signal.SIGTERM)
            try:
                return self._process.wait(seconds)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
                return None

    def left(self) -> dict[int, str]:
        """Processes that it had and that are still there."""
        return {pid: words for pid, words in self.seen.items() if words and words_of(pid) == words}


class Tending:
    """Starts processes, and starts them again, until the block ends."""

    def __init__(self, processes: Sequence[Process]) -> None:
        self.ends: list[End] = []
        self._processes = processes
        self._stop = Event()
        self._thread = Thread(target=self._tend, name="tending")

    def __enter__(self) -> Tending:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        for process in self._processes:
            process.end()

    def _tend(self) -> None:
        while not self._stop.wait(_LOOK_SECONDS):
            for process in self._processes:
                end = process.tend()
                self.ends += [] if end is None else [end]


def descendants(root: int) -> list[int]:
    """The processes below one, parents before children."""
    children: dict[int, list[int]] = {}
    for pid, parent in _parents():
        children.setdefault(parent, []).append(pid)
    found = [root]
    for pid in found:
        found += children.get(pid, [])
    return found[1:]


def _parents() -> Iterator[tuple[int, int]]:
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with suppress(OSError):
                stat = (folder / "stat").read_text()
                yield int(folder.name), int(stat.rpartition(") ")[2].split()[1])


def words_of(pid: int) -> str:
    """The command line of a process; nothing if it has ended."""
    with suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
        return words.decode(errors="replace").strip()
    return ""
