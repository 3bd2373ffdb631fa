"""Servers that write live logs, what may happen to these, and the truth about what was written.

A record has a number that no other has. Times of a server's records are out of order by less than
the slack, unless its clock jumps.
"""

from __future__ import annotations

import gzip
import json
import os
import random
import shutil
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from threading import Event, Lock, Thread

SLACK_MS = 1000
PANE_MS = 1000
_DISORDER_MS = 800
_TICK_SECONDS = 0.05
_RECENT_BYTES = 4096  # in which a line is overwritten
_KEPT = 3  # files that were rotated


@dataclass
class Cell:
    """The records of one server in one second, by number.

    Of those that came out of order beyond the slack, the time up to which they were `late`, in
    milliseconds. Those that were destroyed may have been read before, or not.
    """

    numbers: set[int] = field(default_factory=set)
    late: dict[int, int] = field(default_factory=dict)
    destroyed: set[int] = field(default_factory=set)

    def wanted(self, end: int) -> set[int]:
        """What a window that ends at this second has to hold, if it has this pane as a whole.

        What was late for it may be there: a reader may have known less of the server's time.
        """
        late = {number for number, mark in self.late.items() if mark >= 1000 * end}
        return self.numbers - late - self.destroyed


class Server:
    """One log that is being written. What happens to it happens between two writes."""

    def __init__(self, name: str, folder: Path, seed: str) -> None:
        self.name = name
        self.path = folder / f"{name}.log"
        self.cells: dict[int, Cell] = defaultdict(Cell)
        self.begun = time.time()  # when the file was begun that is written now
        self.clock = 0.0  # how many seconds it is ahead
        self.gone = 0.0  # when something of its log was taken away last
        self.forgotten = 0.0  # when its agent was last made to forget all it knew
        self.quiet_until = 0.0
        self._random = random.Random(f"{seed} {name}")
        self._reached = 0
        self._rest = ""  # of a line whose start was written
        self._rotated: list[tuple[Path, float]] = []  # oldest first, with when they were begun
        self._numbers = count(1)
        self._lock = Lock()
        folder.mkdir(parents=True, exist_ok=True)

    def truth(self) -> dict[int, Cell]:
        """What was written by now, by second."""
        with self._lock:
            return {
                second: Cell(set(cell.numbers), dict(cell.late), set(cell.destroyed))
                for second, cell in self.cells.items()
            }

    def quiet(self, seconds: float) -> None:
        """Writes nothing for so long."""
        self.quiet_until = time.time() + seconds

    def tick(self) -> None:
        """Writes some records, now and then only the start of the last one."""
        with self._lock:
            if time.time() < self.quiet_until:
                return
            lines = [self._record() for _ in range(self._random.randrange(4))]
            text, self._rest = self._rest + "".join(lines), ""
            if lines and self._random.random() < 0.1:
                cut = self._random.randrange(1, len(lines[-1]))
                text, self._rest = text[:-cut], text[-cut:]
            self._append(text)

    def _record(self) -> str:
        now = int(1000 * (time.time() + self.clock))
        at, number = now - self._random.randrange(_DISORDER_MS), next(self._numbers)
        self._reached = max(self._reached, at)
        second = at // PANE_MS
        self.cells[second].numbers.add(number)
        if (mark := self._reached - SLACK_MS) // PANE_MS > second:
            self.cells[second].late[number] = mark
        return json.dumps({"t": at / 1000, "n": number, "k": "abc"[number % 3]}) + "\n"

    def _append(self, text: str) -> None:
        with self.path.open("a") as log:
            log.write(text)

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """Nobody writes, and the last line is whole."""
        with self._lock:
            self._append(self._rest)
            self._rest = ""
            yield

    def rotate(self, known_before: float) -> Path:
        """Renames the log and begins another; the oldest goes, if it was `known`."""
        with self._whole():
            path = self.path.with_name(f"{self.path.name}.{time.time_ns()}")
            self.path.rename(path)
            self._begin(path, known_before)
            return path

    def copy_and_truncate(self, known_before: float) -> None:
        with self._whole():
            path = self.path.with_name(f"{self.path.name}.{time.time_ns()}")
            shutil.copy2(self.path, path)
            os.truncate(self.path, 0)
            self._begin(path, known_before)

    def _begin(self, rotated: Path, known_before: float) -> None:
        self._append("")
        self._rotated.append((rotated, self.begun))
        self.begun = time.time()
        while len(self._rotated) > _KEPT and self._rotated[0][1] < known_before:
            oldest, _ = self._rotated.pop(0)
            oldest.unlink(missing_ok=True)
            oldest.with_name(f"{oldest.name}.gz").unlink(missing_ok=True)

    def compress(self, rotated: Path, damage: int = 0) -> None:
        """Compresses a rotated log, perhaps without its last bytes."""
        data = gzip.compress(rotated.read_bytes(), mtime=0)
        packed = rotated.with_name(f"{rotated.name}.gz")
        packed.write_bytes(data[: len(data) - damage])
        os.utime(packed, (rotated.stat().st_atime, rotated.stat().st_mtime))
        rotated.unlink()
        self.gone = time.time()

    def truncate(self) -> None:
        with self._whole():
            os.truncate(self.path, 0)
            self.begun = self.gone = time.time()

    def delete(self) -> None:
        with self._whole():
            self.path.unlink()
            self.begun = self.gone = time.time()

    def edit(self) -> None:
        """Somebody takes out a line, with a tool that puts another file in its place."""
        with self._whole():
            lines = self.path.read_bytes().splitlines(keepends=True)
            known = [n for n, line in enumerate(lines) if line.startswith(b'{"t": 1')]
            known = [n for n in known if lines[n].endswith(b"}\n")]
            if known:
                number = self._random.choice(known)
                self._destroy(lines[number])
                self._replace(b"".join(lines[:number] + lines[number + 1 :]))

    def restore(self) -> None:
        """Somebody puts a copy of an hour ago in its place, which lacks its newest lines."""
        with self._whole():
            lines = self.path.read_bytes().splitlines(keepends=True)
            self._replace(b"".join(lines[: len(lines) * 7 // 10]))
            self.gone = time.time()

    def _replace(self, data: bytes) -> None:
        new = self.path.with_name(f".{self.path.name}")
        new.write_bytes(data)
        new.rename(self.path)

    def garbage(self) -> None:
        """Lines that are no records: bytes, an unfinished object, text."""
        with self._whole(), self.path.open("ab") as log:
            log.write(b'\xff\x00\xfe\n{"t": 12, "n"\nstarting up\n\n')

    def tear(self) -> None:
        """The end of a line was never written, and something else stands there."""
        with self._whole(), self.path.open("ab") as log:
            line = self._record().encode()
            log.write(line[: self._random.randrange(1, len(line) - 2)] + b"\n")
            self._destroy(line)

    def overwrite(self) -> None:
        """A line that was written lately is overwritten in place."""
        with self._whole():
            data = self.path.read_bytes()
            lines = data[-_RECENT_BYTES:].split(b"\n")[1:-1]
            known = [line for line in lines if line.startswith(b'{"t": 1') and line.endswith(b"}")]
            if known:
                line = self._random.choice(known)
                with self.path.open("r+b") as log:
                    log.seek(data.rindex(line))
                    log.write(b"x" * len(line))
                self._destroy(line)

    def _destroy(self, line: bytes) -> None:
        record = json.loads(line)
        self.cells[round(1000 * record["t"]) // PANE_MS].destroyed.add(record["n"])


class Servers:
    """Several servers that write until the block ends."""

    def __init__(self, servers: Sequence[Server]) -> None:
        self._servers = servers
        self._stop = Event()
        self._thread = Thread(target=self._write, name="servers")

    def __enter__(self) -> Servers:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _write(self) -> None:
        while not self._stop.wait(_TICK_SECONDS):
            for server in self._servers:
                server.tick()
