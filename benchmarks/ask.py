"""How long questions about one hour of a job with 100,000 keys take, against DuckDB over its logs.

    python -m benchmarks.ask [--records N] [--keys N] [--repeat K]

The job runs on Spark, which leaves a state. Then the same questions are asked, in turns: from
memory, as a program that runs answers its second one; from disk, as the first; and DuckDB with all
cores over the raw logs. All have to give the same rows. Where others use the machine, the CPU that
an answer takes says what it would take alone: it is one thread.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import duckdb
import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

import muntin
from muntin.ask.answering import Asking
from muntin.ask.keeping import Memory

HOUR = 3600
BEGIN = 10 * HOUR
QUESTIONS = {
    "all keys, top 10": (
        "SELECT product, clicks FROM hot GROUP BY product BETWEEN '10:00' AND '11:00' "
        "ORDER BY clicks DESC, product LIMIT 10",
        "SELECT product, count(*) AS clicks FROM raw GROUP BY product "
        "ORDER BY clicks DESC, product LIMIT 10",
    ),
    "two keys": (
        "SELECT product, clicks, ms FROM hot WHERE product IN ('product-5', 'product-77') "
        "GROUP BY product BETWEEN '10:00' AND '11:00' ORDER BY product",
        "SELECT product, count(*), sum(ms) FROM raw WHERE product IN ('product-5', 'product-77') "
        "GROUP BY product ORDER BY product",
    ),
    "40 minutes, one row": (
        "SELECT sum(clicks), sum(ms) FROM hot BETWEEN '10:10' AND '10:50'",
        f"SELECT count(*), sum(ms) FROM raw WHERE t >= {BEGIN + 600} AND t < {BEGIN + 3000}",
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--repeat", type=int, default=9)
    options = parser.parse_args()
    out = Console()
    with tempfile.TemporaryDirectory(prefix="muntin-ask-") as name:
        folder = Path(name)
        size = _write(folder, options.records, options.keys)
        took = _run(folder)
        out.print(f"{options.records:,} records, {size >> 20} MB of logs, read in {took:.1f} s")
        columns = "question", "memory", "its CPU", "disk", "DuckDB over logs", "ratio", "rows"
        table = Table(*columns)
        for words, (asked, raw) in QUESTIONS.items():
            table.add_row(words, *_compared(folder, asked, raw, options.repeat))
        out.print(table)


def _write(folder: Path, records: int, keys: int) -> int:
    rand = np.random.default_rng(1)
    for source in ("web-1", "web-2"):
        times = np.round(np.sort(rand.random(records // 2)) * HOUR + BEGIN, 3)
        table = pa.table(
            {
                "t": times,
                "k": rand.integers(0, keys, records // 2),
                "ms": rand.integers(1, 500, records // 2),
            }
        )
        con = duckdb.connect()
        con.register("made", table)
        con.execute(
            "COPY (SELECT t, 'product-' || k AS product, ms FROM made ORDER BY t) "
            f"TO '{folder}/{source}.log' (FORMAT json)"
        )
    return sum(path.stat().st_size for path in folder.glob("*.log"))


def _run(folder: Path) -> float:
    program = muntin.sql(
        f"CREATE STREAM s (t DOUBLE, product VARCHAR, ms BIGINT) FROM '{folder}/{{source}}.log' "
        "FORMAT json TIMESTAMP t; CREATE JOB hot AS SELECT product, count(*) AS clicks, sum(ms) "
        "AS ms FROM s GROUP BY product ORDER BY clicks DESC LIMIT 10 WINDOW 10 MINUTES EVERY "
        "5 MINUTES RETAIN 7 DAYS;"
    )
    started = time.perf_counter()
    for _ in muntin.run_on_spark(program, state=folder / "state"):
        pass
    return time.perf_counter() - started


def _compared(folder: Path, asked: str, raw: str, repeat: int) -> list[str]:
    warm, state = Asking(folder / "state", Memory()), folder / "state"
    con = duckdb.connect(config={"threads": os.cpu_count() or 1})
    con.execute(
        f"CREATE VIEW raw AS FROM read_json('{folder}/*.log', columns="
        "{t: 'DOUBLE', product: 'VARCHAR', ms: 'BIGINT'})"
    )
    answer = warm.ask(asked)
    rows = [tuple(row.values()) for row in answer.rows.to_pylist()]
    assert rows == con.execute(raw).fetchall(), "answers differ"
    memory, disk, logs, cpu = list[float](), list[float](), list[float](), list[float]()
    for _ in range(repeat):
        before = time.process_time()
        memory.append(_timed(lambda: warm.ask(asked)))
        cpu.append(time.process_time() - before)
        disk.append(_timed(lambda: Asking(state).ask(asked)))
        logs.append(_timed(lambda: con.execute(raw).fetchall()))
    one, two, three = median(memory), median(disk), median(logs)
    read = answer.ranges[0].read.rows
    times = [f"{1000 * each:,.0f} ms" for each in (one, median(cpu), two, three)]
    return [*times, f"{three / one:,.1f}x, {three / two:,.1f}x", f"{read:,}"]


def _timed(do: Callable[[], object]) -> float:
    started = time.perf_counter()
    do()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
