"""How long it takes to cogroup one to six datasets, and what moves meanwhile; compare Figure 11.

Each question counts the rows of all datasets, cogrouped by page, whose text has a word.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import mean

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from benchmarks.experiments.collections.cluster import cluster, sent, slowed
from benchmarks.experiments.collections.data import WORDS, pages, requests
from benchmarks.experiments.collections.systems import Answer, Plain, Stark, System
from benchmarks.experiments.plots import Line, Panel, draw
from muntin.collections.keys import Selection
from muntin.spark.collections import internals

EXECUTORS = 4
MOST = 6


def run(pictures: Path | None, quick: bool) -> Iterator[str]:
    rows, questions = (20_000, 3) if quick else (100_000, 5)
    known = pages()
    with cluster(EXECUTORS) as session:
        systems: list[System] = [
            Plain(session, "page", EXECUTORS, own_ranges=True),
            Plain(session, "page", EXECUTORS, own_ranges=False),
            Stark(session, "Stark-H", "page", EXECUTORS),
        ]
        for number in range(MOST):
            table = requests(rows, number, known)
            for system in systems:
                system.add(number, table)
        size = f"{MOST} datasets of {table.nbytes / 1e6:.0f} MB"
        yield f"{size}, {EXECUTORS} executors, mean of {questions}"
        yield ""
        yield "| datasets | " + " | ".join(f"{s.name}, ms | moved, MB" for s in systems) + " |"
        yield "|---" * (1 + 2 * len(systems)) + "|"
        taken: dict[str, list[float]] = {system.name: [] for system in systems}
        for count in range(1, MOST + 1):
            cells = []
            for system in systems:
                with slowed():
                    seconds, moved = measured(system, count, questions, rows)
                taken[system.name].append(1000 * seconds)
                cells.append(f"{1000 * seconds:.0f} | {moved / 1e6:.1f}")
            yield f"| {count} | " + " | ".join(cells) + " |"
        yield ""
        yield from localities(session, systems[-1])
    if pictures is not None:
        xs = list(range(1, MOST + 1))
        lines = {name: Line(xs, times) for name, times in taken.items()}
        panel = Panel("cogroup", "datasets", "delay, ms", lines)
        draw(pictures / "collections-cogroup.png", "Cogroup of some datasets", [panel])


def measured(system: System, count: int, questions: int, rows: int) -> tuple[float, float]:
    """Seconds, and bytes over the network, of one question on average; the first warms up."""
    rng = random.Random(count)
    times, moved = [], []
    for n in range(questions + 1):
        word = rng.choice(WORDS)
        before, began = sent(), time.perf_counter()
        answers = system.ask(range(count), Selection(), counting(word))
        if n:
            times.append(time.perf_counter() - began)
            moved.append(float(sent() - before))
        assert sum(all_ for _, all_ in answers) == count * rows
    return mean(times), mean(moved)


def counting(word: str) -> Answer[tuple[int, int]]:
    def count(tables: dict[int, pa.Table]) -> list[tuple[int, int]]:
        whole = pa.concat_tables(tables.values()) if tables else pa.table({"page": [], "line": []})
        if not whole.num_rows:
            return [(0, 0)]
        has = pc.match_substring(whole.column("line"), word)
        by_page = whole.append_column("has", has).group_by("page").aggregate([("has", "sum")])
        return [(pc.sum(by_page.column("has_sum")).as_py() or 0, whole.num_rows)]

    return count


def localities(session: SparkSession, system: System) -> Iterator[str]:
    """What Spark says of the tasks of one more question."""
    context = session.sparkContext
    context.setJobGroup("localities", "localities")
    system.ask(range(MOST), Selection(), counting("the"))
    time.sleep(1.0)
    found = internals.facts(context, "localities")
    levels = sorted({fact.locality for fact in found})
    remote = sum(fact.shuffle_remote for fact in found)
    tasks = f"{len(found)} tasks, {', '.join(levels)}"
    yield f"{system.name}, as Spark tells: {tasks}; {remote} bytes shuffled from afar"
