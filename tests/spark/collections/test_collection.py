"""Collections on Spark, sentence by sentence, and against plain dictionaries on random orders."""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import muntin as mt
from muntin.errors import InputError, StateError
from tests.effort import EFFORT

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
MINUTES = timedelta(minutes=5)


def at(step: int) -> datetime:
    return NOON + step * MINUTES


def visits(spark: SparkSession, users: list[str], start: datetime = NOON) -> DataFrame:
    rows = [(user, n, start + timedelta(seconds=n)) for n, user in enumerate(users)]
    return spark.createDataFrame(rows, "user string, n long, ts timestamp")


@pytest.fixture
def shop(spark: SparkSession) -> Iterator[mt.Collection]:
    """Three steps of visits: ann comes always, each other user once."""
    collection = mt.Collection(spark, "visits", key="user", step="5 minutes", partitions=4)
    for n, other in enumerate(("bob", "cyd", "dan")):
        collection.add(at(n), visits(spark, ["ann", other], at(n)))
    yield collection
    collection.drop_before(at(100))


def test_steps_are_added_asked_for_and_dropped(shop: mt.Collection) -> None:
    assert shop.steps() == [at(0), at(1), at(2)]
    assert shop.frame().count() == 6
    some = shop.between(at(1), at(3))
    assert some.steps() == [at(1), at(2)]
    rows = some.keys("ann", "bob").frame().orderBy("step").collect()
    assert [(row.user, row.n) for row in rows] == [("ann", 0)] * 2
    assert some.frame().columns == ["user", "n", "ts", "step"]
    assert shop.drop_before(at(2)) == [at(0), at(1)]
    assert shop.steps() == [at(2)]
    assert shop.frame().count() == 2
    with pytest.raises(InputError, match=r"has steps from 2026-03-01 12:10:00 to .* 12:15:00, and"):
        shop.between(at(0), at(1))


def test_a_cogroup_has_one_list_a_step(shop: mt.Collection) -> None:
    found = dict(shop.between(at(0), at(2)).cogroup().collect())
    assert found.keys() == {"ann", "bob", "cyd"}
    assert [[row["n"] for row in rows] for rows in found["ann"]] == [[0], [0]]
    assert [[row["n"] for row in rows] for rows in found["bob"]] == [[1], []]
    assert dict(shop.keys("dan").cogroup().collect()).keys() == {"dan"}
    assert dict(shop.key_range("b", "d").cogroup().collect()).keys() == {"bob", "cyd"}
    some = shop.key_ranges([("a", "b"), ("d", None)])
    assert dict(some.cogroup().collect()).keys() == {"ann", "dan"}
    assert dict(shop.cogroup().collect()).keys() == {"ann", "bob", "cyd", "dan"}


def test_a_function_has_the_tables_of_a_group(shop: mt.Collection) -> None:
    def count(tables: dict[datetime, pa.Table]) -> list[tuple[datetime, int]]:
        return [(step, table.num_rows) for step, table in tables.items()]

    counted: dict[datetime, int] = {}
    for step, rows in shop.between().per_group(count).collect():
        counted[step] = counted.get(step, 0) + rows
    assert counted == dict.fromkeys((at(0), at(1), at(2)), 2)


def test_what_would_be_read_is_told(shop: mt.Collection) -> None:
    told = shop.between(at(0), at(2)).keys("ann").explain()
    assert told.startswith("2 steps of 'visits' in 1 task\n  2026-03-01 12:00:00: 2 rows in memory")
    assert "reads 1, " in told


def test_a_collection_of_pairs(spark: SparkSession) -> None:
    pairs = mt.Collection(spark, "pairs", step="1 day", partitions=3)
    for day, rows in (("2026-03-01", [(1, {"any": "value"}), (2, None)]), ("2026-03-02", [(1, 5)])):
        pairs.add(day, spark.sparkContext.parallelize(rows, 2))
    assert dict(pairs.cogroup().collect()) == {1: ([{"any": "value"}], [5]), 2: ([None], [])}
    with pytest.raises(
        InputError, match=r"'pairs' is of pairs, which have no columns; use cogroup"
    ):
        pairs.frame()
    with pytest.raises(InputError, match=r"name the key's column of frames, as key='user'"):
        pairs.add("2026-03-03", visits(spark, ["ann"]))


