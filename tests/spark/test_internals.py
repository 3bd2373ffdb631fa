"""PySpark's internals, one test each: a new version of PySpark that changes one fails here."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn

import pytest
from pyspark.accumulators import _accumulatorRegistry
from pyspark.errors import PythonException
from pyspark.sql import SparkSession

from muntin.spark import internals
from tests.waiting import wait_for

# A context of its own, in a process of its own: all that starts and ends one.
LIFE = """
from pathlib import Path
import sys, tempfile, threading
from muntin.spark import internals
from muntin.spark.gateway import Jvm
from pyspark import SparkConf, SparkContext

for _ in range(2):
    jvm = Jvm("local[1]")
    conf = SparkConf().setAll(list(jvm.settings.items()))
    context = SparkContext(conf=conf, gateway=jvm.connect(lambda: False))
    assert internals.active_context() is context
    assert context.getConf().get("spark.ui.enabled") == "false"
    before = threading.active_count()
    internals.hear_no_more(context)
    assert threading.active_count() < before
    jvm.end()
    internals.forget_context()
    assert internals.active_context() is None
"""


def test_spark_home_has_scripts_and_jars() -> None:
    assert (internals.spark_home() / "bin" / "spark-submit").is_file()
    assert list((internals.spark_home() / "jars").glob("spark-core_*.jar"))


def test_connect_reads_a_port_and_a_secret_as_the_jvm_writes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = tmp_path / "connection"
    told.write_bytes(struct.pack("!i", 4321) + struct.pack("!i", 6) + b"secret")
    seen: dict[str, str] = {}
    monkeypatch.setattr(internals, "launch_gateway", lambda: seen.update(os.environ))
    internals.connect(told)
    assert (seen["PYSPARK_GATEWAY_PORT"], seen["PYSPARK_GATEWAY_SECRET"]) == ("4321", "secret")
    assert "PYSPARK_GATEWAY_PORT" not in os.environ


def test_a_context_is_known_unheard_and_forgotten() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIFE],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_active_context_is_the_one_of_the_session(spark: SparkSession) -> None:
    assert internals.active_context() is spark.sparkContext


def test_forget_accumulator_lets_its_value_go(spark: SparkSession) -> None:
    known = len(_accumulatorRegistry)
    heard = spark.sparkContext.accumulator(0)
    spark.sparkContext.parallelize([1, 2], 2).foreach(heard.add)
    assert (heard.value, len(_accumulatorRegistry)) == (3, known + 1)
    internals.forget_accumulator(heard)
    assert len(_accumulatorRegistry) == known


def test_write_shuffle_runs_the_tasks_before_a_shuffle_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    def mark(task: int, items: Iterable[tuple[int, str]]) -> Iterable[tuple[int, str]]:
        with (tmp_path / f"task-{task}").open("a") as file:
            file.write("ran\n")
        return items

    pairs = spark.sparkContext.parallelize([(n, f"v{n}") for n in range(4)], 2)
    moved = pairs.mapPartitionsWithIndex(mark).partitionBy(2, lambda key: key % 2)
    internals.write_shuffle(moved)
    ran = sorted(tmp_path.iterdir())
    assert [path.name for path in ran] == ["task-0", "task-1"]
    found = [sorted(part) for part in moved.glom().collect()]
    assert found == [[(0, "v0"), (2, "v2")], [(1, "v1"), (3, "v3")]]
    assert [path.read_text() for path in ran] == ["ran\n"] * 2


def test_write_shuffle_raises_what_a_task_raises(spark: SparkSession) -> None:
    def refuse(value: str) -> NoReturn:
        raise ValueError(f"{value} is refused")

    pairs = spark.sparkContext.parallelize([(0, "v")], 1).mapValues(refuse)
    with pytest.raises(PythonException, match="ValueError: v is refused"):
        internals.write_shuffle(pairs.partitionBy(1))


def test_compute_fills_what_is_persisted(spark: SparkSession, tmp_path: Path) -> None:
    def mark(item: int) -> int:
        (tmp_path / f"item-{item}").touch(exist_ok=False)
        return item

    kept = spark.sparkContext.parallelize([1, 2], 2).map(mark).persist()
    internals.compute(kept)
    assert len(list(tmp_path.iterdir())) == 2
    assert kept.collect() == [1, 2]
    kept.unpersist()


def test_serialized_like_lets_a_union_keep_its_partitions(spark: SparkSession) -> None:
    context = spark.sparkContext
    few = context.parallelize([(0, "a")]).partitionBy(2, _home)
    step = context.parallelize([(1, "b")]).partitionBy(2, _home).mapPartitions(list, True)
    both = context.union([step, internals.serialized_like(few, step)])
    assert both.getNumPartitions() == 2
    assert both.glom().map(sorted).collect() == [[(0, "a")], [(1, "b")]]


def _home(key: int) -> int:
    return key


def test_load_worker_imports_what_workers_run() -> None:
    check = (
        "import sys; from muntin.spark.internals import load_worker; load_worker();"
        "assert {'pyspark.worker', 'pyspark.daemon'} <= sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", check], check=True, cwd=Path(__file__).parents[2])


def test_serve_workers_tells_its_address_and_ends_with_its_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # addresses are short
    serve = "from muntin.spark.internals import serve_workers; serve_workers()"
    process = subprocess.Popen(
        [sys.executable, "-c", serve],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ
        | {
            "PYTHONPATH": str(Path(__file__).parents[2]),
            "PYTHON_UNIX_DOMAIN_ENABLED": "true",
            "PYTHON_WORKER_FACTORY_SOCK_DIR": ".",
            "PYTHON_WORKER_FACTORY_SECRET": "secret",
        },
    )
    assert process.stdin is not None
    assert process.stdout is not None
    (size,) = struct.unpack("!i", process.stdout.read(4))
    address = process.stdout.read(size).decode()
    with socket.socket(socket.AF_UNIX) as worker:
        worker.connect(address)
    process.stdin.close()
    process.wait(30)
    process.stdout.close()


def test_executors_of_a_cluster_are_counted(spark: SparkSession) -> None:
    assert internals.executors(spark.sparkContext) == 0  # all is in the driver


def test_who_has_done_a_task_is_known(spark: SparkSession) -> None:
    context = spark.sparkContext
    internals.compute(context.parallelize([1], 1))
    assert wait_for(lambda: internals.has_worked(context, "driver"))
