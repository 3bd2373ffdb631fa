"""Storage nodes that write slower than the others, from the times of their block writes.

Each node's log is made into a histogram where it is written. A second step, over all histograms of
a window, compares every node with all others by the two-sample Kolmogorov-Smirnov test. The one
furthest apart is odd if chance allows its distance less than once in a thousand times; it is then
left out, so that it makes no other look odd, and the rest are compared again.

    python examples/python/hdfs_writes.py
"""

from __future__ import annotations

import random
import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from math import log2, sqrt
from pathlib import Path
from typing import Any

import muntin as mt

WROTE = re.compile(r"Received block (blk_-?\d+) .* in (\d+) ms")
CRITICAL = 1.95  # of the test at a level of 0.001
SLOW = "node-3"
Histogram = dict[int, int]


def bucket(milliseconds: float) -> int:
    """Buckets of a tenth of a doubling."""
    return round(10 * log2(max(1.0, milliseconds)))


def distance(a: Histogram, b: Histogram) -> float:
    """The largest difference of two cumulative distributions."""
    most, below_a, below_b = 0.0, 0, 0
    for each in sorted({*a, *b}):
        below_a += a.get(each, 0)
        below_b += b.get(each, 0)
        most = max(most, abs(below_a / sum(a.values()) - below_b / sum(b.values())))
    return most


def tested_against_others(node: str, histograms: dict[str, Histogram]) -> tuple[int, float, float]:
    """How many writes, how far from those of all others, and how far they may be."""
    mine = histograms[node]
    rest = sum((Counter(h) for name, h in histograms.items() if name != node), Counter[int]())
    n, m = sum(mine.values()), sum(rest.values())
    return n, distance(mine, rest), CRITICAL * sqrt((n + m) / (n * m))


class OddNodes(mt.MapReduce):
    window = "1 HOUR"
    columns = {"node": "VARCHAR", "writes": "BIGINT", "distance": "DOUBLE", "limit": "DOUBLE"}

    def steps(self) -> list[dict[str, Any]]:
        histograms = {"mapper": self.write, "combiner": self.add, "reducer": self.to_all}
        return [histograms, {"reducer": self.compare}]

    def write(self, _: None, record: dict[str, Any]) -> Iterator[tuple[str, Histogram]]:
        found = WROTE.search(record["message"] or "")
        if found:
            yield record["source"], {bucket(int(found[2])): 1}

    def add(self, node: str, parts: Iterable[Histogram]) -> Iterator[tuple[str, Histogram]]:
        yield node, dict(sum(map(Counter, parts), Counter()))

    def to_all(
        self, node: str, parts: Iterable[Histogram]
    ) -> Iterator[tuple[None, tuple[str, Histogram]]]:
        for _, histogram in self.add(node, parts):
            yield None, (node, histogram)

    def compare(
        self, _: None, nodes: Iterable[tuple[str, Histogram]]
    ) -> Iterator[tuple[str, tuple[int, float, float]]]:
        histograms = dict(nodes)
        while len(histograms) > 1:
            tested = {node: tested_against_others(node, histograms) for node in histograms}
            odd = max(sorted(tested), key=lambda node: tested[node][1] / tested[node][2])
            if tested[odd][1] <= tested[odd][2]:
                return
            yield odd, tested[odd]
            del histograms[odd]


def write_logs(folder: Path, nodes: int = 6, writes: int = 1500, seed: int = 1) -> None:
    """Three hours of writes. One node's disk becomes slow after the first hour."""
    random_ = random.Random(seed)
    start = datetime(2026, 3, 1, 12, tzinfo=UTC)
    for node in range(nodes):
        lines = []
        for at in sorted(random_.uniform(0, 3 * 3600) for _ in range(writes)):
            slow = 1.6 if f"node-{node}" == SLOW and at >= 3600 else 1.0
            took = round(slow * random_.lognormvariate(4.0, 0.6))
            time = (start + timedelta(seconds=at)).strftime("%Y-%m-%d %H:%M:%S")
            block = f"blk_{random_.randrange(10**12)}"
            lines.append(f"{time} INFO Receiving block {block}")
            lines.append(f"{time} INFO Received block {block} of size 67108864 in {took} ms")
        (folder / f"node-{node}.log").write_text("\n".join(lines) + "\n")


def program(folder: Path) -> mt.Program:
    stream = (
        f"CREATE STREAM hdfs FROM '{folder}/{{source}}.log' "
        r"FORMAT regex '(?P<time>\S+ \S+) (?P<level>\S+) (?P<message>.*)' "
        "TIMESTAMP CAST(time AS TIMESTAMP)"
    )
    return mt.with_job(mt.sql(stream), "odd", OddNodes, stream="hdfs")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        write_logs(Path(folder))
        for result in mt.run(program(Path(folder))):
            print(f"the hour that ends {datetime.fromtimestamp(result.end / 1e6, UTC)}")
            print(result.to_pandas().to_string(index=False))


if __name__ == "__main__":
    main()
