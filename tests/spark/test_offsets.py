"""Spark's notes and the state go together, or the query is refused with what to do."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import muntin as mt
from muntin.store.findings import Weight
from muntin.store.inspection import check
from tests.spark.test_attach import JOBS, SCHEMA, run, write


def fill(spark: SparkSession, folder: Path) -> None:
    write(folder / "in", "1.json", [("2026-01-01T12:00:05Z", "a", 2, "1.10")])
    write(folder / "in", "2.json", [("2026-01-01T12:01:05Z", "a", 3, "1.00")])
    run(spark, folder)


def damages(state: Path) -> list[str]:
    """What a check of the state finds to be damaged, of Spark's notes or anything else."""
    return [f.text for f in check(state) if f.weight is Weight.DAMAGE]


def test_notes_that_were_lost_or_are_older_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    fill(spark, tmp_path)
    state = tmp_path / "state"
    notes = state / "spark" / "shop"
    assert damages(state) == []
    for part in ("offsets", "commits"):
        (notes / part / "1").unlink()
    with pytest.raises(mt.StateError, match=r"go up to batch 0, but the state has read batch 1"):
        run(spark, tmp_path)
    (damage,) = damages(state)
    assert "go up to batch 0, but the state has read batch 1" in damage
    shutil.rmtree(notes)
    with pytest.raises(mt.StateError, match=r"are gone, .* remove both"):
        run(spark, tmp_path)
    (damage,) = damages(state)
    assert "are gone, but the state has read batch 1" in damage
    shutil.rmtree(tmp_path / "state" / "streams" / "shop")
    assert [row["clicks"] for row in run(spark, tmp_path)] == [2]  # once


def test_a_state_that_was_lost_is_told(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fill(spark, tmp_path)
    shutil.rmtree(tmp_path / "state" / "streams")
    write(tmp_path / "in", "3.json", [("2026-01-01T12:02:05Z", "a", 5, "1.00"),
                                      ("2026-01-01T12:02:06Z", "a", 5, "1.00")])  # fmt: skip
    write(tmp_path / "in", "4.json", [("2026-01-01T12:03:05Z", "a", 7, "1.00")])
    assert [row["clicks"] for row in run(spark, tmp_path)] == [2, 10]
    assert "Spark has handed over batches up to 1, and the state has read none" in caplog.text
    assert "stream 'shop' has no state, but results: job 'clicks' has windows up to" in caplog.text


def test_a_stream_that_was_renamed_goes_on(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fill(spark, tmp_path)
    write(tmp_path / "in", "3.json", [("2026-01-01T12:02:05Z", "a", 5, "1.00")])
    frame = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(f"{tmp_path}/in")
    jobs, state = JOBS.replace("shop", "store"), tmp_path / "state"
    query = mt.attach(frame, jobs, stream="store", timestamp="at", state=state)
    query.processAllAvailable()
    query.stop()
    assert mt.results("clicks", state)["clicks"].to_pylist() == [2, 3]
    assert "stream 'store' goes on where stream 'shop' stood" in caplog.text
    assert [path.name for path in (state / "spark").iterdir()] == ["store"]
