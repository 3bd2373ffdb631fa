"""Response time of questions over random ranges of steps and places; Figures 19 and 20.

Questions arrive at a rate, whether or not earlier ones have been answered. Each counts trips by
district, over a random range of the last steps and a random square of the city. The rate that is
held is the highest at which the mean response time stays below 800 ms. `volumes` has the volume
rise and fall by step, at one rate. Before that, some answers of each system are compared with those
of Spark's own SQL over the same files.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from statistics import mean

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, expr

from benchmarks.experiments.collections.cluster import cluster, slowed
from benchmarks.experiments.collections.data import CITY, trips, zones
from benchmarks.experiments.collections.questions import DISTRICT, by_district, summed
from benchmarks.experiments.collections.systems import Plain, Stark, System, as_frame
from benchmarks.experiments.plots import Line, Panel, draw
from muntin.collections.keys import ByRange, Selection

EXECUTORS = 4
FINE = 64
HELD_BELOW = 0.8  # seconds
SIDE = 0.25  # of the square, where the city's is 1
VOLUMES = (1, 2, 4, 2)
TIME = 240.0  # seconds, after which no step begins any more


def run(pictures: Path | None, quick: bool) -> Iterator[str]:
    rows, steps, seconds = (3_000, 4, 3.0) if quick else (400_000, 4, 3.0)
    rates = (1, 4) if quick else (1, 2, 3, 4, 6, 8, 12, 16, 20, 24)
    known = zones()
    response: dict[str, Line] = {}
    with cluster(EXECUTORS, "2048m") as session:
        tables = [trips(rows, number, known) for number in range(steps)]
        frames = [as_frame(session, table) for table in tables]
        size = f"{steps} steps of {rows:,} rows, {tables[0].nbytes / 1e6:.0f} MB each"
        yield f"{size}, {EXECUTORS} executors; ms a question, on average"
        yield ""
        yield "| questions a second | " + " | ".join(map(str, rates)) + " | held below 800 ms |"
        yield "|---" * (len(rates) + 2) + "|"
        for system in systems(session, rows, known):
            for number in range(steps):
                system.add(number, tables[number])
            for seed in range(4):
                compared(system, frames, seed)
            xs: list[float] = []
            ys: list[float] = []
            for rate in rates:
                xs.append(rate)
                ys.append(1000 * at_rate(system, rate, seconds, range(steps)))
                if ys[-1] > 1000 * HELD_BELOW:
                    break
            system.drop()
            response[system.name] = Line(xs, ys)
            held = max((x for x, y in zip(xs, ys, strict=True) if y < 1000 * HELD_BELOW), default=0)
            cells = [f"{y:.0f}" for y in ys] + ["–"] * (len(rates) - len(ys))
            yield f"| {system.name} | " + " | ".join(cells) + f" | {held:g} |"
    if pictures is not None:
        panel = Panel("", "questions a second", "response, ms", response, top=1600)
        draw(pictures / "collections-rates.png", "Response time against rate", [panel])


def volumes(pictures: Path | None, quick: bool) -> Iterator[str]:
    """All systems take each step in turn, so that every one has figures of the same moments."""
    rows, seconds = (3_000, 2.0) if quick else (60_000, 5.0)
    rate = 1 if quick else 2
    known = zones()
    began = time.perf_counter()
    with cluster(EXECUTORS, "2048m") as session:
        compared_ = systems(session, rows, known)[1:]
        yield f"{rate} questions a second, steps of {rows:,} rows times the volume; ms, on average"
        yield ""
        yield "| step | volume | " + " | ".join(system.name for system in compared_) + " |"
        yield "|---" * (len(compared_) + 2) + "|"
        xs: list[float] = []
        ys: dict[str, list[float]] = {system.name: [] for system in compared_}
        for number, volume in enumerate(VOLUMES[:3] if quick else VOLUMES):
            if time.perf_counter() - began > TIME:
                yield f"no time was left for step {number + 1} and later ones"
                break
            table = trips(rows * volume, number, known, (0.2, 0.2))
            xs.append(number + 1)
            for system in compared_:
                system.add(number, table)
                asked(system, random.Random(0), range(number + 1))  # warm
                ys[system.name].append(1000 * at_rate(system, rate, seconds, range(number + 1)))
            told = " | ".join(f"{ys[system.name][-1]:.0f}" for system in compared_)
            yield f"| {number + 1} | {volume} | {told} |"
    if pictures is not None:
        response = {name: Line(xs, each) for name, each in ys.items()}
        panel = Panel("", "step", "response, ms", response)
        title = "Response time while volume rises and falls"
        draw(pictures / "collections-volumes.png", title, [panel])


def systems(session: SparkSession, rows: int, known: list[int]) -> list[System]:
    sample = trips(rows, 0, known).column("cell").combine_chunks()
    fine = ByRange.fitted(sample, FINE).bounds
    return [
        Plain(session, "cell", EXECUTORS, own_ranges=True),
        Plain(session, "cell", EXECUTORS, own_ranges=False),
        Stark(session, "Stark-H", "cell", EXECUTORS),
        Stark(session, "Stark-E", "cell", FINE, fine, elastic=True),
    ]


def at_rate(system: System, rate: float, seconds: float, steps: Sequence[int]) -> float:
    """The mean response time, from when a question was due to its answer."""
    rng = random.Random(rate)
    with slowed(), ThreadPoolExecutor(64) as threads:
        began = time.perf_counter()
        waiting: list[Future[float]] = []
        for n in range(max(2, int(rate * seconds))):
            due = began + n / rate
            time.sleep(max(0.0, due - time.perf_counter()))
            seed = random.Random(rng.random())
            waiting.append(threads.submit(_since, due, system, seed, steps))
        return mean(each.result() for each in waiting)


def _since(due: float, system: System, rng: random.Random, steps: Sequence[int]) -> float:
    asked(system, rng, steps)
    return time.perf_counter() - due


def asked(system: System, rng: random.Random, steps: Sequence[int]) -> dict[int, int]:
    numbers, selection = drawn(rng, steps)
    return summed(system.ask(numbers, selection, by_district))


def drawn(rng: random.Random, steps: Sequence[int]) -> tuple[range, Selection]:
    """Which steps and places a question is about."""
    lower, upper = sorted((rng.choice(steps), rng.choice(steps)))
    x, y = rng.uniform(0, 1 - SIDE), rng.uniform(0, 1 - SIDE)
    ranges = CITY.cover(x, y, x + SIDE, y + SIDE, most=4)
    return range(lower, upper + 1), Selection(ranges=tuple(ranges))


def compared(system: System, frames: Sequence[DataFrame], seed: int) -> None:
    """Asks one question, and has Spark's SQL answer it as well."""
    steps = range(len(frames))
    numbers, selection = drawn(random.Random(seed), steps)
    rows = frames[numbers[0]]
    for number in numbers[1:]:
        rows = rows.union(frames[number])
    inside = " OR ".join(f"cell >= {a} AND cell < {b}" for a, b in selection.ranges or ())
    counted = rows.where(expr(inside)).groupBy(expr(f"cell div {DISTRICT}").alias("district"))
    expected = {
        row.district: row["count"] for row in counted.count().orderBy(col("district")).collect()
    }
    found = asked(system, random.Random(seed), steps)
    assert found == expected, (system.name, numbers, len(found), len(expected))
