"""Response time of questions over random ranges of steps and places; Figures 19 and 20.

Questions arrive at a rate, whether or not earlier ones have been answered. Each is over a random
range of the last steps and a random square of the city. The rate that is held is the highest at
which the mean response time stays below 800 ms. Then volume rises and falls by step, at one rate.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from statistics import mean

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from benchmarks.experiments.collections.cluster import cluster, slowed
from benchmarks.experiments.collections.data import CITY, trips, zones
from benchmarks.experiments.collections.systems import Plain, Stark, System
from benchmarks.experiments.plots import Line, Panel, draw
from muntin.collections.keys import ByRange, Selection

EXECUTORS = 4
FINE = 32
HELD_BELOW = 0.8  # seconds
SIDE = 0.25  # of the square, where the city's is 1
VOLUMES = (1, 2, 4, 2)


def run(pictures: Path | None, quick: bool) -> Iterator[str]:
    rows, steps, seconds = (3_000, 4, 3.0) if quick else (40_000, 4, 4.0)
    rates = (1, 4) if quick else (1, 2, 4, 6, 8, 12, 16)
    volumes = VOLUMES[:3] if quick else VOLUMES
    known = zones()
    response: dict[str, Line] = {}
    by_volume: dict[str, Line] = {}
    with cluster(EXECUTORS) as session:
        yield f"{steps} steps of {rows:,} rows, {EXECUTORS} executors; ms a question, on average"
        yield ""
        yield "| questions a second | " + " | ".join(map(str, rates)) + " | held below 800 ms |"
        yield "|---" * (len(rates) + 2) + "|"
        for system in systems(session, rows, known):
            for number in range(steps):
                system.add(number, trips(rows, number, known))
            asked(system, random.Random(0), range(steps))  # warm
            xs: list[float] = []
            ys: list[float] = []
            for rate in rates:
                xs.append(rate)
                ys.append(1000 * at_rate(system, rate, seconds, range(steps)))
                if ys[-1] > 2000 * HELD_BELOW:
                    break
            system.drop()
            response[system.name] = Line(xs, ys)
            held = max((x for x, y in zip(xs, ys, strict=True) if y < 1000 * HELD_BELOW), default=0)
            cells = [f"{y:.0f}" for y in ys] + ["–"] * (len(rates) - len(ys))
            yield f"| {system.name} | " + " | ".join(cells) + f" | {held:g} |"
        yield ""
        yield "| volume of the step | " + " | ".join(map(str, volumes)) + " |"
        yield "|---" * (len(volumes) + 1) + "|"
        for system in systems(session, rows, known)[1:]:
            ys = []
            for number, volume in enumerate(volumes):
                system.add(number, trips(rows * volume // 2, number, known, (0.2, 0.2)))
                newest = range(max(0, number - 3), number + 1)
                ys.append(1000 * at_rate(system, 1 if quick else 4, seconds / 2, newest))
            system.drop()
            by_volume[system.name] = Line(list(range(1, len(volumes) + 1)), ys)
            yield f"| {system.name} | " + " | ".join(f"{y:.0f}" for y in ys) + " |"
    if pictures is not None:
        panels = [
            Panel("rate", "questions a second", "response, ms", response, top=2000),
            Panel("volume that rises and falls", "step", "response, ms", by_volume),
        ]
        draw(pictures / "collections-rates.png", "Response time", panels)


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


def asked(system: System, rng: random.Random, steps: Sequence[int]) -> None:
    lower, upper = sorted((rng.choice(steps), rng.choice(steps)))
    x, y = rng.uniform(0, 1 - SIDE), rng.uniform(0, 1 - SIDE)
    ranges = CITY.cover(x, y, x + SIDE, y + SIDE, most=4)
    system.ask(range(lower, upper + 1), Selection(ranges=tuple(ranges)), count)


def count(tables: dict[int, pa.Table]) -> list[int]:
    """Texts by cell, over all steps."""
    if not tables:
        return [0]
    whole = pa.concat_tables(tables.values())
    cells = pc.divide(whole.column("cell"), 1 << 16)
    grouped = pa.table({"cell": cells, "line": whole.column("line")}).group_by("cell")
    return [grouped.aggregate([("line", "count_distinct")]).num_rows]
