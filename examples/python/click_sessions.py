"""Click sessions: how many a user has, how long they are, and how many clicks they hold.

A session ends where a user is silent for half an hour. The partial result is a list of sessions;
two lists are merged by joining what is less than half an hour apart. So sessions may span panes,
servers and batches, and a click that comes out of order finds its place.

    python examples/python/click_sessions.py
"""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import muntin as mt

GAP = 30 * 60
Session = tuple[float, float, int]  # first click, last click, clicks


def joined(sessions: Iterable[Session]) -> list[Session]:
    """Sessions less than the gap apart as one."""
    found: list[Session] = []
    for first, last, clicks in sorted(sessions):
        if found and first - found[-1][1] < GAP:
            before = found.pop()
            first, last, clicks = before[0], max(before[1], last), before[2] + clicks
        found.append((first, last, clicks))
    return found


class ClickSessions(mt.MapReduce):
    window = "1 DAY"
    uses = ("ts", "user")
    columns = {"user": "VARCHAR", "sessions": "BIGINT", "seconds": "DOUBLE", "clicks": "DOUBLE"}

    def mapper(self, _: None, click: dict[str, Any]) -> Iterator[tuple[str, list[Session]]]:
        time = click["ts"].timestamp()
        yield click["user"], [(time, time, 1)]

    def combiner(
        self, user: str, lists: Iterable[list[Session]]
    ) -> Iterator[tuple[str, list[Session]]]:
        yield user, joined(session for each in lists for session in each)

    def reducer(
        self, user: str, lists: Iterable[list[Session]]
    ) -> Iterator[tuple[str, tuple[int, float, float]]]:
        sessions = joined(session for each in lists for session in each)
        seconds = sum(last - first for first, last, _ in sessions)
        clicks = sum(each[2] for each in sessions)
        yield user, (len(sessions), seconds / len(sessions), clicks / len(sessions))


def write_logs(folder: Path, users: int = 40, servers: int = 3, seed: int = 1) -> None:
    """Two days of clicks. Any server may get the next click of a user."""
    random_ = random.Random(seed)
    start = datetime(2026, 3, 1, tzinfo=UTC).timestamp()
    logs: list[list[tuple[float, str]]] = [[] for _ in range(servers)]
    for user in range(users):
        time = start + random_.expovariate(1 / 20_000)
        while time < start + 2 * 86_400:
            for _ in range(random_.randint(1, 12)):
                random_.choice(logs).append((time, f"user-{user:02}"))
                time += random_.expovariate(1 / 120)
            time += GAP + random_.expovariate(1 / 20_000)
    for number, clicks in enumerate(logs):
        rows = [
            json.dumps({"ts": datetime.fromtimestamp(time, UTC).isoformat(), "user": user})
            for time, user in sorted(clicks)
        ]
        (folder / f"web-{number}.jsonl").write_text("\n".join(rows) + "\n")


def program(folder: Path) -> mt.Program:
    stream = (
        "CREATE STREAM clicks (ts TIMESTAMP WITH TIME ZONE, user VARCHAR) "
        f"FROM '{folder}/{{source}}.jsonl' FORMAT json TIMESTAMP ts"
    )
    return mt.with_job(mt.sql(stream), "sessions", ClickSessions, stream="clicks")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        write_logs(Path(folder))
        for result in mt.run(program(Path(folder))):
            print(f"the day that ends {datetime.fromtimestamp(result.end / 1e6, UTC)}")
            print(result.to_pandas().head().to_string(index=False))


if __name__ == "__main__":
    main()
