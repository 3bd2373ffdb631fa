"""From which network and overlap of keys on it pays to merge an executor's partials first.

    python -m benchmarks.combine [--tasks 2 4 8] [--keys 100000] [--shared 100 50 10]

Tasks of one executor each read a log and make a block. Of the keys of a task, so many in a hundred
are those of all others, too. Measured in CPU time, so that other work on the machine matters
little: packing, unpacking and merging rows where they are made, and where they meet with those of
other executors. Merged before, fewer bytes are sent, fewer rows are unpacked and merged there, and
all are unpacked and merged once more here.

Told is the speed of an executor's network below which the bytes that are saved take longer than
what is added; and from how many MB of partials in a batch on it pays at 1 and 10 Gbit/s, as another
stage of Spark takes some time by itself, and bytes that are handed over within an executor do. Both
are assumed and not measured, as `muntin.spark.policies` has them.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import duckdb
import pyarrow as pa

from muntin.kernel.block import decode, encode
from muntin.kernel.merge import merge
from muntin.language.program import sql
from muntin.logs.chunks import WorkOrder
from muntin.logs.records import read_lanes
from muntin.model.shapes import Shape
from muntin.run.catalog import Catalog
from muntin.spark.policies import HANDED_OVER_SECONDS, STAGE_SECONDS

_TIMES = 5
_EXECUTORS = 4  # whose rows meet in a key group
NETWORKS = {"1 Gbit/s": 125e6, "10 Gbit/s": 1250e6}
T = TypeVar("T")


@dataclass(frozen=True)
class Cost:
    """What an executor of so many tasks sends and computes, apart or merged before."""

    tasks: int
    bytes_apart: int
    bytes_merged: int
    more_cpu: float  # of all its tasks, in seconds

    @property
    def added(self) -> float:
        """Seconds by the clock, as tasks work side by side."""
        return (self.more_cpu + self.bytes_apart * HANDED_OVER_SECONDS) / self.tasks

    def pays_below(self) -> str:
        """The speed of the network, without what a stage takes by itself."""
        saved = self.bytes_apart - self.bytes_merged
        return f"{saved / self.added / 1e6:,.0f} MB/s" if self.added > 0 else "any"

    def pays_from(self, speed: float) -> str:
        """How many bytes of partials an executor has to have in a batch."""
        saved = (self.bytes_apart - self.bytes_merged) / speed - self.added
        return f"{self.bytes_apart * STAGE_SECONDS / saved / 1e6:,.0f} MB" if saved > 0 else "never"


def blocks_of(folder: Path, keys: int, tasks: int, shared: int) -> tuple[Shape, list[pa.Table]]:
    """What each task makes of its log, in which every key is twice."""
    stream = f"CREATE STREAM s (t DOUBLE, k VARCHAR, n BIGINT) FROM '{folder}/{{source}}.log' "
    job = "CREATE JOB j AS SELECT k, count(*) AS c, sum(n) AS n FROM s GROUP BY k WINDOW 1 SECOND"
    program = sql(f"{stream} FORMAT json TIMESTAMP t; {job};")
    catalog = Catalog.of(program.streams["s"], program.jobs.values())
    made: list[pa.Table] = []
    for task in range(tasks):
        path = folder / f"web-{task}.log"
        number = f"(i * 7919 % {keys})"
        own = f"if({number} % 100 < {shared}, 0, {task + 1}) * {keys} + {number}"
        records = f"SELECT 0.5 AS t, 'user-' || ({own}) AS k, i AS n FROM range({2 * keys}) AS r(i)"
        duckdb.sql(f"COPY ({records}) TO '{path}' (FORMAT json)")
        order = WorkOrder("s", f"web-{task}", str(path), 0, path.stat().st_size)
        (read,) = read_lanes([[order]], catalog.stream, catalog.recipes, 0, 1 << 30)
        made += read[0].values()
    (shape,) = catalog.shapes.values()
    return shape, made


def took(do: Callable[[], T]) -> tuple[float, T]:
    """The least CPU time of some runs, in seconds."""
    times = []
    for _ in range(_TIMES):
        started = time.process_time()
        found = do()
        times.append(time.process_time() - started)
    return min(times), found


def measure(keys: int, tasks: int, shared: int) -> Cost:
    with tempfile.TemporaryDirectory(prefix="muntin-combine-") as name:
        shape, blocks = blocks_of(Path(name), keys, tasks, shared)
    packed = [encode(block) for block in blocks]

    def arrive(several: Sequence[bytes]) -> pa.Table:
        """Unpacks and merges, as a task does with what was sent to it."""
        return merge(shape, [decode(each, "a block") for each in several])

    here, merged = took(lambda: arrive(packed))
    pack, once = took(lambda: encode(merged))
    there, _ = took(lambda: arrive(packed * _EXECUTORS))
    after, _ = took(lambda: arrive([once] * _EXECUTORS))
    more = here + pack + (after - there) / _EXECUTORS
    return Cost(tasks, sum(map(len, packed)), len(once), more)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tasks", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--keys", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--shared", type=int, nargs="+", default=[100, 50, 10])
    given = parser.parse_args(arguments)
    told = " | ".join(f"pays at {name} from" for name in NETWORKS)
    print(f"| keys of a task | tasks | shared | MB sent, merged | more CPU | pays below | {told} |")
    print("|---" * (6 + len(NETWORKS)) + "|")
    for keys in given.keys:
        for tasks in given.tasks:
            for shared in given.shared:
                cost = measure(keys, tasks, shared)
                sent = f"{cost.bytes_apart / 1e6:.2f}, {cost.bytes_merged / 1e6:.2f}"
                pays = " | ".join(cost.pays_from(speed) for speed in NETWORKS.values())
                print(
                    f"| {keys:,} | {tasks} | {shared} % | {sent} | {1e3 * cost.more_cpu:.1f} ms | "
                    f"{cost.pays_below()} | {pays} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
