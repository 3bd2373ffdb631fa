"""Histograms of how long storage nodes take to write blocks (Figure 12).

Thirty nodes write blocks for 48 hours: more by day than by night, and slower in hours in which the
node has much to do. One window holds it all, in panes of an hour. Each node's histogram is compared
with the one made of all its writes, by the two-sample Kolmogorov-Smirnov test at a level of 0.05.
A node that is not in the result has no histogram, and so none that misleads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from math import sqrt
from pathlib import Path

import numpy as np

import muntin as mt
from benchmarks.experiments.playback import (
    PATIENCE,
    START,
    Piece,
    busy_ticks,
    declared,
    names,
    play,
    sent_at,
)
from benchmarks.experiments.plots import Panel, draw
from benchmarks.experiments.policies import FEW, SHARES, Answers, jobs_sql, lines, table

HOUR = 3600.0
CRITICAL = 1.358  # of the test at a level of 0.05
LINE = "{time} INFO Received block blk_{block} of size 67108864 in {took} ms"
Histogram = dict[int, int]


@dataclass(frozen=True)
class Setting:
    servers: int = 30
    hours: int = 48
    writes: int = 200  # of a node in an hour, on average
    shares: Sequence[int] = SHARES


def write(setting: Setting, seed: int = 1) -> Iterator[Piece]:
    """The hours of every node, as it sends them."""
    random = np.random.default_rng(seed)
    ends = [START + HOUR * (n + 1) for n in range(setting.hours)]
    for name in names(setting.servers):
        slowness = random.uniform(0.05, 0.5)
        for hour, at in enumerate(sent_at(random, ends, HOUR * slowness)):
            load = 1 + 0.6 * np.sin(2 * np.pi * hour / 24)
            count = 1 + random.poisson(setting.writes * load)
            times = np.sort(random.uniform(ends[hour] - HOUR, ends[hour], count))
            middle = 3.5 + 0.4 * load + random.normal(0, 0.25)  # what else the node has to do
            took = np.exp(random.normal(middle, 0.6, count))
            yield Piece(at, name, _text(random, times.tolist(), took.tolist(), ends[hour]))


def _text(
    random: np.random.Generator, times: Sequence[float], took: Sequence[float], end: float
) -> str:
    blocks = random.integers(10**12, size=len(times)).tolist()
    rows = [
        LINE.format(time=_written(time), block=block, took=round(ms))
        for time, block, ms in zip(times, blocks, took, strict=True)
    ]
    return "\n".join([*rows, f"{_written(end)} INFO Log rolled\n"])


def _written(time: float) -> str:
    return datetime.fromtimestamp(int(time), UTC).strftime("%Y-%m-%d %H:%M:%S")


def program(folder: Path, setting: Setting) -> mt.Program:
    took = r"TRY_CAST(regexp_extract(message, 'Received block .* in (\d+) ms', 1) AS DOUBLE)"
    select = (
        f"SELECT source, histogram(round(10 * log2(greatest(1, {took})))::INTEGER) AS took "
        "FROM hdfs WHERE message LIKE 'Received block%' GROUP BY source"
    )
    return mt.sql(
        "CREATE STREAM hdfs (time VARCHAR, level VARCHAR, message VARCHAR) "
        f"FROM '{folder}/{{source}}.log' "
        r"FORMAT regex '(?P<time>\S+ \S+) (?P<level>\S+) (?P<message>.*)' "
        f"TIMESTAMP CAST(time AS TIMESTAMP) {declared(setting.servers)};"
        + jobs_sql(select, f"{setting.hours} HOURS PANE 1 HOUR", setting.shares)
    )


def measure(folder: Path, setting: Setting) -> Answers:
    pieces = list(write(setting))
    end = START + setting.hours * HOUR  # from here on every node that has sent its last hour counts
    clock = sorted({*busy_ticks(pieces, HOUR / 4), *(p.at for p in pieces if p.at > end)})
    return Answers.of(play(program(folder, setting), folder, pieces, clock, PATIENCE))


def failures(some: mt.Result, whole: mt.Result) -> Iterator[float]:
    """Of each node in the result, 1 if its histogram differs from the true one, else 0."""
    mine, true = _histograms(some), _histograms(whole)
    return (float(differs(histogram, true[node])) for node, histogram in mine.items())


def differs(a: Histogram, b: Histogram) -> bool:
    """Whether two samples are of different distributions, by the test of Kolmogorov and Smirnov."""
    values = sorted({*a, *b})
    both = np.array([[h.get(value, 0) for value in values] for h in (a, b)])
    n, m = both.sum(axis=1)
    below = both.cumsum(axis=1) / [[n], [m]]
    return bool(np.abs(below[0] - below[1]).max() > CRITICAL * sqrt((n + m) / (n * m)))


def _histograms(result: mt.Result) -> dict[str, Histogram]:
    return {row["source"]: dict(row["took"]) for row in result.rows.to_pylist()}


def missing(some: mt.Result, whole: mt.Result) -> Iterator[float]:
    """The share of nodes without a histogram."""
    yield 1 - some.rows.num_rows / whole.rows.num_rows


def run(folder: Path, pictures: Path | None, quick: bool) -> Iterator[str]:
    """Runs the experiment, draws it if asked, and tells of it in Markdown."""
    setting = Setting(servers=6, shares=FEW) if quick else Setting()
    found = measure(folder, setting)
    failed = lines(setting.shares, partial(found.line, error=failures))
    latency = lines(setting.shares, found.latency)
    yield from table("share of histograms that fail", failed, "{:.2f}")
    yield from table(
        "share of nodes without one",
        lines(setting.shares, partial(found.line, error=missing)),
        "{:.2f}",
    )
    yield from table(
        "latency, hours", {p: line.scaled(1 / HOUR) for p, line in latency.items()}, "{:.1f}"
    )
    yield from table("C²", lines(setting.shares, found.area), "{:.3f}")
    if pictures is not None:
        x = "fidelity asked for, %"
        draw(
            pictures / "blocks.png",
            "Histograms of 30 storage nodes (compare Figure 12)",
            [
                Panel(
                    "(a) Kolmogorov-Smirnov test",
                    x,
                    "histograms that fail, %",
                    {p: line.scaled(100) for p, line in failed.items()},
                    105,
                ),
                Panel(
                    "(b) latency",
                    x,
                    "hours from the window's start",
                    {p: line.scaled(1 / HOUR) for p, line in latency.items()},
                ),
            ],
        )
