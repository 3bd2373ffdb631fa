"""Jobs on a streaming DataFrame: Spark's own file source stands for whatever users have."""

from __future__ import annotations

import json
import os
import shutil
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import muntin as mt
from muntin.store.journal import Journal
from tests.waiting import wait_for

SCHEMA = "at timestamp, server string, product string, clicks bigint, price decimal(10,2)"
JOBS = """
CREATE JOB clicks AS SELECT product, sum(clicks) AS clicks, sum(price) AS spent
FROM shop GROUP BY product WINDOW 1 MINUTE;
"""


def write(folder: Path, name: str, rows: list[tuple[str, str, int, str]]) -> None:
    folder.mkdir(exist_ok=True)
    lines = [
        json.dumps({"at": at, "server": "web-1", "product": p, "clicks": c, "price": price})
        for at, p, c, price in rows
    ]
    # Written elsewhere and moved in, as Spark's file source expects.
    (folder.parent / name).write_text("\n".join(lines) + "\n")
    # Its order is that of modification times, which must not be equal.
    os.utime(folder.parent / name, (int(name[0]), int(name[0])))
    (folder.parent / name).rename(folder / name)


def run(spark: SparkSession, folder: Path, **options: Any) -> list[dict[str, Any]]:
    frame = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(folder / "in"))
    state = folder / "state"
    query = mt.attach(frame, JOBS, stream="shop", timestamp="at", state=state, **options)
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    return sorted(
        (
            {k: row[k] for k in ("product", "clicks", "spent", "records_late")}
            for row in mt.results("clicks", state).to_pylist()
        ),
        key=lambda row: (row["clicks"], row["product"]),
    )


def test_windows_leave_when_the_frame_has_passed_them(spark: SparkSession, tmp_path: Path) -> None:
    #        12:00:00      12:01:00      12:02:00
    # batch 1   a a b
    # batch 2               a
    # batch 3 (b, late)                   a
    write(tmp_path / "in", "1.json", [("2026-01-01T12:00:05Z", "a", 2, "1.10"),
                                      ("2026-01-01T12:00:50Z", "a", 3, "2.20"),
                                      ("2026-01-01T12:00:10Z", "b", 7, "0.01")])  # fmt: skip
    write(tmp_path / "in", "2.json", [("2026-01-01T12:01:30Z", "a", 11, "5.00")])
    write(tmp_path / "in", "3.json", [("2026-01-01T12:02:30Z", "a", 13, "6.00"),
                                      ("2026-01-01T12:00:20Z", "b", 100, "9.99")])  # fmt: skip
    rows = run(spark, tmp_path, source="server")
    assert [(r["product"], r["clicks"], str(r["spent"])) for r in rows] == [
        ("a", 5, "3.30"),
        ("b", 7, "0.01"),
        ("a", 11, "5.00"),
    ]


def test_a_finish_and_tables_are_the_same_on_frames(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "in", "1.json", [("2026-01-01T12:00:05Z", "a", 2, "1.10"),
                                      ("2026-01-01T12:00:50Z", "b", 3, "2.20"),
                                      ("2026-01-01T12:00:10Z", "c", 7, "0.01")])  # fmt: skip
    write(tmp_path / "in", "2.json", [("2026-01-01T12:01:30Z", "a", 11, "5.00")])
    (tmp_path / "kinds.csv").write_text("product,kind\na,x\nb,x\nc,y\n")
    jobs = f"""CREATE TABLE kinds FROM '{tmp_path}/kinds.csv';
    CREATE JOB best AS SELECT kind, product, sum(clicks) AS clicks FROM shop
    JOIN kinds USING (product) GROUP BY kind, product
    QUALIFY row_number() OVER (PARTITION BY kind ORDER BY sum(clicks) DESC) = 1 WINDOW 1 MINUTE;
    CREATE JOB levels AS SELECT kind, max(n) AS most FROM
    (SELECT product, sum(clicks) AS n FROM shop GROUP BY product) JOIN kinds USING (product)
    GROUP BY ROLLUP (kind) WINDOW 1 MINUTE"""
    frame = spark.readStream.schema(SCHEMA).json(str(tmp_path / "in"))
    state = tmp_path / "state"
    query = mt.attach(frame, jobs, stream="shop", timestamp="at", state=state)
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    rows = mt.results("best", state).select(["kind", "product", "clicks"]).to_pylist()
    assert [tuple(row.values()) for row in rows] == [("x", "b", 3), ("y", "c", 7)]
    rows = mt.results("levels", state).select(["kind", "most"]).to_pylist()
    assert [tuple(row.values()) for row in rows] == [("x", 3), ("y", 7), (None, 7)]