def test_keys_in_order_are_partitioned_by_range(spark: SparkSession) -> None:
    numbers = mt.Collection(spark, "numbers", key="id", ordered=True, partitions=8)
    for n in range(2):
        numbers.add(at(n), spark.range(0, 8000).selectExpr("id", "id * 2 AS twice"))
    some = numbers.key_range(1500, 1600)
    assert some.frame().count() == 200
    assert len(some.explain().splitlines()) == 4  # two steps and one task
    given = mt.Collection(spark, "given", key="id", bounds=[100, 200])
    given.add(at(0), spark.range(300).select("id"))
    assert given.key_range(None, 100).frame().count() == 100
    assert given.groups.root.upper == 3


def test_times_are_keys_in_order(spark: SparkSession) -> None:
    calls = mt.Collection(spark, "calls", key="ts", step="1 hour", ordered=True, partitions=6)
    for hour in range(2):
        calls.add(NOON + timedelta(hours=hour), visits(spark, ["ann"] * 600, NOON))
    some = calls.key_range(NOON + timedelta(seconds=10), NOON + timedelta(seconds=30))
    assert some.frame().count() == 40
    assert len(some.explain().splitlines()) == 4  # two steps and one task
    assert calls.keys(NOON).frame().count() == 2


def test_places_are_keys_in_z_order(spark: SparkSession) -> None:
    city = mt.ZOrder(0.0, 0.0, 100.0, 100.0, bits=8)
    places = [(x * 10.0, y * 10.0) for x in range(10) for y in range(10)]
    rows = [(city.key(x, y), x, y) for x, y in places]
    taxis = mt.Collection(spark, "taxis", key="cell", ordered=True, partitions=16)
    taxis.add(at(0), spark.createDataFrame(rows, "cell long, x double, y double"))
    near = taxis.between().key_ranges(city.cover(15, 15, 45, 35)).frame()
    inside = near.where("x BETWEEN 15 AND 45 AND y BETWEEN 15 AND 35")
    assert inside.count() == sum(15 <= x <= 45 and 15 <= y <= 35 for x, y in places)
    assert near.count() < 50


