"""A state under a URL: the same rows as in a folder, whatever the storage does or who is killed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest

import muntin as mt
from muntin.errors import StateError
from muntin.store import objects
from muntin.store.hold import require_free
from muntin.store.inspection import check, show
from muntin.store.results import Results
from muntin.store.status import status
from tests.store.s3 import KEYS, make_bucket, shaky
from tests.waiting import wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("looking_at_all")

PROGRAM = """
CREATE STREAM s (t BIGINT, k VARCHAR) FROM '{folder}/{{source}}.log' FORMAT json TIMESTAMP t;
CREATE JOB j AS SELECT k, count(*) AS c FROM s GROUP BY k WINDOW 20 SECONDS EVERY 10 SECONDS;
CREATE JOB top AS SELECT k, count(*) AS c, max(t) AS last FROM s GROUP BY k
ORDER BY c DESC, k LIMIT 2 WINDOW 10 SECONDS;
"""
BASE = 1_700_000_000


@pytest.fixture
def shaky_s3(s3_port: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A state on a storage that fails now and then, and loses answers."""
    bucket = f"whole-{os.getpid()}-{time.monotonic_ns()}"
    make_bucket(s3_port, bucket)
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    with shaky(s3_port, seed=7, fails=0.05, slow=0.02) as port:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        objects._opened.cache_clear()
        yield f"s3://{bucket}/state"
    objects._opened.cache_clear()


@pytest.fixture(params=["shaky_s3", "hdfs"])
def url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(request.param))


def write(folder: Path, source: str, *times: int) -> None:
    folder.mkdir(exist_ok=True)
    with (folder / f"{source}.log").open("a") as log:
        for t in times:
            log.write(json.dumps({"t": BASE + t, "k": f"{'abc'[t % 3]}"}) + "\n")


def rows(state: str | Path, job: str) -> list[dict[str, Any]]:
    untold = {"emitted_at", "c2", "reason", "lag", "row_number"}
    found = Results(state).read(job)
    wanted = [name for name in found.column_names if name not in untold and "at" not in name]
    return list(found.select(wanted).to_pylist())


def test_a_state_under_a_url_is_that_of_a_folder(
    spark: SparkSession, tmp_path: Path, url: str
) -> None:
    from muntin.spark.runner import Settings, StreamRun

    logs, chance = tmp_path / "logs", random.Random(5)
    write(logs, "a", 1)
    write(logs, "b", 2)
    program = mt.sql(PROGRAM.format(folder=logs))
    now, at = BASE + 1000.0, 3
    for _ in range(3):  # programs, one after another
        # Events of the system may come a moment later; the clock here has no such moments.
        with patch.object(StreamRun, "_watch", return_value=None):
            runs = [
                StreamRun(
                    spark.sparkContext,
                    program.streams["s"],
                    program.jobs_of("s"),
                    Settings(state, follow=True, idle_seconds=1e6),
                    lambda: now,  # noqa: B023
                )
                for state in (tmp_path / "state", url)
            ]
        for _ in range(3):
            for source in "ab":
                write(logs, source, *sorted(at + chance.randrange(12) for _ in range(6)))
            now, at = now + 1, at + 12
            left = []
            for run in runs:
                emission = run.loop.turn().emission
                left.append([(r.job, r.start, r.rows.to_pylist()) for r in emission.results()])
            assert left[0] == left[1]
        for run in runs:
            run.close()
    for job in ("j", "top"):
        assert rows(tmp_path / "state", job) == rows(url, job) != []
        latest = Results(url).read(job, latest=True).num_rows
        assert latest == Results(tmp_path / "state").read(job, latest=True).num_rows > 0
    assert Results(url).jobs() == ["j", "top"]
    told, expected = status(url), status(tmp_path / "state")
    assert [row["windows"] for row in told[0]] == [row["windows"] for row in expected[0]]