def test_jobs_of_a_frame_look_at_the_newest_results(spark: SparkSession, tmp_path: Path) -> None:
    """Of the job itself or of another, also after a restart: from the next pane on."""
    jobs = """CREATE JOB best AS SELECT product, sum(clicks) AS clicks FROM shop GROUP BY product
    ORDER BY clicks DESC LIMIT 1 WINDOW 1 MINUTE;
    CREATE JOB watched AS SELECT shop.product, count(*) AS n
    FROM shop JOIN LATEST(best) l USING (product) GROUP BY shop.product WINDOW 1 MINUTE"""
    (tmp_path / "in").mkdir()
    frame = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(
        str(tmp_path / "in")
    )  # fmt: skip
    state = tmp_path / "state"
    for minute, product in enumerate("abbaa"):
        at = f"2026-01-01T12:0{minute}"
        write(tmp_path / "in", f"{minute + 1}.json", [(f"{at}:05Z", product, 9, "1"),
                                                      (f"{at}:06Z", "c", 1, "1"),
                                                      (f"{at}:50Z", "a", 1, "1"),
                                                      (f"{at}:51Z", "b", 1, "1")])  # fmt: skip
        if minute in (1, 2, 4):  # some queries read one file, others two
            query = mt.attach(frame, jobs, stream="shop", timestamp="at", state=state)
            try:
                query.processAllAvailable()
            finally:
                query.stop()
    rows = mt.results("watched", state).to_pylist()
    # A window leaves with the first record behind it, and counts from the minute after that on.
    found = [(row["window_start"].minute, row["product"], row["n"]) for row in rows]
    assert found == [(2, "a", 1), (3, "b", 1)]
    (used,) = rows[-1]["results_used"]
    assert (used["job"], used["end"].minute) == ("best", 2)


def test_a_restart_goes_on_and_repeats_nothing(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "in", "1.json", [("2026-01-01T12:00:05Z", "a", 2, "1.10")])
    assert run(spark, tmp_path) == []
    write(tmp_path / "in", "2.json", [("2026-01-01T12:00:35Z", "a", 3, "1.00"),
                                      ("2026-01-01T12:01:05Z", "a", 1, "1.00")])  # fmt: skip
    first = run(spark, tmp_path)
    assert [(r["product"], r["clicks"]) for r in first] == [("a", 5)]
    assert run(spark, tmp_path) == first


def ago(seconds: float) -> str:
    return (datetime.now(UTC) - timedelta(seconds=seconds)).isoformat()


def test_deadlines_are_kept_when_no_data_arrives(spark: SparkSession, tmp_path: Path) -> None:
    within = JOBS.replace("1 MINUTE", "5 SECONDS WITHIN 5 SECONDS")
    (tmp_path / "in").mkdir()
    frame = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(f"{tmp_path}/in")
    state = tmp_path / "state"

    for batches in (1, 2):

        def all_stored(wanted: int = batches) -> bool:
            return bool(mt.results("clicks", state).num_rows == wanted)

        query = mt.attach(frame, within, stream="shop", timestamp="at", state=state, idle="1h")
        query.processAllAvailable()  # deadlines that pass before the start are nobody's fault
        write(tmp_path / "in", f"{batches}.json", [(ago(0), "a", 1 + batches, "1.10")])
        query.processAllAvailable()
        wait_for(all_stored)
        query.stop()
    rows = mt.results("clicks", state).to_pylist()
    assert [row["clicks"] for row in rows] == [2, 3]
    for row in rows:
        assert row["c2"]["reason"] == "deadline"
        waited = row["emitted_at"] - row["window_end"]
        assert waited <= timedelta(minutes=2)  # a busy machine, but not the hour of being idle


