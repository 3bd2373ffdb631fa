"""What many keys cost an agent: its tree beside a dict, DuckDB and Polars, in bytes and time.

    python -m benchmarks.tree [--keys 0.1 1] [--names ids|paths] [--only tree polars …]

Millions of different keys are counted, each of which comes twice, a hundred thousand at a time, as
they come from a piece of log; then the counts are asked for. Every structure has a process and one
core of its own. DuckDB and Polars keep aggregates, and merge what is new into them when it has
become as much: their best. Bytes per key are those that the process has grown by once all was asked
for, and what the structure itself tells; time is CPU time of inserting and asking.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console
from rich.table import Table

from muntin.agent.buffers import Buffers
from muntin.agent.tree import BufferTree
from muntin.kernel.kinds import kind_of
from muntin.language.program import sql

BATCH = 100_000
TIMES = 2  # that each key comes
STEP = 7919  # a prime, so that the second time all keys come in another order
HEX = np.frombuffer(b"".join(b"%02x" % byte for byte in range(256)), "S2")
SPEED, SHARE = 1e6, 0.5  # keys a second, and bytes per key of the best of the others


class Structure(Protocol):
    """Counts by key."""

    def insert(self, batch: pa.Table) -> None:
        """Adds a batch with columns `k` and `n`, each key once."""

    def flush(self) -> int:
        """Merges all that there is; how many keys there are."""

    @property
    def told(self) -> int:
        """Bytes, as the structure itself tells."""


class Tree:
    """The agent's, with blocks of a job as an agent has them: panes, marks and parts too."""

    def __init__(self) -> None:
        text = (
            "CREATE STREAM s (t DOUBLE, k VARCHAR) FROM 'x' FORMAT json TIMESTAMP t;"
            "CREATE JOB j AS SELECT k, count(*) AS n FROM s GROUP BY k WINDOW 1 HOUR;"
        )
        kind = kind_of(sql(text).jobs["j"].shape)
        self._buffers = Buffers(1 << 40, Path(tempfile.gettempdir()) / f"tree-{os.getpid()}")
        self._tree = BufferTree(kind.merge, kind.alike, self._buffers)

    def insert(self, batch: pa.Table) -> None:
        rows = batch.num_rows
        columns = {
            "pane": pa.array(np.full(rows, 480_000)),
            "spec": pa.array(np.zeros(rows, np.int32)),
            "not_before": pa.nulls(rows, pa.int64()),
            "part": pa.array(np.zeros(rows, np.int8)),
            "k0": batch["k"],
            "c0": batch["n"],
        }
        self._tree.insert(pa.table(columns))

    def flush(self) -> int:
        return sum(part.num_rows for part in self._tree.flush())

    @property
    def told(self) -> int:
        return self._buffers.held