def test_a_stream_feeds_a_collection(spark: SparkSession, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    for n in range(3):
        visits(spark, ["ann", "bob"], at(n) + timedelta(minutes=4, seconds=59)).write.mode(
            "append"
        ).parquet(str(logs))
    streamed = mt.Collection(spark, "streamed", key="user")
    stream = spark.readStream.schema("user string, n long, ts timestamp").parquet(str(logs))
    feed = streamed.feed(time="ts")
    query = (
        stream.writeStream.foreachBatch(feed)
        .option("checkpointLocation", str(tmp_path / "notes"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert streamed.steps() == [at(0), at(1), at(2), at(3)]
    assert streamed.frame().count() == 6
    assert dict(streamed.keys("bob").cogroup().collect())["bob"][0] == []
    feed(visits(spark, ["cyd"]), 0)  # comes again
    assert streamed.frame().count() == 6
    feed(visits(spark, ["cyd"]), 1)  # more of a step that is there
    assert streamed.between(at(0), at(1)).frame().count() == 2
    with pytest.raises(InputError, match=r"'streamed': a batch has no column 'when'"):
        streamed.feed(time="when")(visits(spark, ["cyd"]), 2)
    with pytest.raises(InputError, match=r"rows of a batch have no 'ts'; drop them"):
        feed(visits(spark, ["cyd"]).selectExpr("user", "n", "CAST(NULL AS TIMESTAMP) AS ts"), 2)


def test_a_step_is_extended(shop: mt.Collection, spark: SparkSession) -> None:
    shop.extend(at(2), visits(spark, ["eve"]))
    shop.extend(at(4), visits(spark, ["eve"]))
    assert shop.steps() == [at(0), at(1), at(2), at(4)]
    assert shop.between(at(2), at(5)).keys("eve").frame().count() == 2


def test_a_step_that_is_there_is_told(shop: mt.Collection, spark: SparkSession) -> None:
    with pytest.raises(
        InputError, match=r"has the step of 2026-03-01 12:00:00 already; extend adds"
    ):
        shop.add(at(0), visits(spark, ["eve"]))
    assert shop.keys("eve").frame().count() == 0
    shop.drop_before(at(1))
    shop.add(at(0), visits(spark, ["eve"]))
    assert shop.keys("eve").frame().count() == 1


def test_data_that_do_not_fit_are_told(shop: mt.Collection, spark: SparkSession) -> None:
    for wrong, message in (
        (spark.range(3), "the frame has no column 'user', which is the key; it has id"),
        (visits(spark, ["a"]).selectExpr("1 AS step", "user"), "'step' is the column that says"),
        (
            visits(spark, ["a"]).select("user", "n"),
            "its frames have struct<user:string,n:bigint,ts:",
        ),
        (
            visits(spark, ["a"]).selectExpr("n AS user", "n", "ts"),
            "its frames have struct<user:str",
        ),
        (spark.sparkContext.parallelize([1]), "is of frames with the key 'user'; make a DataFrame"),
        ([1, 2], "expected a DataFrame or an RDD, not list"),
        (visits(spark, ["a"]).selectExpr("CAST(NULL AS STRING) AS user", "n", "ts"), "1 of 1 keys"),
    ):
        with pytest.raises(InputError, match=message):
            shop.add(at(7), wrong)  # type: ignore[arg-type]
    assert shop.steps() == [at(0), at(1), at(2)]
    with pytest.raises(InputError, match="'visits': its keys are texts, and these are whole numb"):
        shop.keys(5)
    with pytest.raises(InputError, match="'visits': its keys are texts, and these are whole numb"):
        shop.key_range(1, 2)
    with pytest.raises(InputError, match="no step begins at 2026-03-01 12:01:00"):
        shop.add(NOON + timedelta(minutes=1), visits(spark, ["a"]))


def test_pairs_that_are_none_are_told(spark: SparkSession) -> None:
    pairs = mt.Collection(spark, "odd", partitions=2)
    parallel = spark.sparkContext.parallelize
    with pytest.raises(
        InputError, match=r"elements \(key, value\), not int; name a column as key="
    ):
        pairs.add(at(0), parallel([1, 2]))
    with pytest.raises(
        InputError, match="the first RDD is empty, so the type of keys is not known"
    ):
        pairs.add(at(0), parallel([], 1))
    pairs.add(at(0), parallel([(1, 2)], 1))
    with pytest.raises(InputError, match="its keys are whole numbers, and these are texts; cast"):
        pairs.add(at(1), parallel([("a", 2)], 1))
    with pytest.raises(InputError, match=r"elements \(key, value\), not str"):
        pairs.add(at(1), parallel(["ab"], 1))
    pairs.add(at(1), parallel([], 1))
    assert dict(pairs.cogroup().collect()) == {1: ([2], [])}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"step": "often"}, "'x': step 'often'"),
        ({"partitions": 0}, "'x': partitions is 1 or more, not 0"),
        ({"memory": "much"}, "'x': memory='much': .*; say '512 MB'"),
        ({"recovery": "soon"}, "'x': recovery='soon': .*; say '10 seconds'"),
        ({"recovery": "1 second"}, "'x': recovery needs a folder to write to"),
        ({"relaxation": 0.5}, "'x': relaxation is a factor of 1 or more, not 0.5"),
        ({"split_above": "1 MB"}, "'x': give both of split_above= and merge_below=, or none"),
        ({"split_above": "1 MB", "merge_below": "1 MB"}, "'x': groups split above 1,048,576 bytes"),
        ({"bounds": [2, 1]}, "bounds of ranges must rise"),
        ({"bounds": [1, "a"]}, "'x': keys are of one type, and these are int and str"),
    ],
)
def test_settings_that_cannot_be_are_told(
    spark: SparkSession, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        mt.Collection(spark, "x", **options)


def test_a_collection_is_found_again_as_it_was_left(spark: SparkSession, tmp_path: Path) -> None:
    def opened(**options: Any) -> mt.Collection:
        return mt.Collection(spark, "kept", folder=tmp_path, **options)

    ordered = {"ordered": True, "partitions": 4, "recovery": "0.001 seconds"}
    first = opened(key="user", **ordered)
    for n in range(2):
        first.add(at(n), visits(spark, ["ann", "bob", "cyd", "dan"]))
    assert first.written_bytes > 0
    again = opened(key="user", **ordered)
    assert again.steps() == [at(0), at(1)]
    assert (
        again.frame().orderBy("step", "n").collect() == first.frame().orderBy("step", "n").collect()
    )
    again.add(at(2), visits(spark, ["eve"]))
    assert again.drop_before(at(1)) == [at(0)]
    assert opened(key="user", **ordered).steps() == [at(1), at(2)]
    there = list(tmp_path.glob("packs/*/*"))
    assert len(there) == 3
    again.drop_before(at(1))  # by now nobody reads what was dropped before
    assert len(list(tmp_path.glob("packs/*/*"))) == 2
    for changed, message in (
        ({"key": "user"}, "with other partitions: by range at .*, and now by hash into"),
        (
            {"key": "user", "bounds": ["b"]},
            r"and now by range at \['b'\]; .* as it was, or give it",
        ),
        ({"key": "n", **ordered}, "with other key: 'user', and now 'n'"),
        ({"key": "user", "step": "1 hour", **ordered}, "other steps: 5 minutes, and now 1 hour"),
    ):
        with pytest.raises(StateError, match=message):
            opened(**changed)


def test_a_range_is_what_is_there_when_it_is_asked(
    shop: mt.Collection, spark: SparkSession
) -> None:
    """Nobody gets an answer that silently lacks what was dropped since the range was named."""
    both, all_ = shop.between(at(0), at(2)), shop.between()
    assert (both.frame().count(), all_.frame().count()) == (4, 6)
    shop.drop_before(at(1))
    for question in (both.frame, both.cogroup, both.explain, both.steps):
        with pytest.raises(InputError, match=r"has steps from .* 12:05:00 to .* reaches beyond"):
            question()
    assert all_.steps() == [at(1), at(2)]
    assert {len(lists) for _, lists in all_.cogroup().collect()} == {2}
    shop.add(at(3), visits(spark, ["ann"]))
    assert all_.steps() == [at(1), at(2), at(3)]


def test_keys_that_are_hashed_are_not_opened_as_ranges(spark: SparkSession, tmp_path: Path) -> None:
    kept: dict[str, Any] = {"key": "id", "folder": tmp_path, "recovery": "0.001 seconds"}
    mt.Collection(spark, "kept", partitions=2, **kept).add(at(0), spark.range(9))
    with pytest.raises(StateError, match="by hash into 2, and now by range; what is in its folder"):
        mt.Collection(spark, "kept", ordered=True, **kept)


def test_bounds_and_ranges_of_times_need_no_zone(spark: SparkSession, tmp_path: Path) -> None:
    """As steps do: a time that names no zone is UTC, also when the folder is opened again."""
    noon = at(0).replace(tzinfo=None)
    kept: dict[str, Any] = {"key": "t", "folder": tmp_path, "recovery": "0.001 seconds"}
    first = mt.Collection(spark, "times", bounds=[noon], **kept)
    begin = int(at(0).timestamp()) - 5
    first.add(at(0), spark.range(begin, begin + 20).selectExpr("timestamp_seconds(id) AS t"))
    for opened in (first, mt.Collection(spark, "times", bounds=[at(0)], **kept)):
        later = opened.key_range(noon, None)
        assert later.frame().count() == 15
        assert "partitions 1 to 1: reads 1" in later.explain()


def test_recovery_is_bounded_by_what_is_written(spark: SparkSession, tmp_path: Path) -> None:
    """Each step is computed from the one before: some are written, not all, and the bound holds."""
    state = mt.Collection(spark, "state", partitions=2, folder=tmp_path, recovery="1000 seconds")
    state.add(at(0), spark.sparkContext.parallelize([(k, 0) for k in range(10)], 2))
    longest = 2.5 * max(state.lineage.recovery.values())  # as long as it takes here
    state._options = replace(state._options, recovery=longest)
    for n in range(1, 7):
        before = state.between(at(n - 1), at(n)).cogroup()
        state.add(at(n), before.map(lambda found: (found[0], found[1][0][0] + 1)))
        newest = list(state.lineage.datasets.values())[-1]
        assert newest.written or len(newest.parents) == 1
        assert max(state.lineage.recovery.values()) <= longest
    assert 0 < len([each for each in state.lineage.datasets.values() if each.written]) < 7
    assert dict(state.between(at(6), at(7)).cogroup().collect()) == {k: ([6],) for k in range(10)}


def test_what_is_beyond_the_limit_goes_to_disk_and_comes_back(spark: SparkSession) -> None:
    now = 0.0
    small = mt.Collection(
        spark, "small", key="id", partitions=2, memory="100 KB", clock=lambda: now
    )
    for n in range(6):  # about 32 KB each
        small.add(at(n), spark.range(4000 * n, 4000 * n + 4000).select("id"))
    where = [line.split(" in ")[1] for line in small.between().explain().splitlines()[1:7]]
    assert where == ["disk"] * 3 + ["memory"] * 3
    assert small.frame().distinct().count() == 24_000
    for _ in range(20):
        assert small.between(at(0), at(1)).keys(1, 2, 3).frame().count() == 3
    small.tend()
    where = [line.split(" in ")[1] for line in small.between().explain().splitlines()[1:7]]
    assert (where[0], where.count("memory")) == ("memory", 3)
    assert small.frame().distinct().count() == 24_000


def test_random_orders_answer_as_dictionaries_do(spark: SparkSession) -> None:
    rng = random.Random(5)
    context = spark.sparkContext
    for _ in range(2 * EFFORT):
        options: list[dict[str, Any]] = [{}, {"ordered": True}, {"memory": "2 KB"}]
        chosen = rng.choice(options)
        held: dict[int, dict[int, list[int]]] = {}
        collection = mt.Collection(spark, "random", partitions=rng.randint(1, 9), **chosen)
        for _ in range(12):
            order = rng.random()
            free = [n for n in range(12) if n not in held]
            if order < 0.45 or not held:
                step, rows = (
                    rng.choice(free),
                    [(rng.randint(-20, 20), rng.randint(0, 9)) for _ in range(rng.randint(1, 60))],
                )
                collection.add(at(step), context.parallelize(rows, 2))
                held[step] = {}
                for key, value in rows:
                    held[step].setdefault(key, []).append(value)
            elif order < 0.55:
                limit = rng.randint(0, 12)
                gone = collection.drop_before(at(limit))
                assert gone == [at(n) for n in sorted(held) if n < limit]
                held = {n: rows for n, rows in held.items() if n >= limit}
            else:
                lower = rng.choice(sorted(held))
                upper = rng.choice([n for n in sorted(held) if n >= lower]) + 1
                asked, wanted = collection.between(at(lower), at(upper)), set(range(-20, 21))
                if rng.random() < 0.5:
                    wanted = set(rng.sample(range(-20, 21), 5))
                    asked = asked.keys(*wanted)
                if rng.random() < 0.5:
                    first = rng.randint(-20, 19)
                    last = rng.randint(first + 1, 20)
                    wanted &= set(range(first, last))
                    asked = asked.key_range(first, last)
                steps = [n for n in sorted(held) if lower <= n < upper]
                expected = {
                    key: tuple(sorted(held[n].get(key, [])) for n in steps)
                    for key in wanted & {key for n in steps for key in held[n]}
                }
                found = {
                    key: tuple(sorted(values) for values in lists)
                    for key, lists in asked.cogroup().collect()
                }
                assert found == expected
        collection.drop_before(at(100))


def test_several_threads_add_ask_and_drop(spark: SparkSession) -> None:
    collection = mt.Collection(spark, "threads", partitions=4, memory="4 KB")
    context = spark.sparkContext

    def add(n: int) -> None:
        collection.add(at(n), context.parallelize([(key, n) for key in range(50)], 2))

    add(0)

    def ask(n: int) -> None:
        found = dict(collection.keys(n).cogroup().collect())
        (lists,) = found.values()
        assert all(len(values) == 1 for values in lists)

    with ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(add, n) for n in range(1, 6)] + [
            threads.submit(ask, n) for n in range(8)
        ]:
            done.result()
        dropped = threads.submit(collection.drop_before, at(3))
        asking = [threads.submit(ask, n) for n in range(4)]
        assert dropped.result() == [at(0), at(1), at(2)]
        for done in asking:
            done.result()
        twice = [threads.submit(add, 9) for _ in range(2)]
        assert sorted(done.exception() is None for done in twice) == [False, True]
    assert collection.steps() == [at(3), at(4), at(5), at(9)]
