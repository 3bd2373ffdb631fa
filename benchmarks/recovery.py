"""How long a run on a cluster takes to go on after an executor was killed, against its bound.

python -m benchmarks.recovery [--keys 1000 200000] [--bound 10] [--kills 3]

A cluster of this machine's loopback with two workers follows a log that is written meanwhile, for
windows of ten minutes by key; all keys come in every few seconds, so blocks hold them all. Then an
executor is killed, three times, each time after the former one was replaced. Told are seconds from
the kill to the note that the run stands where it stood, and by itself what of that was after the
loss was noticed; and what `muntin status` had estimated before.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from queue import Queue
from threading import Event, Thread

from muntin.spark.cluster import Cluster, Plan

SQL = """
CREATE STREAM logs (t DOUBLE, k BIGINT, n BIGINT) FROM '{folder}/logs/{{source}}.log'
FORMAT json TIMESTAMP t;
CREATE JOB sums AS SELECT k % 10 AS k, count(*) AS n FROM logs GROUP BY 1 WINDOW 1 SECOND;
CREATE JOB keys AS SELECT k, sum(n) AS n, max(n) AS m FROM logs GROUP BY k
ORDER BY n DESC LIMIT 10 WINDOW 10 MINUTES EVERY 10 SECONDS;
"""
BEFORE = 60  # seconds of the past in the logs
RATE = 20_000  # records a second of these


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--keys", type=int, nargs="+", default=[1_000, 200_000])
    parser.add_argument("--bound", type=float, default=10.0)
    parser.add_argument("--kills", type=int, default=3)
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # which ends the cluster, too
    print(f"bound {given.bound:g} s; seconds from the kill (of these, after it was noticed)\n")
    print("| keys | blocks, MB | estimated, s | " + "recovered | " * given.kills)
    print("|---" * (3 + given.kills) + "|")
    for keys in given.keys:
        with tempfile.TemporaryDirectory(prefix="muntin-recovery-") as folder:
            print(measured(Path(folder), keys, given.bound, given.kills), flush=True)


def measured(folder: Path, keys: int, bound: float, kills: int) -> str:
    """A row of the table."""
    cluster, plan = Cluster(folder / "cluster"), Plan(2, port=free_port())
    cluster.up(plan)
    stop = Event()
    (folder / "logs").mkdir()
    (folder / "jobs.sql").write_text(SQL.format(folder=folder))
    log = folder / "logs" / "web-1.log"
    now = int(time.time())
    with log.open("w") as file:
        file.writelines(
            f'{{"t": {now - BEFORE + n / RATE}, "k": {n * 7919 % keys}, "n": {n % 97}}}\n'
            for n in range(BEFORE * RATE)
        )
    words = [sys.executable, "-m", "muntin", "run", "jobs.sql", "--state", "state"]
    words += ["--master", plan.master, "--recovery", f"{bound} SECONDS"]
    process = subprocess.Popen(words, cwd=folder, stderr=subprocess.PIPE, text=True)
    writer = Thread(target=write_on, args=(log, keys, stop))
    said: Queue[tuple[float, str]] = Queue()
    reader = Thread(target=read, args=(process, said))
    try:
        reader.start()
        writer.start()
        wait_for(said, "following the logs")
        time.sleep(20.0)  # to have read what was there
        before = status(folder)
        found = []
        for _ in range(kills):
            victim = executors(cluster)[0]
            killed = time.perf_counter()
            os.kill(victim, signal.SIGKILL)
            at, line = wait_for(said, "stands where it stood")
            noticed = re.search(r"([\d.]+) s after the loss", line)
            assert noticed is not None
            found.append(f"{at - killed:.1f} ({noticed[1]})")
            wait_for(said, "executors have come")
            time.sleep(5.0)
        size, takes = before["saved_bytes"] / 1e6, before["takes"]
        return f"| {keys:,} | {size:.1f} | {takes:.1f} | {' | '.join(found)} |"
    finally:
        stop.set()
        process.send_signal(signal.SIGINT)
        process.wait(60)
        writer.join()
        reader.join()
        cluster.down()


def write_on(log: Path, keys: int, stop: Event) -> None:
    """A tenth of the past's rate, by the clock."""
    n = 0
    while not stop.wait(0.1):
        with log.open("a") as file:
            for _ in range(RATE // 100):
                n += 1
                line = {"t": time.time(), "k": n * 7919 % keys, "n": n % 97}
                file.write(json.dumps(line) + "\n")


def read(process: subprocess.Popen[str], said: Queue[tuple[float, str]]) -> None:
    assert process.stderr is not None
    for line in process.stderr:
        said.put((time.perf_counter(), line))


def wait_for(said: Queue[tuple[float, str]], words: str) -> tuple[float, str]:
    while True:
        at, line = said.get(timeout=120)
        if words in line:
            return at, line


def status(folder: Path) -> dict[str, float]:
    words = [sys.executable, "-m", "muntin", "status", "--state", "state", "--json"]
    told = json.loads(subprocess.check_output(words, cwd=folder))
    found: dict[str, float] = told["recovery"][0]
    return found


def executors(cluster: Cluster) -> list[int]:
    up = json.loads((cluster.folder / "cluster.json").read_text())["processes"]
    workers = [each["pid"] for name, each in up.items() if name != "master"]
    tasks = (task for pid in workers for task in Path(f"/proc/{pid}/task").glob("*/children"))
    return [int(child) for task in tasks for child in task.read_text().split()]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


if __name__ == "__main__":
    main()
