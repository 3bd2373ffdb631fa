"""What a program runs on beside its own machine: a cluster of Spark, a storage of objects."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from muntin.spark.cluster import Cluster, Plan
from muntin.store import objects
from muntin.store.objects import ObjectStorage
from tests.faults.processes import descendants, words_of
from tests.ports import free_port
from tests.store.s3 import KEYS, Proxy, make_bucket, server

_WORKERS = 2
_BUCKET = "faults"


class Grid:
    """A standalone cluster on loopback, within the block."""

    def __init__(self, folder: Path) -> None:
        self._cluster = Cluster(folder)
        self._plan = Plan(_WORKERS, port=free_port())
        self.master = self._plan.master

    def __enter__(self) -> Grid:
        self.up()
        return self

    def __exit__(self, *_: object) -> None:
        self._cluster.down()

    def up(self) -> None:
        """Starts what has ended."""
        self._cluster.up(self._plan)

    def daemons(self) -> dict[str, int]:
        """The processes of the master and the workers."""
        up = json.loads((self._cluster.folder / "cluster.json").read_text())
        return {name: each["pid"] for name, each in up["processes"].items()}

    def families(self) -> dict[int, str]:
        """The command lines of the processes below executors."""
        return {pid: words_of(pid) for each in self.executors() for pid in descendants(each)}

    def executors(self) -> list[int]:
        workers = (pid for name, pid in self.daemons().items() if name != "master")
        return [
            pid
            for worker in workers
            for pid in descendants(worker)
            if "CoarseGrainedExecutorBackend" in words_of(pid)
        ]


class Bucket:
    """A storage that speaks S3, and a proxy that hurts requests; `env` is for who uses it."""

    def __init__(self, port: int, proxy: Proxy) -> None:
        self._proxy = proxy
        self.url = f"s3://{_BUCKET}/state"
        self.env = {**KEYS, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{proxy.port}"}
        self.own_env = {**KEYS, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"}

    def hurt(self, seed: float, share: float, how: int | float | str) -> None:
        """From now on this share of requests fares so, as `Proxy.fault` has it."""
        chance = random.Random(seed)
        self._proxy.fault = lambda *_: how if chance.random() < share else None

    def heal(self) -> None:
        self._proxy.fault = lambda *_: None

    def keep(self, folder: Path) -> None:
        """Copies all of it to a folder."""
        storage = ObjectStorage.at(self.url)
        for name in storage.sizes(""):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(storage.read(name))


@contextmanager
def bucket() -> Iterator[Bucket]:
    """One that this process sees as it is, and others through the proxy."""
    with server() as port:
        make_bucket(port, _BUCKET)
        proxy = Proxy(port)
        made = Bucket(port, proxy)
        with patch.dict(os.environ, made.own_env):
            objects._opened.cache_clear()
            yield made
        objects._opened.cache_clear()
        proxy.close()
