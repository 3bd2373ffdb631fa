"""Word count in Python: mrjob's inline runner against Muntin in this process, on the same file.

The class that mrjob runs is run by Muntin as it is, and once more with `map_batches`. All three
must count the same. CPU seconds are beside wall seconds: on a shared machine they tell more.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from muntin.language.program import sql, with_job
from muntin.run.inline import windows_inline

Counts = dict[str, int]
WORDS_IN_A_LINE = 10
TARGETS = {"Muntin, plain methods": 1.0, "Muntin, map_batches": 10.0}


class BatchWords:
    """Splits a whole batch at once and lets SQL add up."""

    combine = "sum"

    def map_batches(self, batch: pa.Table) -> pa.Table:
        lines = pc.utf8_lower(batch["line"].combine_chunks())
        words = pc.list_flatten(pc.split_pattern(lines, " "))
        return pa.table({"key": words, "value": pa.repeat(1, len(words))})


@dataclass(frozen=True)
class Timed:
    counts: Counts
    seconds: float
    cpu_seconds: float


def write_text(path: Path, megabytes: float, vocabulary: int = 20_000, seed: int = 7) -> None:
    """Lines of words, few of them often and most of them seldom."""
    random_ = random.Random(seed)
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["".join(random_.choices(letters, k=random_.randint(2, 9))) for _ in range(vocabulary)]
    weights = [1 / (rank + 1) for rank in range(vocabulary)]
    size = 0
    with path.open("w", encoding="utf-8") as file:
        while size < megabytes * 1e6:
            chosen = random_.choices(words, weights, k=1000 * WORDS_IN_A_LINE)
            rows = [chosen[i::1000] for i in range(1000)]
            size += file.write("".join(" ".join(row) + "\n" for row in rows))


def by_mrjob(job: Any, path: Path) -> Counts:
    running = job(args=["-r", "inline", "--no-conf", str(path)])
    with running.make_runner() as runner:
        runner.run()
        return dict(running.parse_output(runner.cat_output()))


def by_muntin(job: type, path: Path) -> Counts:
    stream = f"CREATE STREAM text FROM '{path}' FORMAT text TIMESTAMP 0"
    program = with_job(sql(stream), "words", job, stream="text", window="1 DAY")
    (windows,) = windows_inline(program)
    return dict(_pairs(windows.table().to_pylist()))


def _pairs(rows: list[dict[str, Any]]) -> Iterator[tuple[str, int]]:
    for row in rows:
        is_json = isinstance(row["value"], str)
        yield (json.loads(row["key"]), int(row["value"])) if is_json else (row["key"], row["value"])


def timed(run: Callable[[], Counts]) -> Timed:
    started, cpu = time.perf_counter(), time.process_time()
    counts = run()
    return Timed(counts, time.perf_counter() - started, time.process_time() - cpu)


def contest(path: Path) -> dict[str, Timed]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # mrjob imports `pipes`
        from benchmarks.mrjob_words import Words
    return {
        "mrjob, inline": timed(lambda: by_mrjob(Words, path)),
        "Muntin, plain methods": timed(lambda: by_muntin(Words, path)),
        "Muntin, map_batches": timed(lambda: by_muntin(BatchWords, path)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--megabytes", type=float, default=20.0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "words.txt"
        write_text(path, given.megabytes)
        found = contest(path)
    first, *others = found.items()
    print(f"{first[0]:24} {first[1].seconds:7.2f} s {first[1].cpu_seconds:7.2f} s of CPU")
    for name, entry in others:
        if entry.counts != first[1].counts:
            raise SystemExit(f"{name} counts otherwise than {first[0]}")
        wall = first[1].seconds / entry.seconds
        cpu = first[1].cpu_seconds / entry.cpu_seconds
        print(
            f"{name:24} {entry.seconds:7.2f} s {entry.cpu_seconds:7.2f} s of CPU: "
            f"{wall:.1f}x, by CPU {cpu:.1f}x; target {TARGETS[name]:.0f}x"
        )


if __name__ == "__main__":
    main()
