"""Runs the experiments and prints their tables.

python -m benchmarks.experiments [goodput words clicks blocks overhead balance] [--quick]
                                 [--pictures docs/experiments]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.experiments import balance, blocks, clicks, goodput, overhead, words

Run = Callable[[Path, Path | None, bool], Iterator[str]]
EXPERIMENTS: dict[str, Run] = {
    "goodput": goodput.run,
    "words": words.run,
    "clicks": clicks.run,
    "blocks": blocks.run,
    "overhead": overhead.run,
    "balance": balance.run,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="experiment", help=", ".join(EXPERIMENTS))
    parser.add_argument("--quick", action="store_true", help="less of everything")
    parser.add_argument("--pictures", type=Path, help="the folder to draw plots into")
    given = parser.parse_args()
    unknown = [name for name in given.names if name not in EXPERIMENTS]
    if unknown:
        parser.error(f"no experiment '{unknown[0]}'; there are {', '.join(EXPERIMENTS)}")
    for name in given.names or EXPERIMENTS:
        started = time.perf_counter()
        print(f"\n## {name}\n")
        with tempfile.TemporaryDirectory(prefix="muntin-experiment-") as folder:
            for line in EXPERIMENTS[name](Path(folder), given.pictures, given.quick):
                print(line)
        print(f"\n{time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
