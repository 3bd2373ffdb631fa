"""Servers that write JSON lines at a rate which a file says, until they are ended.

python -m benchmarks.load_servers FOLDER 0      # grows FOLDER/logs/web-N.log
python -m benchmarks.load_servers FOLDER 1      # a new file in FOLDER/logs each time
"""

from __future__ import annotations

import json
import random
import sys
import time
from itertools import count
from pathlib import Path

SERVERS = 4
_TICK_SECONDS = 0.05
_FILE_SECONDS = 0.1
_STAMP = "0000000000.000"
_LINES = 5000
_STORES = ("books", "garden", "games", "kitchen", "music", "sports", "toys", "clothes")
_EVENTS = ("view", "view", "view", "search", "cart", "buy")
_ROTATE_BYTES = 256 << 20


def lines(server: str, seed: int) -> list[bytes]:
    """Lines of one server, with room for a time."""
    draw = random.Random(seed)
    made = []
    for _ in range(_LINES):
        product = int(10_000 ** draw.random())
        record = {
            "t": _STAMP,
            "server": server,
            "user": f"u{draw.randrange(400_000)}",
            "product": f"p{product}",
            "store": draw.choice(_STORES),
            "event": draw.choice(_EVENTS),
            "clicks": draw.randrange(1, 9),
            "latency_ms": draw.randrange(1, 400),
            "path": f"/shop/{product}/details",
        }
        made.append(json.dumps(record).replace(f'"{_STAMP}"', _STAMP).encode() + b"\n")
    return made


class Server:
    """One log. A moment's lines are a slice of those there are, with that moment's time."""

    def __init__(self, number: int, folder: Path, files: bool) -> None:
        self._folder, self._files = folder, files
        self._name = f"web-{number}"
        self._lines = lines(self._name, number)
        self._at = 0
        self._numbers = count()
        self._owed = 0.0
        self._log = None if files else (folder / f"{self._name}.log").open("ab", buffering=0)

    def write(self, records: float, now: float) -> None:
        self._owed += records
        most = int(self._owed)
        self._owed -= most
        parts = []
        while most > 0:
            some = self._lines[self._at : self._at + most]
            parts += some
            most -= len(some)
            self._at = (self._at + len(some)) % _LINES
        text = b"".join(parts).replace(_STAMP.encode(), f"{now:.3f}".encode())
        if not text:
            return
        if self._log is not None:
            self._log.write(text)
            if self._log.tell() > _ROTATE_BYTES:
                self._rotate()
            return
        name = f"{self._name}-{next(self._numbers):09}.json"
        hidden = self._folder / f".{name}"
        hidden.write_bytes(text)
        hidden.rename(self._folder / name)

    def _rotate(self) -> None:
        """Keeps the disk from filling: the old log goes with the next rotation."""
        assert self._log is not None
        path = self._folder / f"{self._name}.log"
        self._log.close()
        path.rename(self._folder / f"{self._name}.old")
        self._log = path.open("ab", buffering=0)


def main() -> None:
    home, files = Path(sys.argv[1]), sys.argv[2] == "1"
    folder = home / "logs"
    folder.mkdir(exist_ok=True)
    servers = [Server(number, folder, files) for number in range(SERVERS)]
    period = _FILE_SECONDS if files else _TICK_SECONDS
    last = time.time()
    while True:
        time.sleep(max(0.0, last + period - time.time()))
        now = time.time()
        rate = int((home / "rate").read_text())
        for server in servers:
            server.write(rate * (now - last) / SERVERS, now)
        last = now


if __name__ == "__main__":
    main()
