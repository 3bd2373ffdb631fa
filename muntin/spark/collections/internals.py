"""What collections need of Spark beyond PySpark: placing tasks, choosing partitions, writing.

All of it is reached through the JVM, by classes and methods that Spark has for its own use. Packs
are bytes, and RDDs of packs live in the JVM: no Python runs to place, copy, keep or write them.
`tests/spark/collections/test_internals.py` has a test for each, so that another Spark fails there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from threading import Lock
from typing import Any, TypeAlias, TypeVar

from pyspark import RDD, SparkContext, StorageLevel
from pyspark.serializers import NoOpSerializer
from pyspark.sql import DataFrame, SparkSession

from muntin.collections.homes import Executor

Packs: TypeAlias = Any  # a Java RDD of bytes
T = TypeVar("T")

MEMORY = StorageLevel(True, True, False, True)  # as objects, and on disk where memory is full
DISK = StorageLevel.DISK_ONLY

_JAVA_RDD = "org.apache.spark.api.java.JavaRDD"
_one_folder = Lock()  # a context has one folder for checkpoints, and collections have their own


@dataclass(frozen=True)
class TaskFact:
    """What Spark has measured of one task."""

    executor: str
    locality: str
    seconds: float
    gc_seconds: float
    input_bytes: int  # out of memory, disk or from another executor
    shuffle_local: int
    shuffle_remote: int
    shuffle_seconds: float


def executors(context: SparkContext) -> list[Executor]:
    """Those that run and can hold blocks, in order; the driver where tasks run in it."""
    known = _listed(context, _scala(context).statusStore().executorList(True))
    at = {each.id(): (each.hostPort() or "").rpartition(":")[0] for each in known}
    # The host of one that has just come is not known before it has room for blocks.
    found = [Executor(host, number) for number, host in at.items() if host]
    outside = [each for each in found if each.id != "driver"]
    return sorted(outside or found)


def packs_of(rdd: RDD[bytes]) -> Packs:
    """An RDD of bytes as Java has it: one array an element, nothing pickled."""
    return rdd._reserialize(NoOpSerializer())._jrdd


def packs_of_frame(frame: DataFrame) -> Packs:
    """A frame of one column of bytes as an RDD of these."""
    assert frame.sparkSession.sparkContext._jvm is not None
    binary = frame.sparkSession.sparkContext._jvm.org.apache.spark.sql.Encoders.BINARY()
    return getattr(frame._jdf, "as")(binary).toJavaRDD()


def as_rdd(context: SparkContext, packs: Packs) -> RDD[bytes]:
    return RDD(packs, context, NoOpSerializer())


def as_frame(session: SparkSession, packs: Packs) -> DataFrame:
    """A frame with one column of bytes."""
    jvm = session.sparkContext._jvm
    assert jvm is not None
    binary = jvm.org.apache.spark.sql.Encoders.BINARY()
    return DataFrame(session._jsparkSession.createDataset(packs.rdd(), binary).toDF(), session)


def persist(context: SparkContext, packs: Packs, level: StorageLevel) -> Packs:
    return packs.persist(context._getJavaStorageLevel(level))


def restored(context: SparkContext, path: str) -> Packs:
    """Packs that were written to a folder."""
    return context._jsc.checkpointFile(path)


def only(context: SparkContext, packs: Packs, partitions: Iterable[int]) -> Packs:
    """Some partitions of an RDD, in their order, by a narrow dependency.

    Spark wants a function that says which; a set of Scala is one, and can be sent. It is made of
    one array of bits: a list would go to Java number by number.
    """
    bits = bytearray()
    for partition in partitions:
        bits.extend(bytes(max(0, partition // 8 + 1 - len(bits))))
        bits[partition // 8] |= 1 << partition % 8
    longs = _class(context, "java.util.BitSet").valueOf(bits).toLongArray()
    chosen = _class(context, "scala.collection.immutable.BitSet$.MODULE$").fromBitMaskNoCopy(longs)
    pruning = _class(context, "org.apache.spark.rdd.PartitionPruningRDD")
    return _class(context, _JAVA_RDD)(pruning.create(packs.rdd(), chosen), _bytes(_jvm(context)))


def union(context: SparkContext, several: Sequence[Packs]) -> Packs:
    """All partitions of all of these, one after another."""
    if len(several) == 1:
        return several[0]
    tag = _bytes(_jvm(context))
    rdds = _sequence(context, [each.rdd() for each in several])
    return _class(context, _JAVA_RDD)(_scala(context).union(rdds, tag), tag)


def home(context: SparkContext, executor: Executor) -> Packs:
    """An RDD of one element, whose task Spark prefers to run in an executor."""
    return _homes(context, [executor])


def _homes(context: SparkContext, executors: Iterable[Executor]) -> Packs:
    jvm = _jvm(context)
    places = (_sequence(context, [f"executor_{each.host}_{each.id}"]) for each in executors)
    anchored = [jvm.scala.Tuple2(bytearray(b"home"), place) for place in places]
    tag = _bytes(jvm)
    made = _scala(context).makeRDD(_sequence(context, anchored), tag)
    return jvm.org.apache.spark.api.java.JavaRDD(made, tag)


def at(place: Packs, packs: Packs) -> Packs:
    """All packs in one task, which prefers the executor of a home.

    A product with one element changes nothing, and comes where its first factor prefers to be.
    Coalescing alone would tell the scheduler of hosts, and not of executors.
    """
    return place.cartesian(packs.coalesce(1)).values()


def each_at(executors: Sequence[Executor], rdd: RDD[T]) -> RDD[T]:
    """An RDD of one element a partition, each of which prefers an executor.

    What is zipped comes where either factor prefers to be.
    """
    placed = _homes(rdd.context, executors).zip(rdd._jrdd).values()
    return RDD(placed, rdd.context, rdd._jrdd_deserializer)


def write(context: SparkContext, packs: Packs, folder: str | None) -> str:
    """Writes packs below a folder, and cuts their lineage there; returns where.

    Without a folder they go to the one for all checkpoints. Spark itself does so only before packs
    are computed for the first time.
    """
    jvm, rdd, scala = _jvm(context), packs.rdd(), _scala(context)
    with _one_folder:
        usual = scala.getCheckpointDir()
        if folder is not None:
            getattr(scala, "checkpointDir_$eq")(jvm.scala.Some(folder))
        try:
            data = jvm.org.apache.spark.rdd.ReliableRDDCheckpointData(rdd, packs.classTag())
        finally:
            getattr(scala, "checkpointDir_$eq")(usual)
    getattr(rdd, "checkpointData_$eq")(jvm.scala.Some(data))
    data.checkpoint()
    return str(rdd.getCheckpointFile().get())


def erase(context: SparkContext, path: str) -> None:
    """Removes what was written there, if it is still there."""
    place = _jvm(context).org.apache.hadoop.fs.Path(path)
    place.getFileSystem(_scala(context).hadoopConfiguration()).delete(place, True)


def has_folder(context: SparkContext) -> bool:
    """Whether checkpoints have a folder to go to."""
    return bool(_scala(context).getCheckpointDir().isDefined())


def ancestors(context: SparkContext, packs: Packs, known: Iterable[int]) -> set[int]:
    """Which of the known RDDs these are computed from, nearest ones only."""
    wanted, seen, found = set(known), set(), set()
    waiting = deque([packs.rdd()])
    while waiting:
        for dependency in _listed(context, waiting.popleft().dependencies()):
            rdd = dependency.rdd()
            number = rdd.id()
            if number in wanted:
                found.add(number)
            elif number not in seen:
                seen.add(number)
                waiting.append(rdd)
    return found


def holders(context: SparkContext, packs: Packs) -> dict[int, list[str]]:
    """By partition, the executors that hold it in memory or on disk, as far as Spark has heard."""
    jvm = _jvm(context)
    known = {each.id() for each in _scala(context).getRDDStorageInfo()}
    if packs.id() not in known:
        return {}
    blocks = _scala(context).statusStore().rdd(packs.id()).partitions()
    found: dict[int, list[str]] = {}
    if blocks.isDefined():
        for each in _listed(context, blocks.get()):
            places = jvm.scala.jdk.javaapi.CollectionConverters.asJava(each.executors())
            found[int(each.blockName().rpartition("_")[2])] = sorted(map(str, places))
    return found


def facts(context: SparkContext, group: str) -> list[TaskFact]:
    """What Spark has measured of all tasks of a job group that have ended well."""
    tracker, store = context.statusTracker(), _scala(context).statusStore()
    found = []
    for job in tracker.getJobIdsForGroup(group):
        info = tracker.getJobInfo(job)
        for stage in info.stageIds if info else ():
            stage_info = tracker.getStageInfo(stage)
            if stage_info is None:
                continue
            attempt = stage_info.currentAttemptId
            for task in _listed(context, store.taskList(stage, attempt, 100_000)):
                if task.status() == "SUCCESS" and task.taskMetrics().isDefined():
                    found.append(_fact(task))
    return found


def _fact(task: Any) -> TaskFact:
    metrics = task.taskMetrics().get()
    read = metrics.shuffleReadMetrics()
    return TaskFact(
        str(task.executorId()),
        str(task.taskLocality()),
        metrics.executorRunTime() / 1000,
        metrics.jvmGcTime() / 1000,
        metrics.inputMetrics().bytesRead(),
        read.localBytesRead(),
        read.remoteBytesRead(),
        read.fetchWaitTime() / 1000,
    )


def _jvm(context: SparkContext) -> Any:
    assert context._jvm is not None  # of a context that runs
    return context._jvm


def _class(context: SparkContext, name: str) -> Any:
    """A class of Java, or a value in one, by its full name; every part is asked for once."""
    return _found_class(_jvm(context), name)


@lru_cache(maxsize=32)
def _found_class(jvm: Any, name: str) -> Any:
    return reduce(getattr, name.split("."), jvm)


@lru_cache(maxsize=4)
def _bytes(jvm: Any) -> Any:
    """The class tag of what packs are."""
    return jvm.scala.reflect.ClassTag.apply(jvm.java.lang.Class.forName("[B"))


def _scala(context: SparkContext) -> Any:
    return context._jsc.sc()


def _sequence(context: SparkContext, values: Sequence[Any]) -> Any:
    return _class(context, "PythonUtils").toSeq(list(values))


def _listed(context: SparkContext, sequence: Any) -> list[Any]:
    """By number: an iterator of Java ends with an exception, of which PySpark asks a lot."""
    converters = _class(context, "scala.jdk.javaapi.CollectionConverters")
    listed = converters.asJava(sequence)
    return [listed.get(n) for n in range(listed.size())]
