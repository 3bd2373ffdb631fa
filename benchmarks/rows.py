"""How much memory the driver takes for many rows: of results, of sessions, or kept for questions.

    python -m benchmarks.rows [--rows 5000000] [--heap 512]
                              [--order | --sessions | --retain | --changes]

A log with as many keys as rows are wanted, counted by key in one window, or each in a session of
its own that starts at another time, in a process of its own on `local[2]` whose JVM has so many MB
of heap. With `--retain`, as many records of the stream and rows of the job's panes are kept for
questions, and one is asked about all of them. With `--changes` the log is followed, and the window
is shown with every batch until it leaves. Tells the largest resident memory of the Python
driver before that question; the JVM would have ended if its heap had not been enough.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from threading import Event
from typing import Any

import duckdb

ROWS = 5_000_000
HEAP = 512  # MB
HOW = "order", "sessions", "retain", "changes"


def write_log(path: Path, rows: int) -> None:
    """One record of every key, within one minute."""
    at, key = f"i * 59.0 / {rows}", f"'user-' || (i * 7919 % {rows})"
    records = f"SELECT round({at}, 6) AS t, {key} AS k, i AS n FROM range({rows}) AS r(i)"
    duckdb.sql(f"COPY ({records}) TO '{path}' (FORMAT json)")


def measured(
    folder: Path, ordered: bool, sessions: bool, retain: bool, changes: bool
) -> dict[str, Any]:
    """Runs the job in this process, and says what that took."""
    import muntin as mt
    from muntin.run.many import Stored
    from muntin.spark.context import start_context
    from muntin.spark.runner import Settings, SparkRun

    order, window = " ORDER BY n DESC" if ordered else "", "SESSION 1 SECOND" if sessions else ""
    of_stream, of_job = ("RETAIN 1 DAY OF STREAM", "RETAIN 1 DAY") if retain else ("", "")
    of_job += " EMIT CHANGES" if changes else ""
    program = mt.sql(
        f"CREATE STREAM s (t DOUBLE, k VARCHAR, n BIGINT) FROM '{folder}/{{source}}.jsonl' "
        f"FORMAT json TIMESTAMP t {of_stream};"
        f"CREATE JOB j AS SELECT k, sum(n) AS n FROM s GROUP BY k{order} "
        f"WINDOW {window or '1 MINUTE'} {of_job};"
    )
    context = start_context("local[2]")
    before, started = _peak_mb(), time.perf_counter()
    rows, shown, windows, stored, stop = 0, 0, 0, False, Event()
    settings = Settings(folder / "state", follow=changes)
    for turn in SparkRun(program, context, settings, stop).turns():
        for left in turn.emission.windows:
            rows += left.final.num_rows
            shown += left.num_rows - left.final.num_rows
            windows += left.final.num_windows
            stored |= isinstance(left, Stored)
        if changes and windows:  # the only one has left, and nothing follows
            stop.set()
    seconds = time.perf_counter() - started
    jvm = context._jvm
    assert jvm is not None
    heap = jvm.java.lang.Runtime.getRuntime().maxMemory() >> 20
    files = list((folder / "state" / "results" / "j").glob("*.parquet"))
    told = {"python_mb": _peak_mb(), **(_kept(folder / "state") if retain else {})}
    return {
        "rows": rows,
        "rows_shown_before": shown,
        "windows": windows,
        "seconds": round(seconds, 1),
        "python_mb_at_start": before,
        "heap_mb": heap,
        "in_tasks": stored,
        "files": len(files),
        "stored_mb": sum(path.stat().st_size for path in files) >> 20,
        **told,
    }


def _kept(state: Path) -> dict[str, Any]:
    """What is kept for questions, by what the state says, and by one about all of it."""
    import muntin as mt
    from muntin.store.checkpoint import saved_in

    files = [file for saved in saved_in(state).values() for file in saved.panes.values()]
    counted = mt.ask("SELECT count(*) AS n FROM s", state=state).rows.column("n")[0].as_py()
    return {
        "kept_rows": sum(file.rows for file in files),
        "kept_files": len(files),
        "kept_mb": sum(file.bytes for file in files) >> 20,
        "records_counted": counted,
    }


def _peak_mb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


def run(rows: int = ROWS, heap: int = HEAP, *how: str) -> dict[str, Any]:
    """The same in a process of its own, with a heap of so many MB; `how` are its options."""
    with tempfile.TemporaryDirectory(prefix="muntin-rows-") as name:
        folder = Path(name)
        write_log(folder / "web-1.jsonl", rows)
        submit = f"--driver-memory {heap}m pyspark-shell"
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.rows", "--in", name, *how],
            env=os.environ | {"PYSPARK_SUBMIT_ARGS": submit},
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--heap", type=int, default=HEAP)
    parser.add_argument("--order", action="store_true", help="ORDER BY another column than the key")
    parser.add_argument("--sessions", action="store_true", help="each key has a session of its own")
    parser.add_argument("--retain", action="store_true", help="records and panes are kept")
    parser.add_argument("--changes", action="store_true", help="the open window is shown")
    parser.add_argument("--in", type=Path, help=argparse.SUPPRESS)
    given = vars(parser.parse_args())
    if given["in"] is not None:
        print(json.dumps(measured(given["in"], *(given[name] for name in HOW))))
    else:
        how = [f"--{name}" for name in HOW if given[name]]
        print(json.dumps(run(given["rows"], given["heap"], *how)))


if __name__ == "__main__":
    main()
