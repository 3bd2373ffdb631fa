"""The polite guest: a web server's request rate alone, and beside an agent that counts its log.

    python -m benchmarks.guest [SECONDS]      # of each round; needs nginx and wrk

The server has one worker, wrk one thread. The agent is niced, and so is the pipeline, which would
be on another machine. Rounds alternate, so that the machine's moods fall on both.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import mean, median
from threading import Event, Thread, get_native_id

from benchmarks.agents import CLAUSES, AgentBeside, Pipeline, follow
from muntin.run.results import Result

PORT = 18_080
ROUNDS = 4
NICE = "10"  # a tenth of the weight of others: less would be too little for its log
_PAUSE = 0.1  # seconds between looks
_CONF = """
worker_processes 1;
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 1024; }}
http {{
  log_format lines escape=json '{{"ts": $msec, "product": "$uri", "clicks": 1}}';
  access_log {folder}/access.jsonl lines buffer=16k flush=200ms;
  server {{ listen 127.0.0.1:{port}; location / {{ return 200 "hello\\n"; }} }}
}}
"""
_JOB = (
    "CREATE JOB hits AS SELECT product, sum(clicks) AS hits FROM shop GROUP BY product "
    "WINDOW 2 SECONDS PANE 1 SECOND WITHIN 4 SECONDS;"
)


@contextmanager
def nginx(folder: Path) -> Iterator[None]:
    """A web server on this machine that logs every request as a line of JSON."""
    conf = folder / "nginx.conf"
    conf.write_text(_CONF.format(folder=folder, port=PORT))
    server = subprocess.Popen(["nginx", "-p", str(folder), "-c", str(conf)])
    time.sleep(1)
    try:
        yield
    finally:
        server.terminate()
        server.wait()


def requests(seconds: float) -> subprocess.Popen[str]:
    url = f"http://127.0.0.1:{PORT}/cart"
    words = ["wrk", "-t1", "-c16", f"-d{seconds:.0f}s", url]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True)


def rate_of(wrk: subprocess.Popen[str]) -> float:
    told, _ = wrk.communicate()
    found = re.search(r"Requests/sec:\s+([0-9.]+)", told)
    assert found is not None, told
    return float(found[1])


def beside(folder: Path, seconds: float) -> tuple[float, list[float]]:
    """The rate while an agent counts, and how complete its results are."""
    results: list[Result] = []
    over = Event()

    def pipe(address: str) -> None:
        # The nice value of a thread, and of those it starts, is its own; wrk keeps that of others.
        os.setpriority(os.PRIO_PROCESS, get_native_id(), 19)
        pipeline = Pipeline([address], _JOB)
        while not over.is_set():
            follow(pipeline, 0.2, _PAUSE)
        pipeline.close()
        results.extend(result for _, result in pipeline.results)

    with AgentBeside("web", folder, {"--nice": NICE, "--state": str(folder / "state")}) as agent:
        piping = Thread(target=pipe, args=(agent.address,))
        piping.start()
        time.sleep(3.0)  # what was logged before, and what is loaded only once
        started = time.time()
        rate = rate_of(requests(seconds))
        time.sleep(5.0)
        over.set()
        piping.join()
    lived = [r for r in results if started < r.start / 1e6 < started + seconds - 2]
    return rate, [result.c2.area for result in lived]


def main(seconds: float) -> None:
    if shutil.which("nginx") is None or shutil.which("wrk") is None:
        raise SystemExit("nginx and wrk have to be here: apt-get install nginx wrk")
    CLAUSES["slack"] = "500 MILLISECONDS"
    alone: list[float] = []
    together: list[float] = []
    areas: list[float] = []
    for _ in range(ROUNDS):
        with tempfile.TemporaryDirectory() as made, nginx(Path(made)):
            requests(2).wait()
            alone.append(rate_of(requests(seconds)))
            rate, scores = beside(Path(made), seconds)
            together.append(rate)
            areas += scores
    lost = 1 - median(together) / median(alone)
    print(f"alone {median(alone):,.0f} requests/s, beside an agent {median(together):,.0f}: "
          f"{lost:.1%} less (below 10 % wanted)")  # fmt: skip
    print(f"results: {mean(areas):.0%} of the area (above 80 % wanted), {len(areas)} windows")


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 10.0)
