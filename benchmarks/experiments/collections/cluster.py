"""Executors on this machine, with a network between them that is as slow as is asked for.

`local-cluster` has all executors at one address, so all that moves between them goes over the
loopback device. With a rate, the program begins again in a network namespace of its own, whose
loopback device carries no more than that while questions are asked; Python workers talk to their
executor over Unix sockets, which no device slows down.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from muntin.spark.collections import internals
from muntin.spark.settings import SETTINGS, prepare_environment

_INSIDE = "MUNTIN_SLOW_NETWORK"
_OPTIONS = "MUNTIN_JVM_OPTIONS"  # of the driver and all executors


def with_network(rate: str | None) -> None:
    """Goes on where the network has this rate, such as `1gbit`; needs to be root."""
    if rate is None or os.environ.get(_INSIDE) == rate:
        return
    command = 'ip link set lo up && exec "$@"'
    os.environ[_INSIDE] = rate
    again = [sys.executable, "-m", "benchmarks.experiments.collections", *sys.argv[1:]]
    os.execvp("unshare", ["unshare", "-n", "sh", "-c", command, "sh", *again])


@contextmanager
def slowed(to: str | None = None) -> Iterator[None]:
    """Within the block the network has this rate, or else the one that was asked for, if any."""
    asked_for = os.environ.get(_INSIDE)
    rate = to or asked_for
    if rate is None or asked_for is None:
        yield
        return
    device = ["tc", "qdisc", "replace", "dev", "lo", "root"]
    subprocess.run([*device, "tbf", "rate", rate, "burst", "1mb", "latency", "200ms"], check=True)
    try:
        yield
    finally:
        subprocess.run(["tc", "qdisc", "del", "dev", "lo", "root"], check=True)


def sent() -> int:
    """Bytes that have gone over the loopback device so far."""
    for line in Path("/proc/net/dev").read_text().splitlines():
        name, _, counts = line.partition(":")
        if name.strip() == "lo":
            return int(counts.split()[0])
    return 0


@contextmanager
def cluster(executors: int, memory: str = "1024m") -> Iterator[SparkSession]:
    """A session on so many executors, of one core each."""
    with tempfile.TemporaryDirectory(prefix="muntin-collections-") as folder:
        os.environ |= {
            "SPARK_LOCAL_HOSTNAME": "localhost",
            "SPARK_WORKER_DIR": f"{folder}/work",
            "SPARK_LOCAL_DIRS": f"{folder}/local",
        }
        prepare_environment()
        options = os.environ.get(_OPTIONS, "")
        settings = SETTINGS | {
            "spark.master": f"local-cluster[{executors},1,{memory.removesuffix('m')}]",
            "spark.app.name": "collections",
            "spark.executor.memory": memory,
            "spark.locality.wait": "3s",
            "spark.scheduler.mode": "FAIR",
            # as in sessions that the product starts: an executor that is gone does not come back
            "spark.shuffle.io.maxRetries": "1",
            "spark.shuffle.io.retryWait": "200ms",
            "spark.driver.extraJavaOptions": f"-Xms256m {options}".strip(),
            "spark.executor.extraJavaOptions": options,
            "spark.executorEnv.PYTHONPATH": str(Path(__file__).parents[3]),  # what is asked is here
        }
        context = SparkContext(conf=SparkConf().setAll(list(settings.items())))
        context.setCheckpointDir(f"{folder}/written")
        session = SparkSession(context)
        try:
            while len(internals.executors(context)) < executors:
                time.sleep(0.1)
            yield session
        finally:
            session.stop()
