"""What more executors cost where they bring nothing: 1, 2 and 4 of one core on this machine.

    python -m benchmarks.executors [--executors 1 2 4] [--records 400000]

The same logs are read by each number of executors, in processes of their own, in many short
batches: as all share the cores of one machine, this shows what a batch takes by itself, with more
tasks, places and shuffles, and not how much faster a cluster is.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

SERVERS = 8
BATCH_BYTES = 1 << 20
_WARM = 5  # batches that are not counted


def write_logs(folder: Path, records: int) -> None:
    """Servers that have written for a minute, of ten thousand keys."""
    each = records // SERVERS
    for server in range(SERVERS):
        at, key = f"round(i * 60.0 / {each}, 3)", "'p' || (i * 7919 % 10000)"
        rows = f"SELECT {at} AS t, {key} AS k, i % 9 AS n FROM range({each}) AS r(i)"
        duckdb.sql(f"COPY ({rows}) TO '{folder}/web-{server}.log' (FORMAT json)")


def measured(folder: Path, executors: int) -> dict[str, Any]:
    """Reads the logs on so many executors, and says what batches took."""
    from muntin.language.program import sql
    from muntin.spark.context import start_context
    from muntin.spark.runner import Settings, SparkRun

    stream = f"CREATE STREAM s (t DOUBLE, k VARCHAR, n BIGINT) FROM '{folder}/{{source}}.log' "
    job = "CREATE JOB j AS SELECT k, sum(n) AS n FROM s GROUP BY k ORDER BY n DESC LIMIT 10 "
    program = sql(f"{stream} FORMAT json TIMESTAMP t SLACK 1 SECOND; {job} WINDOW 5 SECONDS;")
    context = start_context(f"local-cluster[{executors},1,1024]")
    state = folder / f"state-{executors}"
    settings = Settings(state, follow=False, batch_bytes=BATCH_BYTES)
    took: list[float] = []
    last = time.perf_counter()
    for _ in SparkRun(program, context, settings).turns():
        took.append(time.perf_counter() - last)
        last = time.perf_counter()
    some = took[_WARM:]
    return {
        "executors": executors,
        "batches": len(took),
        "batch_ms": round(1000 * float(np.median(some))),
        "p90_ms": round(1000 * float(np.quantile(some, 0.9))),
        "seconds": round(sum(some), 1),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--executors", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--records", type=int, default=400_000)
    parser.add_argument("--in", type=Path, help=argparse.SUPPRESS)
    given = vars(parser.parse_args(arguments))
    if given["in"] is not None:
        print(json.dumps(measured(given["in"], given["executors"][0])))
        return
    with tempfile.TemporaryDirectory(prefix="muntin-executors-") as name:
        write_logs(Path(name), given["records"])
        for number in given["executors"]:
            command = [sys.executable, "-m", "benchmarks.executors", "--in", name]
            command += ["--executors", str(number)]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            print(done.stdout.splitlines()[-1], flush=True)


if __name__ == "__main__":
    main()
