"""What a finish costs a window, and what a table costs records that are joined with it.

    python -m benchmarks.finish [--records N] [--rows N] [--table N] [--repeat K]

All in one process, without Spark: a finish runs where results are committed. Runs with and
without a join take turns, and the best of each counts.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from benchmarks.shop import COLUMNS, FILE, Shop, write_shop
from muntin.kernel.kinds import kind_of
from muntin.language.program import sql
from muntin.model.jobs import Job, Program
from muntin.run.inline import windows_inline
from muntin.run.results import Departing

FINISH_MS, JOIN_SHARE = 10.0, 0.30
GROUPS = "SELECT product, store, sum(clicks) AS clicks, count(*) AS events FROM shop GROUP BY 1, 2"
FINISHES = {
    "top 3 of each group": "SELECT product, store, sum(clicks) AS total FROM shop "
    "GROUP BY product, store QUALIFY row_number() OVER "
    "(PARTITION BY store ORDER BY total DESC, product) <= 3",
    "shares, all rows": f"SELECT *, clicks / sum(clicks) OVER (PARTITION BY store) FROM ({GROUPS})",
    "averages of sums": f"SELECT store, avg(clicks), max(events) FROM ({GROUPS}) GROUP BY store",
    "DISTINCT, ORDER BY, LIMIT": f"SELECT DISTINCT store, clicks FROM ({GROUPS}) "
    "ORDER BY clicks DESC LIMIT 100 OFFSET 10",
    "a table beside groups": f"SELECT kind, sum(clicks) FROM ({GROUPS}) JOIN kinds USING (product) "
    "GROUP BY kind",
}
PLAIN = "SELECT product, sum(clicks) AS clicks FROM shop GROUP BY product"
RANKED = f"SELECT *, rank() OVER (ORDER BY clicks DESC) AS place FROM ({PLAIN})"
UNJOINED = "SELECT store, sum(clicks) AS clicks FROM shop GROUP BY store"
JOINED = "SELECT kind, sum(clicks) AS clicks FROM shop JOIN kinds USING (product) GROUP BY kind"

_out = Console(highlight=False)


def program(folder: Path, query: str, window: str) -> str:
    columns = ", ".join(f'"{name}" {kind}' for name, kind in COLUMNS.items())
    return (
        f"CREATE TABLE kinds FROM '{folder}/kinds.parquet';"
        f"CREATE STREAM shop ({columns}) FROM '{folder}/{{source}}/{FILE}' "
        f"FORMAT json TIMESTAMP ts; CREATE JOB job AS {query} WINDOW {window};"
    )


def write_kinds(folder: Path, rows: int) -> None:
    """A table of so many products, each of one of a hundred kinds."""
    products = [f"p{number:05}" for number in range(rows)]
    kinds = pa.array([f"kind-{number % 100}" for number in range(rows)])
    pq.write_table(pa.table({"product": products, "kind": kinds}), folder / "kinds.parquet")


def core_rows(job: Job, rows: int) -> pa.Table:
    """Rows of one window as `finish` of the kernel gives them, all of different keys."""
    random = np.random.default_rng(7)
    columns: dict[str, pa.Array] = {"w": pa.array(np.full(rows, 500_000))}
    keys = {
        "product": pa.array([f"p{number // 10:05}" for number in range(rows)]),
        "store": pa.array([f"store-{number % 10}" for number in range(rows)]),
    }
    kinds = {"DECIMAL(38,0)": pa.decimal128(38), "DOUBLE": pa.float64()}
    for number, column in enumerate(job.core.outputs):
        key = next((k for n, k in enumerate(keys.values()) if column.sql == f"p0.k{n}"), None)
        values = pa.array(random.integers(1, 1000, rows)).cast(kinds.get(column.type, pa.int64()))
        columns[f"x{number}"] = values if key is None else key
    columns |= {f"k{number}": key for number, key in enumerate(keys.values())}
    table = pa.table(columns)
    return table.append_column("win", pa.array(np.zeros(rows, np.int32)))


def best(run: Callable[[], object], repeat: int) -> float:
    times = []
    for _ in range(repeat):
        started = time.perf_counter()
        run()
        times.append(time.perf_counter() - started)
    return min(times)


def finishes(folder: Path, rows: int, repeat: int) -> Table:
    """Milliseconds that each finish takes of a window, with ordering and without."""
    table = Table("finish", "ms a window", f"of these ordering; target {FINISH_MS:.0f} ms in all")
    for name, query in FINISHES.items():
        (job,) = sql(program(folder, query, "1 HOUR")).jobs.values()
        given, kind = core_rows(job, rows), kind_of(job.shape)
        took = best(partial(kind.order, job, [given]), repeat)
        ordering = best(partial(kind.order, job.core, [given]), repeat)
        verdict = "" if took * 1000 < FINISH_MS else ": missed"
        table.add_row(name, f"{took * 1000:.1f}", f"{ordering * 1000:.1f}{verdict}")
    return table


def in_turns(folder: Path, queries: tuple[str, str], repeat: int) -> tuple[float, float]:
    """Seconds that each of two jobs takes over all logs, in turns."""
    programs = [sql(program(folder, query, "5 MINUTES")) for query in queries]
    took: list[list[float]] = [[], []]
    for _ in range(repeat):
        for number, each in enumerate(programs):
            took[number].append(best(partial(_all_windows, each), 1))
    return median(took[0]), median(took[1])


def _all_windows(program: Program) -> list[Departing]:
    return list(windows_inline(program))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=500_000)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--table", type=int, default=100_000)
    parser.add_argument("--repeat", type=int, default=5)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_shop(folder, Shop(records=chosen.records))
        write_kinds(folder, chosen.table)
        _out.print(f"{chosen.rows:,} rows a window")
        _out.print(finishes(folder, chosen.rows, chosen.repeat))
        without, with_ = in_turns(folder, (PLAIN, RANKED), chosen.repeat)
        _out.print(f"{chosen.records:,} records: {without:.2f} s, with a finish {with_:.2f} s")
        without, with_ = in_turns(folder, (UNJOINED, JOINED), chosen.repeat)
        more = with_ / without - 1
        verdict = "" if more <= JOIN_SHARE else ", missed"
        _out.print(
            f"{without:.2f} s, joined with {chosen.table:,} rows {with_:.2f} s: "
            f"{more:+.0%} (target {JOIN_SHARE:+.0%}{verdict})"
        )


if __name__ == "__main__":
    main()