def test_nothing_is_committed_after_a_failure(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows that failed to be committed once leave with the next query."""
    write(tmp_path / "in", "1.json", [("2026-01-01T12:00:05Z", "a", 2, "1.10")])
    write(tmp_path / "in", "2.json", [("2026-01-01T12:01:05Z", "a", 3, "1.10")] * 3)
    real = Journal.commit
    failed: list[bool] = []

    def once(journal: Journal, *given: Any) -> Any:
        if given[1].windows and not failed:
            failed.append(True)
            raise mt.StateError("the disk is full")
        return real(journal, *given)

    monkeypatch.setattr(Journal, "commit", once)
    with pytest.raises(StreamingQueryException, match="the disk is full"):
        run(spark, tmp_path)
    assert failed
    assert [row["clicks"] for row in run(spark, tmp_path)] == [2]


def test_a_query_is_over_when_another_takes_its_state(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "in", "1.json", [("2026-01-01T12:00:05Z", "a", 2, "1.10")])
    frame = spark.readStream.schema(SCHEMA).json(f"{tmp_path}/in")

    def attached() -> StreamingQuery:
        return mt.attach(frame, JOBS, stream="shop", timestamp="at", state=tmp_path / "state")

    first = attached()
    first.processAllAvailable()
    second = attached()
    wait_for(lambda: not first.isActive)
    write(tmp_path / "in", "2.json", [("2026-01-01T12:01:05Z", "a", 3, "1.10")] * 3)
    second.processAllAvailable()
    second.stop()
    assert mt.results("clicks", tmp_path / "state")["clicks"].to_pylist() == [2]


def test_a_state_is_held_until_the_last_batch_of_a_query_that_is_stopped(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from muntin.spark.attach import _Handler

    begun, proceed = Event(), Event()
    take = _Handler.take

    def take_slowly(handler: _Handler, frame: DataFrame, number: int) -> None:
        begun.set()
        assert proceed.wait(60)
        take(handler, frame, number)

    monkeypatch.setattr(_Handler, "take", take_slowly)
    write(tmp_path / "in", "1.json", [("2026-05-01 12:00:10", "a", 1, "1.00")])
    frame = spark.readStream.schema(SCHEMA).json(str(tmp_path / "in"))
    jobs = JOBS.replace("shop", "stopped")
    query = mt.attach(frame, jobs, stream="stopped", timestamp="at", state=tmp_path / "state")
    (watcher,) = (each for each in threading.enumerate() if each.name == "muntin stopped")
    assert begun.wait(60)
    stopping = Thread(target=query.stop)
    stopping.start()
    wait_for(lambda: not query.isActive)
    watcher.join(1)
    assert watcher.is_alive()
    proceed.set()
    stopping.join(60)
    watcher.join(60)
    assert not watcher.is_alive()
    assert query.exception() is None


def test_a_query_whose_windows_cannot_leave_stops(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    within = JOBS.replace("1 MINUTE", "2 SECONDS WITHIN 1 SECOND")
    write(tmp_path / "in", "1.json", [(ago(0), "a", 2, "1.10")])
    frame = spark.readStream.schema(SCHEMA).json(f"{tmp_path}/in")
    query = mt.attach(frame, within, stream="shop", timestamp="at", state=tmp_path / "state")
    query.processAllAvailable()

    def full(*_: object) -> None:
        raise mt.StateError("the disk is full")

    monkeypatch.setattr("muntin.store.journal.Journal.commit", full)
    wait_for(lambda: not query.isActive)
    assert "stream 'shop': its query stops: the disk is full" in caplog.text
    assert "Traceback" not in caplog.text


def test_wrong_frames_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    still = spark.range(3)
    with pytest.raises(mt.InputError, match="not streaming"):
        mt.attach(still, JOBS, stream="shop", timestamp="id", state=tmp_path)
    rate = spark.readStream.format("rate").load()
    with pytest.raises(mt.LanguageError, match="no column 'at'; known are"):
        mt.attach(rate, JOBS, stream="shop", timestamp="at", state=tmp_path)
    with pytest.raises(mt.InputError, match="no column 'host'"):
        mt.attach(rate, JOBS, stream="shop", timestamp="timestamp", source="host", state=tmp_path)
    with pytest.raises(mt.LanguageError, match="nothing is defined"):
        mt.attach(rate, "-- nothing", stream="shop", timestamp="timestamp", state=tmp_path)
    joined = """CREATE STREAM logs (t BIGINT) FROM 'x' FORMAT json TIMESTAMP t;
    CREATE JOB j AS SELECT * FROM (SELECT count(*) AS a FROM shop), (SELECT count(*) AS b FROM logs)
    WINDOW 1 DAY"""
    with pytest.raises(mt.InputError, match=r"'logs\+shop', but a DataFrame is one stream"):
        mt.attach(rate, joined, stream="shop", timestamp="timestamp", state=tmp_path)


CLASSES = """
class Totals:
    columns = {"product": "VARCHAR", "clicks": "BIGINT"}

    def mapper(self, _, record):
        yield record["product"], record["clicks"]

    def reducer(self, product, clicks):
        yield product, sum(clicks)


class Fails(Totals):
    def mapper(self, _, record):
        raise LookupError(record["product"])
"""


def test_jobs_in_python_run_on_frames_and_fail_alone(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    (tmp_path / "attached_jobs.py").write_text(CLASSES)
    monkeypatch.syspath_prepend(tmp_path)
    write(tmp_path / "in", "1.json", [("2026-01-01T12:00:05Z", "a", 2, "1.10"),
                                      ("2026-01-01T12:00:50Z", "a", 3, "2.20")])  # fmt: skip
    write(tmp_path / "in", "2.json", [("2026-01-01T12:01:30Z", "b", 11, "5.00")])
    frame = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    jobs = (
        "CREATE JOB totals AS PYTHON 'attached_jobs:Totals' FROM shop WINDOW 1 MINUTE;"
        "CREATE JOB fails AS PYTHON 'attached_jobs:Fails' FROM shop WINDOW 1 MINUTE;"
    )
    state = tmp_path / "state"

    def take_all() -> None:
        query = mt.attach(
            frame.json(str(tmp_path / "in")), jobs, stream="shop", timestamp="at", state=state
        )
        try:
            query.processAllAvailable()
        finally:
            query.stop()

    take_all()
    (row,) = mt.results("totals", state).to_pylist()
    assert (row["product"], row["clicks"]) == ("a", 5)
    assert mt.results("fails", state).num_rows == 0
    assert "job 'fails': mapper failed on {" in caplog.text
    assert "LookupError: a" in caplog.text
    assert "earlier run" not in caplog.text
    take_all()
    assert "job 'fails' stopped in an earlier run" in caplog.text


def test_a_state_folder_that_is_removed_ends_the_query(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path / "in", "1.json", [("2026-01-01T12:00:05Z", "a", 2, "1.10")])
    frame = spark.readStream.schema(SCHEMA).json(f"{tmp_path}/in")
    query = mt.attach(frame, JOBS, stream="shop", timestamp="at", state=tmp_path / "state")
    query.processAllAvailable()
    shutil.rmtree(tmp_path / "state")
    wait_for(lambda: not query.isActive)
    (told,) = {record.getMessage() for record in caplog.records if record.levelname == "ERROR"}
    assert told.startswith("stream 'shop': its query stops: the state folder")
    assert not any(record.exc_info for record in caplog.records)
    assert not (tmp_path / "state" / "streams").exists()


def test_jobs_of_a_frame_are_changed_while_it_runs(spark: SparkSession, tmp_path: Path) -> None:
    """Through the same service: versions, parameters, what cannot be, and a restart."""
    write(tmp_path / "in", "1.json", [("2026-01-01T12:00:05Z", "a", 2, "1.10")])
    frame = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(
        str(tmp_path / "in")
    )  # fmt: skip
    state = tmp_path / "state"
    text = "CREATE JOB clicks AS SELECT product, {} AS clicks FROM shop GROUP BY product "
    text += "WINDOW 1 MINUTE"
    asked: dict[str, Any] = {"stream": "shop", "timestamp": "at", "state": state, "idle": "1h"}
    asked["control"] = "127.0.0.1:0"
    query = mt.attach(frame, text.format("sum(clicks)"), **asked)
    try:
        query.processAllAvailable()
        app = mt.connect(state)
        (effect,) = app.replace("clicks", text.format("10 * sum(clicks)"))
        assert (effect.version, str(effect.begin)) == (2, "2026-01-01 12:01:00+00:00")
        with pytest.raises(mt.OrderError, match="a DataFrame is one stream"):
            app.sql(
                f"CREATE STREAM z (t BIGINT) FROM '{tmp_path}/z' FORMAT json TIMESTAMP t;"
                "CREATE JOB other AS SELECT count(*) AS c FROM z WINDOW 1 DAY"
            )
        with pytest.raises(mt.OrderError, match="rows of a DataFrame have no order"):
            app.create("CREATE JOB n AS SELECT count(*) AS c FROM shop WINDOW 5 RECORDS")
        write(tmp_path / "in", "2.json", [("2026-01-01T12:00:50Z", "a", 3, "1.10"),
                                          ("2026-01-01T12:01:10Z", "a", 4, "1.10")])  # fmt: skip
        write(tmp_path / "in", "3.json", [("2026-01-01T12:02:30Z", "a", 9, "1.10")])
        query.processAllAvailable()
        wait_for(lambda: len(list(app.results("clicks"))) == 2)
    finally:
        query.stop()
    rows = mt.results("clicks", state).to_pylist()
    assert [(row["clicks"], row["job_version"]) for row in rows] == [(5, 1), (40, 2)]
    wait_for(lambda: not (state / "control.json").exists())
    asked["control"] = "off"
    query = mt.attach(frame, text.format("sum(clicks)"), **asked)
    try:
        write(tmp_path / "in", "4.json", [("2026-01-01T12:03:10Z", "a", 1, "1.10")] * 4)
        wait_for(lambda: mt.results("clicks", state).num_rows == 3)
    finally:
        query.stop()
    last = mt.results("clicks", state).to_pylist()[-1]
    assert (last["clicks"], last["job_version"]) == (90, 2)
