"""How long a question takes after an executor was killed, against the bound on recovery.

Every step is computed from the one before: counts by page fade, and requests are added. The
collection writes what its bound asks for. After some steps an executor is killed, and the newest
step is asked for at once; the answer has to be that of before.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession

from benchmarks.experiments.collections.cluster import cluster
from benchmarks.experiments.collections.data import pages, requests
from benchmarks.experiments.collections.systems import at
from muntin.spark.collections import internals
from muntin.spark.collections.collection import Collection

EXECUTORS = 3
BOUND = 5.0
FADING = 0.5


def run(pictures: Path | None, quick: bool) -> Iterator[str]:
    rows, steps, kills = (2_000, 4, 1) if quick else (20_000, 6, 4)
    known = pages()
    with cluster(EXECUTORS) as session, tempfile.TemporaryDirectory(prefix="muntin-kept-") as kept:
        state = Collection(
            session,
            "state",
            partitions=2 * EXECUTORS,
            recovery=f"{BOUND} seconds",
            folder=kept,
            note=lambda _: None,
        )
        yield f"A bound of {BOUND:g} s, {EXECUTORS} executors, {rows:,} requests a step"
        yield ""
        yield (
            "| steps | written of all, MB | longest recovery as estimated, s "
            "| a question before, s | after the kill, s | and again, s |"
        )
        yield "|---" * 6 + "|"
        step = 0
        for _ in range(kills):
            for _ in range(steps):
                asked_for = [row["page"] for row in requests(rows, step, known).to_pylist()]
                add(state, session.sparkContext, step, asked_for)
                step += 1
            total, before = asked(state, step - 1)
            longest = max(state.lineage.recovery.values())
            size = sum(each.cost for each in state.lineage.datasets.values())
            kill(session)
            after, seconds = asked(state, step - 1)
            again, later = asked(state, step - 1)
            assert abs(after - total) < 1e-6 * total, (after, total)
            assert abs(again - total) < 1e-6 * total, (again, total)
            written = f"{state.written_bytes / 1e6:.1f} of {size / 1e6:.1f}"
            yield (
                f"| {step} | {written} | {longest:.1f} | {before:.2f} "
                f"| {seconds:.2f} | {later:.2f} |"
            )
            while len(internals.executors(session.sparkContext)) < EXECUTORS:
                time.sleep(0.1)


def add(state: Collection, context: SparkContext, step: int, asked_for: list[str]) -> None:
    counts: Any = context.parallelize(asked_for, EXECUTORS).map(lambda page: (page, 1.0))
    if step:
        former = state.between(at(step - 1), at(step)).cogroup()
        counts = counts.union(former.mapValues(lambda lists: FADING * sum(lists[0])))
    state.add(at(step), counts.reduceByKey(_plus, 2 * EXECUTORS))


def asked(state: Collection, step: int) -> tuple[float, float]:
    """The sum of all counts of a step, and how many seconds that took."""
    began = time.perf_counter()
    newest = state.between(at(step), at(step + 1)).cogroup()
    total = newest.map(lambda found: sum(found[1][0])).sum()
    return float(total), time.perf_counter() - began


def kill(session: SparkSession) -> None:
    """Ends one executor of this program at once."""
    number = internals.executors(session.sparkContext)[0].id
    for process in below(os.getpid()):
        words = Path(f"/proc/{process}/cmdline").read_text().split("\0")
        if "--executor-id" in words and words[words.index("--executor-id") + 1] == number:
            os.kill(process, signal.SIGKILL)
            return
    raise LookupError(f"executor {number} has no process here")


def below(process: int) -> Iterator[int]:
    """The processes that this one has started, and those that they have."""
    for thread in Path(f"/proc/{process}/task").iterdir():
        for child in map(int, (thread / "children").read_text().split()):
            yield child
            yield from below(child)


def _plus(one: float, other: float) -> float:
    return one + other
