"""Writes the shop's logs: `python -m muntin.show.demo.shop FOLDER`, until its parent ends."""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

SERVERS = ("web-1", "web-2", "web-3", "web-4")
_PRODUCTS = ("Tetris", "Doom", "Portal", "Myst", "Zelda", "Pong", "Elite", "Halo", "Sims", "Braid")
_STORES = ("video_games", "books", "toys")
_ENDPOINTS = {"/search": 40.0, "/item": 12.0, "/cart": 25.0, "/checkout": 90.0}
_TICK_SECONDS = 0.1
_EVENTS_PER_TICK = 30


def event(server: str, now: float, chance: random.Random) -> dict[str, object]:
    """One request. web-3 fails more often; checkouts have a long tail."""
    endpoint = chance.choice(tuple(_ENDPOINTS))
    failing = 0.08 if server == "web-3" else 0.01
    written = now - chance.random() * 0.3  # a little disorder, within the stream's slack
    return {
        "ts": datetime.fromtimestamp(written, UTC).isoformat(timespec="milliseconds"),
        "user": chance.randrange(5000),
        "product": _PRODUCTS[min(int(chance.expovariate(0.45)), len(_PRODUCTS) - 1)],
        "store": chance.choice(_STORES),
        "clicks": chance.randint(1, 4),
        "endpoint": endpoint,
        "status": 500 if chance.random() < failing else 200,
        "latency_ms": round(chance.lognormvariate(0, 0.6) * _ENDPOINTS[endpoint], 2),
    }


def write(folder: Path, chance: random.Random) -> Iterator[None]:
    """Appends a tick's events to every server's log, each time it is asked to go on."""
    logs: dict[str, TextIO] = {}
    for server in SERVERS:
        path = folder / server / "events.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        logs[server] = path.open("a", encoding="utf-8")
    while True:
        for server, log in logs.items():
            events = (event(server, time.time(), chance) for _ in range(_EVENTS_PER_TICK))
            log.writelines(json.dumps(e) + "\n" for e in events)
            log.flush()
        yield


def main() -> None:
    parent = os.getppid()
    for _ in write(Path(sys.argv[1]), random.Random(7)):
        if os.getppid() != parent:
            return
        time.sleep(_TICK_SECONDS)


if __name__ == "__main__":
    main()
