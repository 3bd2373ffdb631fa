"""How long it takes to cogroup one to six datasets, and what moves meanwhile; compare Figure 11.

Each question counts the rows of all datasets, cogrouped by page, whose text has a word. Every
answer is compared with that of Spark's own SQL over the same files.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import mean

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr

from benchmarks.experiments.collections.cluster import cluster, sent, slowed
from benchmarks.experiments.collections.data import WORDS, pages, requests
from benchmarks.experiments.collections.questions import Found, WithWord
from benchmarks.experiments.collections.systems import Plain, Stark, System, as_frame
from benchmarks.experiments.plots import Line, Panel, draw
from muntin.collections.keys import Selection
from muntin.spark.collections import internals

EXECUTORS = 4
MOST, FEWER = 6, 5


def run(pictures: Path | None, quick: bool) -> Iterator[str]:
    rows, questions = (20_000, 3) if quick else (200_000, 5)
    known = pages()
    with cluster(EXECUTORS, "2560m") as session:
        systems: list[System] = [
            Plain(session, "page", EXECUTORS, own_ranges=True),
            Plain(session, "page", EXECUTORS, own_ranges=False),
            Stark(session, "Stark-H", "page", EXECUTORS),
        ]
        expected = []
        for number in range(MOST):
            table = requests(rows, number, known)
            expected.append(by_word(as_frame(session, table)))
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
                    seconds, moved = measured(system, expected[:count], questions)
                taken[system.name].append(1000 * seconds)
                cells.append(f"{1000 * seconds:.0f} | {moved / 1e6:.1f}")
            yield f"| {count} | " + " | ".join(cells) + " |"
        yield ""
        for system in systems[1:]:
            yield localities(session, system)
    if pictures is not None:
        xs = list(range(1, MOST + 1))
        lines = {name: Line(xs, times) for name, times in taken.items()}
        panel = Panel("", "datasets", "delay, ms", lines)
        draw(pictures / "collections-cogroup.png", "Cogroup of some datasets", [panel])


def networks(pictures: Path | None, quick: bool) -> Iterator[str]:
    """The cogroup of five datasets over networks of several rates."""
    rows, questions = (20_000, 2) if quick else (200_000, 4)
    rates = (1000, 250) if quick else (4000, 2000, 1000, 500, 250)
    known = pages()
    with cluster(EXECUTORS, "2560m") as session:
        systems: list[System] = [
            Plain(session, "page", EXECUTORS, own_ranges=False),
            Stark(session, "Stark-H", "page", EXECUTORS),
        ]
        expected = []
        for number in range(FEWER):
            table = requests(rows, number, known)
            expected.append(by_word(as_frame(session, table)))
            for system in systems:
                system.add(number, table)
        yield f"{FEWER} datasets of {table.nbytes / 1e6:.0f} MB, mean of {questions}"
        yield ""
        yield "| Mbit/s of all executors together | " + " | ".join(map(str, rates)) + " |"
        yield "|---" * (1 + len(rates)) + "|"
        lines = {}
        for system in systems:
            taken = []
            for rate in rates:
                with slowed(f"{rate}mbit"):
                    seconds, _ = measured(system, expected, questions)
                taken.append(1000 * seconds)
            lines[system.name] = Line(rates, taken)
            yield f"| {system.name}, ms | " + " | ".join(f"{each:.0f}" for each in taken) + " |"
    if pictures is not None:
        panel = Panel("", "Mbit/s", "delay, ms", lines, is_logarithmic=True)
        title = "Cogroup of five datasets by network"
        draw(pictures / "collections-networks.png", title, [panel])


def by_word(frame: DataFrame) -> dict[str, Found]:
    """What Spark's SQL says of one dataset, for each word."""
    counts = [expr(f"count_if(contains(line, '{word}'))") for word in WORDS]
    (row,) = frame.select(*counts, expr("count(*)")).collect()
    return {word: Found(row[n], row[len(WORDS)]) for n, word in enumerate(WORDS)}


def measured(
    system: System, expected: Sequence[Mapping[str, Found]], questions: int
) -> tuple[float, float]:
    """Seconds, and bytes over the network, of one question on average; the first warms up."""
    rng = random.Random(len(expected))
    times, moved = [], []
    for n in range(questions + 1):
        word = rng.choice(WORDS)
        before, began = sent(), time.perf_counter()
        answers = system.ask(range(len(expected)), Selection(), WithWord(word))
        if n:
            times.append(time.perf_counter() - began)
            moved.append(float(sent() - before))
        assert Found.together(answers) == Found.together(each[word] for each in expected)
    return mean(times), mean(moved)


def localities(session: SparkSession, system: System) -> str:
    """What Spark says of the tasks of one more question."""
    context = session.sparkContext
    context.setJobGroup(system.name, system.name)
    system.ask(range(MOST), Selection(), WithWord("the"))
    context.setJobGroup("", "")
    time.sleep(1.0)
    found = internals.facts(context, system.name)
    levels = sorted({fact.locality for fact in found})
    slowest = max(fact.seconds for fact in found)
    return (
        f"{system.name}, as Spark tells of one more: {len(found)} tasks, {', '.join(levels)}, of "
        f"at most {1000 * slowest:.0f} ms"
    )
