"""Whether merging the partials of an executor's tasks, before they are sent, would pay.

    python -m benchmarks.combine [--tasks 4] [--keys 1000 100000]

Tasks of one executor each read a log with all keys, as in a batch, and make a block. Measured are
the bytes that a row has on its way to its key group, and what merging takes: there, with the rows
of all tasks, and here and there, with those of each executor merged before. Told is up to which
speed of the network the bytes that are saved take longer than the merging that is added; another
stage of Spark, or a way for tasks of one executor to hand over blocks, comes on top of that.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import duckdb
import pyarrow as pa

from muntin.kernel.block import encode
from muntin.kernel.merge import merge
from muntin.language.program import sql
from muntin.logs.chunks import WorkOrder
from muntin.logs.records import read_lanes
from muntin.run.catalog import Catalog

_TIMES = 5
_EXECUTORS = 4  # whose rows meet in a key group
T = TypeVar("T")


def blocks_of(folder: Path, keys: int, tasks: int) -> tuple[Catalog, list[pa.Table]]:
    """What each task makes of its log, in which every key is twice."""
    stream = f"CREATE STREAM s (t DOUBLE, k VARCHAR, n BIGINT) FROM '{folder}/{{source}}.log' "
    job = "CREATE JOB j AS SELECT k, count(*) AS c, sum(n) AS n FROM s GROUP BY k WINDOW 1 SECOND"
    program = sql(f"{stream} FORMAT json TIMESTAMP t; {job};")
    catalog = Catalog.of(program.streams["s"], program.jobs.values())
    made: list[pa.Table] = []
    for task in range(tasks):
        path = folder / f"web-{task}.log"
        records = f"SELECT 0.5 AS t, 'user-' || (i * 7919 % {keys}) AS k, i AS n"
        duckdb.sql(f"COPY ({records} FROM range({2 * keys}) AS r(i)) TO '{path}' (FORMAT json)")
        order = WorkOrder("s", f"web-{task}", str(path), 0, path.stat().st_size)
        (read,) = read_lanes([[order]], catalog.stream, catalog.recipes, 0, 1 << 30)
        made += read[0].values()
    return catalog, made


def took(do: Callable[[], T]) -> tuple[float, T]:
    """The shortest of some times, in seconds."""
    times = []
    for _ in range(_TIMES):
        started = time.perf_counter()
        found = do()
        times.append(time.perf_counter() - started)
    return min(times), found


def measure(keys: int, tasks: int) -> None:
    with tempfile.TemporaryDirectory(prefix="muntin-combine-") as name:
        catalog, blocks = blocks_of(Path(name), keys, tasks)
    (shape,) = catalog.shapes.values()
    apart = sum(len(encode(block)) for block in blocks)
    here, merged = took(lambda: merge(shape, blocks))
    together = len(encode(merged))
    there, _ = took(lambda: merge(shape, blocks * _EXECUTORS))
    after, _ = took(lambda: merge(shape, [merged] * _EXECUTORS))
    # Of each executor: its tasks merge side by side, and so do key groups.
    added = (here + after / _EXECUTORS - there / _EXECUTORS) / tasks
    saved = apart - together
    pays = f"below {saved / added / 1e6:,.0f} MB/s an executor" if added > 0 else "at any speed"
    print(
        f"{keys:9,} keys, {tasks} tasks: {apart / tasks / keys:5.1f} bytes a row; merged before "
        f"{together:,} of {apart:,} bytes are sent; merging takes {1e3 * here:.1f} ms here, then "
        f"{1e3 * after:.1f} rather than {1e3 * there:.1f} ms there, of {_EXECUTORS} executors: "
        f"it pays {pays}",
        flush=True,
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tasks", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--keys", type=int, nargs="+", default=[1_000, 100_000, 1_000_000])
    given = parser.parse_args(arguments)
    for keys in given.keys:
        for tasks in given.tasks:
            measure(keys, tasks)


if __name__ == "__main__":
    main()
