"""What clients of a running program wait for, and what the program notices of them.

    python -m benchmarks.control

A program of its own (`muntin run`) follows a log of 200 lines a second, with a window a second. It
is asked for the newest result, given orders, and followed. Then many follow, and very many ask: how
late windows are with and without them, in one run.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import median
from threading import Event, Thread
from urllib.parse import urlsplit

from muntin.control.client import Answer, Client, connect
from muntin.errors import MuntinError

TIMES = 200
WINDOWS = 20  # in which lags are looked at
FOLLOWERS = 90
CROWD = 1000
SQL = """
CREATE STREAM s (t DOUBLE, k VARCHAR, n BIGINT) FROM '{folder}/{{source}}.log'
FORMAT json TIMESTAMP t;
CREATE JOB sums (least DEFAULT 0) AS
SELECT k, sum(n) AS n FROM s WHERE n > $least GROUP BY k ORDER BY n DESC LIMIT 10 WINDOW 1 SECOND;
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as name, _running(Path(name)) as app:
        followed_by_us = app.follow("sums")  # before there are too many clients
        list(islice(followed_by_us, 5))  # the first batches of a run take longer
        _tell("latest", [_took(lambda: app.latest("sums")) for _ in range(TIMES)])
        orders = [partial(app.set, "sums", "least", number % 3) for number in range(20)]
        _tell("an order", [_took(order) for order in orders])
        alone = _lags(followed_by_us)
        with _followed(app):
            followed = _lags(followed_by_us)
        with _crowded(app):
            crowded = _lags(followed_by_us)
        for kind, lags in (("alone", alone), ("followed", followed), ("crowded", crowded)):
            _tell(f"windows left, {kind}", [left for left, _ in lags])
            _tell(f"told after that, {kind}", [told for _, told in lags])


def _lags(results: Iterator[Answer]) -> list[tuple[float, float]]:
    """Of the next windows, milliseconds until each left, and from there until it was told."""
    lags = []
    for result in islice(results, WINDOWS):
        now = time.time()
        assert isinstance(result.end, datetime)
        left = result.emitted_at.timestamp()
        lags.append((1000 * (left - result.end.timestamp()), 1000 * (now - left)))
    return lags


@contextmanager
def _followed(app: Client) -> Iterator[None]:
    """Many follow."""
    stop = Event()

    def follow(results: Iterator[Answer]) -> None:
        for _ in results:
            if stop.is_set():
                return

    threads = [Thread(target=follow, args=[app.follow("sums")]) for _ in range(FOLLOWERS)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


@contextmanager
def _crowded(app: Client) -> Iterator[None]:
    """Very many ask, each once a second; some are told that there are too many."""
    stop, where = Event(), urlsplit(app.url)
    ask = f"GET /jobs/sums/results HTTP/1.1\r\nhost: {where.netloc}\r\n\r\n".encode()

    async def one(number: int) -> None:
        await asyncio.sleep(number / CROWD)
        while not stop.is_set():
            with suppress(OSError):
                reader, writer = await asyncio.open_connection(where.hostname, where.port)
                writer.write(ask)
                await reader.read(1)
                writer.close()
            await asyncio.sleep(1.0)

    async def every() -> None:
        await asyncio.gather(*(one(number) for number in range(CROWD)))

    thread = Thread(target=lambda: asyncio.run(every()))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@contextmanager
def _running(folder: Path) -> Iterator[Client]:
    (folder / "jobs.sql").write_text(SQL.format(folder=folder))
    stop = Event()

    def write() -> None:
        while not stop.wait(0.05):
            line = json.dumps({"t": time.time(), "k": "a", "n": 5}) + "\n"
            with (folder / "web-1.log").open("a") as file:
                file.write(line * 10)

    writer = Thread(target=write)
    writer.start()
    state = str(folder / "state")
    command = [sys.executable, "-m", "muntin", "run", str(folder / "jobs.sql"), "--state", state]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as program:
        try:
            yield _connected(Path(state), program)
        finally:
            program.terminate()
            program.wait()
            stop.set()
            writer.join()


def _connected(state: Path, program: subprocess.Popen[bytes]) -> Client:
    while program.poll() is None:
        with suppress(MuntinError):
            app = connect(state)
            app.jobs()
            return app
        time.sleep(0.1)
    raise SystemExit("the program has not begun")


def _took(do: Callable[[], object]) -> float:
    started = time.perf_counter()
    do()
    return 1000 * (time.perf_counter() - started)


def _tell(kind: str, took: list[float]) -> None:
    took = sorted(took)
    worst = took[min(len(took) - 1, int(0.99 * len(took)))]
    print(
        f"{kind:28} median {median(took):7.1f} ms, p99 {worst:7.1f} ms of {len(took)}", flush=True
    )


if __name__ == "__main__":
    main()
