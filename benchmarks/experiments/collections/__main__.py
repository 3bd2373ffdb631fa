"""Runs the experiments on collections and prints their tables.

python -m benchmarks.experiments.collections
        [cogroup networks skew checkpoints rates volumes losses]
        [--quick] [--pictures docs/experiments] [--network 1gbit]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.experiments.collections import checkpoints, cogroup, losses, rates, skew
from benchmarks.experiments.collections.cluster import with_network

Run = Callable[[Path | None, bool], Iterator[str]]
EXPERIMENTS: dict[str, Run] = {
    "cogroup": cogroup.run,
    "networks": cogroup.networks,
    "skew": skew.run,
    "checkpoints": checkpoints.run,
    "rates": rates.run,
    "volumes": rates.volumes,
    "losses": losses.run,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="experiment", help=", ".join(EXPERIMENTS))
    parser.add_argument("--quick", action="store_true", help="less of everything")
    parser.add_argument("--pictures", type=Path, help="the folder to draw plots into")
    parser.add_argument("--network", help="what executors share, such as 1gbit; needs root")
    given = parser.parse_args()
    unknown = [name for name in given.names if name not in EXPERIMENTS]
    if unknown:
        parser.error(f"no experiment '{unknown[0]}'; there are {', '.join(EXPERIMENTS)}")
    names = given.names or list(EXPERIMENTS)
    if len(names) > 1:  # each has a JVM of its own
        options = [word for word in sys.argv[1:] if word not in EXPERIMENTS]
        for name in names:
            command = [sys.executable, "-m", "benchmarks.experiments.collections", name, *options]
            subprocess.run(command, check=True)
        return
    with_network(given.network)
    began = time.perf_counter()
    network = f", network of {given.network}" if given.network else ""
    print(f"\n## {names[0]}{network}\n", flush=True)
    for line in EXPERIMENTS[names[0]](given.pictures, given.quick):
        print(line, flush=True)
    print(f"\n{time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
