"""States of earlier formats go on as if nothing had changed; newer and very old ones do not."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import muntin as mt
from muntin.errors import StateError
from muntin.store.checkpoint import Checkpoint, saved_in
from muntin.store.migrations import VERSION
from muntin.store.results import Results
from tests.store.test_checkpoint import advanced, first

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("looking_at_all")

SAMPLES = sorted((Path(__file__).parent / "samples").glob("format-*.tar.gz"))
PROGRAM = """
CREATE STREAM s (t BIGINT, k VARCHAR, n BIGINT) FROM '{folder}/logs/{{source}}.log'
FORMAT json TIMESTAMP t;
CREATE JOB sums AS SELECT k, sum(n) AS n, count(*) AS c FROM s GROUP BY k
WINDOW 60 SECONDS EVERY 10 SECONDS;
CREATE JOB mine AS SELECT k, count(DISTINCT n) AS d, max(n) AS m FROM s GROUP BY k
WINDOW 20 SECONDS;
"""
BASE = 1_700_000_000
RECORDS = [*range(95), *range(0, 95, 2)]  # of one server, and of the other


def unpacked(sample: Path, folder: Path) -> Path:
    with tarfile.open(sample) as archive:
        archive.extractall(folder / "state", filter="data")
    return folder / "state"


def expected(length: int, every: int) -> dict[tuple[int, str], list[int]]:
    """The numbers in each window, by where it begins and key."""
    windows: dict[tuple[int, str], list[int]] = {}
    for t in RECORDS:
        for start in range((BASE + t) // every * every - length + every, BASE + t + 1, every):
            windows.setdefault((start, "abc"[t % 3]), []).append(t)
    return windows


def test_there_is_a_sample_of_every_format_that_is_known() -> None:
    formats = {int(sample.name.split("-")[1].split(".")[0]) for sample in SAMPLES}
    assert formats == set(range(8, VERSION + 1))


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.name.split(".")[0])
def test_a_state_of_an_earlier_format_goes_on(
    spark: SparkSession, tmp_path: Path, sample: Path
) -> None:
    from muntin.spark.runner import Settings, StreamRun

    state = unpacked(sample, tmp_path)
    assert Results(state).read("sums").num_rows == 27
    program, now = mt.sql(PROGRAM.format(folder=tmp_path)), [BASE + 1000.0]
    run = StreamRun(
        spark.sparkContext,
        program.streams["s"],
        program.jobs_of("s"),
        Settings(state, follow=True, idle_seconds=10),
        lambda: now[0],
    )
    assert not [note for note in run.loop.notes() if "changed" in note]
    run.loop.turn()
    now[0] += 60  # nobody writes any more
    run.loop.turn()
    run.close()
    found = Results(state).read("sums").to_pylist()
    sums = {(int(r["window_start"].timestamp()), r["k"]): (r["n"], r["c"]) for r in found}
    truth = expected(60, 10)
    assert {key: (sum(ns), len(ns)) for key, ns in truth.items()} == sums
    found = Results(state).read("mine").to_pylist()
    mine = {(int(r["window_start"].timestamp()), r["k"]): (r["d"], r["m"]) for r in found}
    truth = expected(20, 20)
    assert {key: (len(set(ns)), max(ns)) for key, ns in truth.items()} == mine
    assert saved_in(state)["s"].progress.records == len(RECORDS)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.name.split(".")[0])
def test_who_only_looks_changes_nothing(tmp_path: Path, sample: Path) -> None:
    state = unpacked(sample, tmp_path)
    before = {path: path.read_bytes() for path in state.rglob("*") if path.is_file()}
    assert saved_in(state)["s"].progress.records == len(RECORDS)
    assert Checkpoint(state, "s").load() is not None
    assert before == {path: path.read_bytes() for path in state.rglob("*") if path.is_file()}


def test_states_of_other_formats_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "streams" / "old" / "_delta_log").mkdir(parents=True)
    with pytest.raises(StateError, match=r"written by an old version of Muntin .*remove .*old, or"):
        Checkpoint(tmp_path, "old").load()
    for version, told in {99: "a newer version.*format is 99", 7: "an old version.*is 7"}.items():
        with monkeypatch.context() as patch:
            patch.setattr("muntin.store.checkpoint.VERSION", version)
            Checkpoint(tmp_path, f"at-{version}").save(advanced(first(), 1), whole=False)
        with pytest.raises(StateError, match=told):
            Checkpoint(tmp_path, f"at-{version}").load()
    assert Checkpoint(tmp_path, "none").load() is None
