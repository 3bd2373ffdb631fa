"""Sizes of tasks and delays of jobs while the place of most rows moves; Figures 13 to 15.

Nine datasets: three that are spread as taxis are, three with a hot spot in one corner, three with
one in another. Spark-R fits ranges to each dataset, Stark-S keeps those of the first, and Stark-E
groups finer ranges by the newest three datasets. A question runs over three datasets at a time.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from statistics import mean

from matplotlib import pyplot as plt
from matplotlib.patches import Rectangle

from benchmarks.experiments.collections.cluster import cluster, slowed
from benchmarks.experiments.collections.data import trips, zones
from benchmarks.experiments.collections.questions import vowels
from benchmarks.experiments.collections.systems import Plain, Stark, System
from benchmarks.experiments.plots import save
from muntin.collections.homes import Executor
from muntin.collections.keys import ByRange, Selection
from muntin.spark.collections import internals

EXECUTORS = 2  # as many as there are cores, so that the largest task is what a job waits for
FINE = 32
PHASES = (("even", None), ("south-west", (0.1, 0.1)), ("north-east", (0.8, 0.9)))
AGAIN = 4


def run(pictures: Path | None, quick: bool) -> Iterator[str]:
    rows = 20_000 if quick else 60_000
    known = zones()
    sizes: dict[str, list[list[int]]] = {}
    busy: dict[str, list[float]] = {}
    delays: dict[str, list[tuple[float, float]]] = {}
    tasks: dict[str, list[tuple[float, float]]] = {}
    with cluster(EXECUTORS) as session:
        sample = trips(rows, 0, known).column("cell").combine_chunks()
        coarse = ByRange.fitted(sample, EXECUTORS).bounds
        fine = ByRange.fitted(sample, FINE).bounds
        systems: list[System] = [
            Plain(session, "cell", EXECUTORS, own_ranges=True),
            Stark(session, "Stark-S", "cell", EXECUTORS, coarse),
            Stark(session, "Stark-E", "cell", FINE, fine, elastic=True),
        ]
        for phase, (_, centre) in enumerate(PHASES):
            numbers = range(3 * phase, 3 * phase + 3)
            for number in numbers:
                table = trips(rows, number, known, centre)
                for system in systems:
                    system.add(number, table)
            for system in systems:
                sizes.setdefault(system.name, []).append(system.sizes(numbers))
                busy.setdefault(system.name, []).append(busiest(system, numbers))
                group = f"{system.name} {phase}"
                first = asked(system, numbers, rows)
                later = mean(asked(system, numbers, rows) for _ in range(AGAIN))
                session.sparkContext.setJobGroup(group, group)
                asked(system, numbers, rows)
                time.sleep(1.0)
                facts = internals.facts(session.sparkContext, group)
                session.sparkContext.setJobGroup("", "")
                delays.setdefault(system.name, []).append((1000 * first, 1000 * later))
                if phase == 1:
                    tasks[system.name] = [
                        (1000 * (f.seconds - f.shuffle_seconds), 1000 * f.shuffle_seconds)
                        for f in facts
                    ]
    size = f"Nine datasets of {table.nbytes / 1e6:.0f} MB, {EXECUTORS} executors"
    yield f"{size}; ms of the first question / of later ones; busiest executor by the mean"
    yield ""
    yield "| | " + " | ".join(f"{name}: delays | busiest / mean" for name, _ in PHASES) + " |"
    yield "|---" * (1 + 2 * len(PHASES)) + "|"
    for name, phases in delays.items():
        cells = []
        for phase, (first, later) in enumerate(phases):
            count = len(sizes[name][phase])
            cells.append(f"{first:.0f} / {later:.0f} | {busy[name][phase]:.2f}, {count} tasks")
        yield f"| {name} | " + " | ".join(cells) + " |"
    if pictures is not None:
        draw_sizes(pictures / "collections-skew-sizes.png", sizes)
        draw_delays(pictures / "collections-skew-delays.png", delays, tasks)


def busiest(system: System, numbers: range) -> float:
    """What the executor reads that reads most, by what each reads on average."""
    read: dict[Executor, int] = {}
    for home, size in zip(system.homes(numbers), system.sizes(numbers), strict=True):
        read[home] = read.get(home, 0) + size
    return max(read.values()) * EXECUTORS / sum(read.values())


def asked(system: System, numbers: range, rows: int) -> float:
    with slowed():
        began = time.perf_counter()
        answers = system.ask(numbers, Selection(), vowels)
        seconds = time.perf_counter() - began
    assert sum(answers) == len(numbers) * rows, (system.name, sum(answers))
    return seconds


def draw_sizes(path: Path, sizes: dict[str, list[list[int]]]) -> None:
    """A row for each three datasets, a cell for each task, darker the more it reads."""
    figure, axes = plt.subplots(1, len(sizes), figsize=(10.5, 2.4), layout="constrained")
    top = max(max(row) for rows in sizes.values() for row in rows)
    for each, (name, rows) in zip(axes, sizes.items(), strict=True):
        for y, row in enumerate(rows):
            for x, size in enumerate(row):
                shade = 1 - 0.9 * size / top
                box = Rectangle(
                    (x / len(row), y), 1 / len(row), 0.9, facecolor=str(shade), edgecolor="white"
                )
                each.add_patch(box)
        each.set(title=name, xlim=(0, 1), ylim=(len(rows), -0.1), xticks=[])
        each.set_yticks([y + 0.45 for y in range(len(rows))], [phase for phase, _ in PHASES])
    figure.suptitle(f"What each task reads; black is {top / 1e6:.1f} MB")
    save(figure, path)


def draw_delays(
    path: Path,
    delays: dict[str, list[tuple[float, float]]],
    tasks: dict[str, list[tuple[float, float]]],
) -> None:
    figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, 3.6), layout="constrained")
    colors = ("#1b6ca8", "#c8553d", "#3a7d44")
    for n, (name, phases) in enumerate(delays.items()):
        xs = [phase + 0.28 * (n - 1) for phase in range(len(phases))]
        left.bar([x - 0.065 for x in xs], [p[0] for p in phases], 0.12, color=colors[n], alpha=0.45)
        left.bar([x + 0.065 for x in xs], [p[1] for p in phases], 0.12, color=colors[n], label=name)
    left.set(title="jobs: first (light) and later ones", ylabel="delay, ms")
    left.set_xticks(range(len(PHASES)), [phase for phase, _ in PHASES])
    left.legend(fontsize=8)
    at = 0
    for n, (name, each) in enumerate(tasks.items()):
        xs = list(range(at, at + len(each)))
        right.bar(xs, [own for own, _ in each], color=colors[n], label=name)
        right.bar(xs, [s for _, s in each], bottom=[own for own, _ in each], color="#cccccc")
        at += len(each) + 1
    right.set(title="tasks, south-west (grey: waiting for a shuffle)", ylabel="ms", xticks=[])
    right.legend(fontsize=8)
    figure.suptitle("Delays while skew moves")
    save(figure, path)