@contextmanager
def growing(logs: Path) -> Iterator[None]:
    """Within the block, a log gets twenty records a second."""
    over = threading.Event()

    def grow() -> None:
        t = 1
        while not over.wait(0.05):
            write(logs, "a", t)
            t += 1

    thread = threading.Thread(target=grow)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def require_all(url: str, logs: Path) -> None:
    """Every window has what is in the log, once."""
    truth: dict[tuple[int, str], int] = {}
    for line in map(json.loads, (logs / "a.log").read_text().splitlines()):
        for start in range(line["t"] // 10 * 10 - 10, line["t"] // 10 * 10 + 1, 10):
            truth[start, line["k"]] = truth.get((start, line["k"]), 0) + 1
    found = Results(url).read("j").to_pylist()
    counted = {(int(r["window_start"].timestamp()), r["k"]): r["c"] for r in found}
    assert len(found) == len(counted)
    assert counted == truth


@pytest.mark.jvm
def test_a_killed_program_loses_and_repeats_nothing(tmp_path: Path, url: str) -> None:
    logs = tmp_path / "logs"
    write(logs, "a", 0)
    (tmp_path / "jobs.sql").write_text(PROGRAM.format(folder=logs))
    command = [sys.executable, "-m", "muntin", "run", str(tmp_path / "jobs.sql"), "--state", url]
    command += ["--master", "local[1]", "--idle", "1h"]
    with growing(logs):
        with (tmp_path / "out").open("w") as out:
            process = subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True)
        try:
            wait_for(lambda: count(url) > 3)
            # Another program is told who has the state.
            refused = subprocess.run(command, capture_output=True, text=True, timeout=100)
            assert f"in use by process {process.pid} on " in refused.stderr
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    done = subprocess.run([*command, "--once"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    require_all(url, logs)


LARGE = """
CREATE STREAM s (t BIGINT, k VARCHAR) FROM '{folder}/{{source}}.log' FORMAT json TIMESTAMP t;
CREATE JOB plain AS SELECT k, count(*) AS c FROM s GROUP BY k WINDOW 20 SECONDS EVERY 10 SECONDS;
CREATE JOB ordered AS SELECT k, count(*) AS c FROM s GROUP BY k ORDER BY c DESC, k DESC
WINDOW 10 SECONDS;
"""
KEYS_OF_WINDOW = 40_000


@pytest.mark.jvm
def test_tasks_write_large_results_and_blocks_to_a_url(tmp_path: Path, url: str) -> None:
    """Into a storage that fails now and then; the second program goes on from what is there."""
    logs = tmp_path / "logs"
    logs.mkdir()
    (tmp_path / "jobs.sql").write_text(LARGE.format(folder=logs))
    command = [sys.executable, "-m", "muntin", "run", str(tmp_path / "jobs.sql"), "--state", url]
    command += ["--master", "local[2]", "--idle", "1h"]
    for first in (0, 15):
        with (logs / "a.log").open("a") as log:
            for t in range(first, first + 15):
                keys = range(t % 10, KEYS_OF_WINDOW, 10)
                log.writelines(f'{{"t": {BASE + t}, "k": "key {key:06}"}}\n' for key in keys)
        if first == 0:  # the last five seconds are in blocks then
            with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
                wait_for(lambda: Results(url).has("ordered"))
                wait_for(lambda: saved_seconds(url) == 15)
                process.send_signal(signal.SIGINT)
    done = subprocess.run([*command, "--once"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    truth: dict[str, list[tuple[int, str, int]]] = {}
    for result in mt.run(mt.load(tmp_path / "jobs.sql")):
        each = truth.setdefault(result.job, [])
        each += ((result.start, row["k"], row["c"]) for row in result.rows.to_pylist())
    for job, wanted in truth.items():
        found = Results(url).read(job).to_pylist()
        stored = [(int(r["window_start"].timestamp() * 1e6), r["k"], r["c"]) for r in found]
        assert stored == wanted if job == "ordered" else sorted(stored) == sorted(wanted)
        assert len(wanted) > KEYS_OF_WINDOW
    assert list(check(url)) == []


def saved_seconds(url: str) -> int:
    """How many seconds of records are committed."""
    return sum(stream.records for stream in show(url).streams) // (KEYS_OF_WINDOW // 10)


def count(url: str) -> int:
    try:
        return len({row["window_start"] for row in Results(url).read("top").to_pylist()})
    except (mt.InputError, StateError):
        return 0


def test_a_frame_has_its_state_under_a_url(spark: SparkSession, tmp_path: Path, url: str) -> None:
    """Spark's notes are of this machine; the next program has them from the state."""
    from muntin.spark.attach import _posts

    frames = tmp_path / "in"
    frames.mkdir()
    for batch in range(2):
        for number in (0, 1):
            at, file = 100 * batch + 40 * number, tmp_path / f"{batch}{number}.json"
            line = {"at": f"2026-01-01T12:{at // 60:02}:{at % 60:02}Z", "n": 1 + at}
            file.write_text(json.dumps(line) + "\n")
            file.rename(frames / file.name)
        frame = spark.readStream.schema("at timestamp, n bigint").json(str(frames))
        jobs = "CREATE JOB sums AS SELECT sum(n) AS n FROM f WINDOW 1 MINUTE;"
        query = mt.attach(frame, jobs, stream="f", timestamp="at", state=url)
        try:
            query.processAllAvailable()
        finally:
            query.stop()
        wait_for(lambda: not query.isActive)  # noqa: B023
        # The thread that looks at the clock lets the state go a moment later.
        wait_for(lambda: is_free(url))
        _posts.clear()  # as in another process
    rows = [(r["window_start"].minute, r["n"]) for r in mt.results("sums", url).to_pylist()]
    assert rows == [(0, 1 + 41), (1, 101)]
    names = objects.ObjectStorage.at(url).sizes("spark/f")
    assert {name.partition("/")[0] for name in names} >= {"offsets", "metadata"}


def is_free(url: str) -> bool:
    try:
        require_free(url)
    except StateError:
        return False
    return True
