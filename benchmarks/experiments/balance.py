"""How evenly many jobs are spread over nodes, by the function that places key groups on Spark.

A job without keys is in one place, its root. Of 1,280 nodes, how many are the roots of how many
jobs? Jobs are called differently in every round, and the mean and the worst of all are told.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from statistics import mean

from muntin.kernel.merge import place

NODES = 1280
FEWER = {500: (3, 0.995), 1000: (5, 0.995), 2000: (5, 0.95)}  # roots, and of how many nodes
ROUNDS = 50


def shares(jobs: int, rounds: int) -> list[list[float]]:
    """In each round, the share of nodes with fewer than 1, 2, 3 ... roots."""
    told = []
    for number in range(rounds):
        names = (f"job {each} of round {number}" for each in range(jobs))
        shapes = (sha256(name.encode()).hexdigest()[:16] for name in names)
        roots = Counter(place(shape, 0, NODES) for shape in shapes)
        held = Counter(roots[node] for node in range(NODES))
        told.append([sum(held[n] for n in range(most)) / NODES for most in range(1, 9)])
    return told


def run(folder: Path, pictures: Path | None, quick: bool) -> Iterator[str]:
    """A table of quantiles; there is nothing to draw or to write."""
    rounds = 5 if quick else ROUNDS
    yield "| jobs | " + " | ".join(f"< {most}" for most in range(1, 9)) + " | published |"
    yield "|---" * 10 + "|"
    for jobs, (most, share) in FEWER.items():
        every = shares(jobs, rounds)
        means = [mean(each[i] for each in every) for i in range(8)]
        cells = " | ".join(f"{100 * each:.1f} %" for each in means)
        yield f"| {jobs:,} | {cells} | {100 * share:.1f} % have < {most} |"
        worst = min(each[most - 1] for each in every)
        yield f"|  | in the worst of {rounds}: {100 * worst:.1f} % have < {most} |" + " |" * 8