class Dict:
    """A dict of Python's strings and numbers."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def insert(self, batch: pa.Table) -> None:
        counts = self._counts
        for key, n in zip(batch["k"].to_pylist(), batch["n"].to_pylist(), strict=True):
            counts[key] = counts.get(key, 0) + n

    def flush(self) -> int:
        return len(self._counts)

    @property
    def told(self) -> int:
        return sys.getsizeof(self._counts) + sum(map(sys.getsizeof, self._counts))


class DuckDB:
    """The rows of a hash aggregate, in a table in memory."""

    def __init__(self) -> None:
        self._con = duckdb.connect(":memory:", config={"threads": 1})
        self._con.execute("CREATE TABLE counts (k VARCHAR, n BIGINT)")
        self._held = self._new = 0

    def insert(self, batch: pa.Table) -> None:
        self._con.register("batch", batch)
        self._con.execute("INSERT INTO counts FROM batch")
        self._con.unregister("batch")
        self._new += batch.num_rows
        if self._new > max(self._held, 4 * BATCH):
            self.flush()

    def flush(self) -> int:
        merged = "SELECT k, sum(n)::BIGINT AS n FROM counts GROUP BY k"
        self._con.execute(f"CREATE OR REPLACE TABLE counts AS {merged}")
        ((self._held,),) = self._con.execute("SELECT count(*) FROM counts").fetchall()
        self._new = 0
        return self._held

    @property
    def told(self) -> int:
        used = "SELECT sum(memory_usage_bytes)::BIGINT FROM duckdb_memory()"
        ((size,),) = self._con.execute(used).fetchall()
        return int(size)


class CompressedDuckDB(DuckDB):
    """The same, compressed once it was merged."""

    def flush(self) -> int:
        keys = super().flush()
        self._con.execute("CHECKPOINT")
        return keys


class Polars:
    """Frames in memory."""

    def __init__(self) -> None:
        self._held = pl.DataFrame(schema={"k": pl.String, "n": pl.Int64})
        self._new: list[pl.DataFrame] = []

    def insert(self, batch: pa.Table) -> None:
        frame = pl.from_arrow(batch)
        assert isinstance(frame, pl.DataFrame)
        self._new.append(frame)
        if sum(map(len, self._new)) > max(len(self._held), 4 * BATCH):
            self.flush()

    def flush(self) -> int:
        rows = pl.concat([self._held, *self._new])
        self._held, self._new = rows.group_by("k").agg(pl.col("n").sum()), []
        return len(self._held)

    @property
    def told(self) -> int:
        return int(self._held.estimated_size())


STRUCTURES: dict[str, type[Structure]] = {
    "tree": Tree,
    "dict": Dict,
    "duckdb": DuckDB,
    "duckdb-compressed": CompressedDuckDB,
    "polars": Polars,
}


def keys_of(ids: np.ndarray[tuple[int], np.dtype[np.uint64]], names: str) -> pa.Array:
    """Names of keys: random ones of 16 letters, which hardly compress, or paths of products."""
    if names == "paths":
        shops = pc.cast(pa.array(ids % np.uint64(97)), pa.string())
        return pc.binary_join_element_wise(
            "/shop/", shops, "/product/", pc.cast(pa.array(ids), pa.string()), ""
        )
    mixed = ids * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    letters = HEX[(mixed ^ (mixed >> np.uint64(32))).view(np.uint8)].tobytes()
    offsets = np.arange(len(ids) + 1, dtype=np.int32) * 16
    return pa.StringArray.from_buffers(len(ids), pa.py_buffer(offsets), pa.py_buffer(letters))


def batches(keys: int, names: str) -> Iterator[pa.Table]:
    """Every key so many times, each time in another order."""
    for step in (STEP**turn % keys or 1 for turn in range(TIMES)):
        for start in range(0, keys, BATCH):
            ids = np.arange(start, min(start + BATCH, keys), dtype=np.uint64)
            chosen = ids * np.uint64(step) % np.uint64(keys)
            yield pa.table({"k": keys_of(chosen, names), "n": pa.array(np.ones(len(ids), int))})


def resident() -> int:
    """Bytes of this process, without those that are free."""
    gc.collect()
    pa.default_memory_pool().release_unused()
    ctypes.CDLL(None).malloc_trim(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def peak() -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


def measured(name: str, keys: int, names: str) -> dict[str, float]:
    """One structure in this process."""
    structure = STRUCTURES[name]()
    warm = STRUCTURES[name]()
    for batch in batches(1000, names):
        warm.insert(batch)
    warm.flush()
    del warm
    before, used = resident(), 0.0
    for batch in batches(keys, names):
        started = time.process_time()
        structure.insert(batch)
        used += time.process_time() - started
    del batch
    started = time.process_time()
    found = structure.flush()
    used += time.process_time() - started
    assert found == keys, f"{name} has {found:,} keys"
    return {
        "grown": (resident() - before) / keys,
        "peak": (peak() - before) / keys,
        "told": structure.told / keys,
        "speed": TIMES * keys / used,
    }


def in_process(name: str, keys: int, names: str) -> dict[str, float]:
    """The same in a process of its own, on one core."""
    command = [sys.executable, "-m", "benchmarks.tree", "--one", name]
    command += ["--keys", str(keys / 1e6), "--names", names]
    environment = {**os.environ, "POLARS_MAX_THREADS": "1"}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=float, nargs="+", default=[0.1, 1], help="millions")
    parser.add_argument("--names", choices=["ids", "paths"], default="ids")
    parser.add_argument("--only", nargs="+", choices=STRUCTURES, default=list(STRUCTURES))
    parser.add_argument("--one", choices=STRUCTURES, help="measure it in this process, as JSON")
    asked = parser.parse_args()
    sizes = [round(millions * 1e6) for millions in asked.keys]
    if asked.one:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        sys.stdout.write(json.dumps(measured(asked.one, sizes[0], asked.names)))
        return
    out = Console(highlight=False)
    for keys in sizes:
        found = {name: in_process(name, keys, asked.names) for name in asked.only}
        table = Table("structure", "grown by", "at most", "told", "keys/s", title=f"{keys:,} keys")
        for name, each in found.items():
            sizes_of = (f"{each[measure]:.1f} B" for measure in ("grown", "peak", "told"))
            table.add_row(name, *sizes_of, f"{each['speed'] / 1e6:.2f} M")
        out.print(table)
        # What is compressed too is another answer to the same question, and no yardstick.
        others = [each for name, each in found.items() if name in ("dict", "duckdb", "polars")]
        if "tree" in found and others:
            for measure in ("grown", "told"):
                share = found["tree"][measure] / min(each[measure] for each in others)
                out.print(
                    f"{share:.2f} of the bytes per key of the best, {measure}; {SHARE} wanted"
                )
            speed = found["tree"]["speed"]
            out.print(f"{speed / 1e6:.2f} M keys/s; {SPEED / 1e6:.0f} M wanted")


if __name__ == "__main__":
    main()
