"""A real cluster on loopback: the same rows as anywhere, whoever of it is killed meanwhile."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import muntin as mt
from muntin.errors import InputError, StartError, StateError
from muntin.spark.cluster import Cluster, Plan, Started
from muntin.store.results import Results
from tests.ask.keeping import Kept
from tests.ports import free_port
from tests.show.test_console import children
from tests.waiting import PATIENCE, wait_for

SQL = """
CREATE STREAM logs (t BIGINT, k VARCHAR, n BIGINT) FROM '{folder}/logs/{{source}}.log'
FORMAT json TIMESTAMP t;
CREATE JOB sums AS SELECT k, sum(n) AS n, count(*) AS c FROM logs GROUP BY k WINDOW 10 SECONDS;
CREATE JOB top AS SELECT k, max(n) AS n FROM logs GROUP BY k ORDER BY n DESC LIMIT 3
WINDOW 60 SECONDS EVERY 10 SECONDS;
"""
BASE = 1_700_000_000
SOURCES = ("web-1", "web-2", "web-3")
WORKERS = 2


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, Plan]]:
    cluster = Cluster(tmp_path_factory.mktemp("cluster"))
    plan = Plan(WORKERS, port=free_port())
    cluster.up(plan)
    yield cluster, plan
    cluster.down()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "logs").mkdir()
    (tmp_path / "jobs.sql").write_text(SQL.format(folder=tmp_path))
    return tmp_path


def write(folder: Path, first: int, last: int) -> None:
    """Records of some seconds, of all servers."""
    for number, source in enumerate(SOURCES):
        with (folder / "logs" / f"{source}.log").open("a") as log:
            for t in range(first, last):
                for n in range(5):
                    row = {"t": BASE + t, "k": f"k{(t * n + number) % 7}", "n": t * 10 + n}
                    log.write(json.dumps(row) + "\n")


@contextmanager
def run(folder: Path, *args: str, **variables: str) -> Iterator[subprocess.Popen[str]]:
    words = [sys.executable, "-m", "muntin", "run", "jobs.sql", "--state", "state", *args]
    with subprocess.Popen(
        words, cwd=folder, env=os.environ | variables, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def stored(folder: Path, job: str) -> list[tuple[int, str, int]]:
    """Start of the window, key and value of what has left; all of it is complete."""
    results = Results(folder / "state")
    found = results.read(job).to_pylist() if results.has(job) else []
    assert all(row["c2"]["area"] == 1.0 for row in found)
    return sorted((int(r["window_start"].timestamp()), r["k"], r["n"]) for r in found)


@cache
def truth(folder: Path, job: str, upto: int) -> list[tuple[int, str, int]]:
    """The same, computed in this process, of windows that end by a second."""
    return sorted(
        (result.start // 1_000_000, row["k"], row["n"])
        for result in mt.run(mt.sql(SQL.format(folder=folder)))
        if result.job == job and result.end <= (BASE + upto) * 1_000_000
        for row in result.rows.to_pylist()
    )


def has(process: subprocess.Popen[str], folder: Path, job: str, upto: int) -> bool:
    """Whether all has left that a run can know to be over."""
    assert process.poll() is None
    return stored(folder, job) == truth(folder, job, upto)


class Said:
    """What a run says, line by line."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.text = ""

    def read_to(self, words: str) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.text += line
            if words in line:
                return
        pytest.fail(f"'{words}' was not said:\n{self.text}")


def daemons(cluster: Cluster) -> dict[str, int]:
    up = json.loads((cluster.folder / "cluster.json").read_text())
    return {name: each["pid"] for name, each in up["processes"].items()}


def workers(cluster: Cluster) -> dict[str, int]:
    return {name: pid for name, pid in daemons(cluster).items() if name != "master"}


def executors(cluster: Cluster) -> dict[str, int]:
    """The processes of executors by worker, as far as there are some."""
    return {name: child for name, pid in workers(cluster).items() for child in children(pid)}


@pytest.mark.jvm
@pytest.mark.xdist_group("cluster")
def test_whoever_is_killed_rows_are_the_same_and_the_run_goes_on(
    cluster: tuple[Cluster, Plan], folder: Path
) -> None:
    """A Python worker, an executor, the master, and all workers, of one run that follows logs."""
    there, plan = cluster
    write(folder, 0, 25)
    bound = PATIENCE / 2
    with run(
        folder, "--master", plan.master, "--idle", "10m", "--recovery", f"{bound:g} SECONDS"
    ) as process:
        said = Said(process)
        said.read_to("following the logs")
        wait_for(lambda: has(process, folder, "sums", 20))

        of_one = wait_for(lambda: executors(there).get("worker-1", 0))
        (daemon,) = wait_for(lambda: children(of_one))
        for worker in children(daemon):  # which Spark would use again
            os.kill(worker, signal.SIGKILL)
        write(folder, 25, 45)
        wait_for(lambda: has(process, folder, "sums", 40))

        wait_for(lambda: len(executors(there)) == WORKERS)
        os.kill(of_one, signal.SIGKILL)
        write(folder, 45, 75)
        said.read_to("note: stream 'logs' goes on from its last commit: Spark has lost an executor")
        said.read_to("note: stream 'logs' stands where it stood, ")
        seconds = re.findall(r"stood, ([\d.]+) s after the loss was noticed\n", said.text)
        assert float(seconds[-1]) <= bound
        wait_for(lambda: has(process, folder, "sums", 70))
        said.read_to("note: stream 'logs' goes on from its last commit: executors have come")

        os.kill(daemons(there)["master"], signal.SIGKILL)
        write(folder, 75, 95)
        wait_for(lambda: has(process, folder, "sums", 90))
        assert there.up(plan)[0].startswith("master had ended before; see the logs")

        for worker in workers(there).values():
            os.kill(worker, signal.SIGKILL)
        write(folder, 95, 115)
        said.read_to(f"waiting for executors: {plan.master} has given none")
        assert there.up(plan)[0].startswith("worker-1, worker-2 had ended before; see the logs")
        # From a master that was started since, which knows the run from the one before.
        wait_for(lambda: has(process, folder, "sums", 110))
        wait_for(lambda: has(process, folder, "top", 110))

        process.send_signal(signal.SIGINT)
        said.read_to("results are in")
        assert process.wait(PATIENCE) == 0
        assert "Traceback" not in said.text
        assert "Exception" not in said.text


LIVE = """
CREATE STREAM logs (t DOUBLE, n BIGINT) FROM '{folder}/logs/{{source}}.log'
FORMAT json TIMESTAMP t SLACK 1 SECOND;
CREATE JOB sums AS SELECT source, count(*) AS c, sum(n) AS n FROM logs GROUP BY source
WINDOW 4 SECONDS EVERY 1 SECOND WITHIN {within} SECONDS;
"""
WITHIN = 15
_NEAR_END = 3  # windows for which the last records may not have been read yet


class Live:
    """Servers that write a record each tenth of a second, with the time of now, in the block."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self.written: dict[tuple[str, int], list[int]] = {}  # numbers by server and second

    def __enter__(self) -> Live:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _write(self) -> None:
        for number in count(1):
            for source in SOURCES:
                now = time.time()
                with (self._folder / "logs" / f"{source}.log").open("a") as log:
                    log.write(json.dumps({"t": now, "n": number}) + "\n")
                self.written.setdefault((source, int(now)), []).append(number)
            if self._stop.wait(0.1):
                return

    def truth(self, source: str, start: int, end: int) -> tuple[int, int]:
        """How many records a server has written between two seconds, and their sum."""
        numbers = [n for t in range(start, end) for n in self.written.get((source, t), ())]
        return len(numbers), sum(numbers)


def left_in(folder: Path) -> dict[int, list[dict[str, Any]]]:
    """The rows of windows by their end, as they are stored."""
    results, windows = Results(folder / "state"), dict[int, list[dict[str, Any]]]()
    for row in results.read("sums").to_pylist() if results.has("sums") else ():
        windows.setdefault(int(row["window_end"].timestamp()), []).append(row)
    return windows


def worked(executor: int) -> int:
    """How long the Python of an executor has worked, in ticks of the system."""
    workers = [worker for daemon in children(executor) for worker in children(daemon)]
    stats = (Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in workers)
    return sum(int(stat[11]) + int(stat[12]) for stat in stats)


@pytest.mark.jvm
@pytest.mark.xdist_group("cluster")
def test_windows_leave_by_their_bound_while_an_executor_is_lost(
    cluster: tuple[Cluster, Plan], folder: Path
) -> None:
    there, plan = cluster
    (folder / "jobs.sql").write_text(LIVE.format(folder=folder, within=WITHIN))
    with Live(folder) as live, run(folder, "--master", plan.master) as process:
        said = Said(process)
        said.read_to("following the logs")
        wait_for(lambda: len(left_in(folder)) > 5)
        lost_at = []
        for _ in range(2):
            before = set(executors(there).values())
            killed = wait_for(lambda: executors(there).get("worker-1", 0))
            lost_at.append(time.time())
            os.kill(killed, signal.SIGKILL)
            said.read_to("goes on from its last commit: executors have come, to spread it over")
            (come,) = wait_for(lambda: set(executors(there).values()) - before)  # noqa: B023
            done = worked(come)
            assert done  # it is given tasks of a batch once its Python has started
            wait_for(lambda: worked(come) > done)  # noqa: B023
            upto = time.time() + 2
            wait_for(lambda: max(left_in(folder)) > upto)  # noqa: B023
        process.send_signal(signal.SIGINT)
        said.read_to("results are in")
    windows = left_in(folder)
    ends = range(int(lost_at[0]) - 3, max(windows) - _NEAR_END)
    assert [end for end in ends if end not in windows] == []
    for end in ends:
        late = max(row["emitted_at"].timestamp() for row in windows[end]) - end
        assert late <= WITHIN, f"the window up to {end} was {late:.1f} s late; lost at {lost_at}"
        c2 = windows[end][0]["c2"]
        named = {missing["source"] for missing in c2["missing"]}
        assert c2["area"] == 1.0 or named
        found = {row["source"]: (row["c"], row["n"]) for row in windows[end]}
        for source in SOURCES:
            if source not in named:
                assert found[source] == live.truth(source, end - 4, end), (source, end)
    assert "Traceback" not in said.text


@pytest.mark.jvm
@pytest.mark.xdist_group("cluster")
def test_questions_are_answered_though_executors_are_killed_meanwhile(
    cluster: tuple[Cluster, Plan], folder: Path
) -> None:
    there, plan = cluster
    write(folder, 0, 200)
    program = SQL.format(folder=folder).replace(
        "WINDOW 10 SECONDS;", "WINDOW 10 SECONDS RETAIN 1 DAY;"
    )
    Kept(mt.sql(program), folder / "state", batch_bytes=4_000).finish(2)
    question = "SELECT k, n, c FROM sums GROUP BY k ORDER BY k"
    words = [sys.executable, "-m", "muntin", "ask", question, "--state", "state", "--format", "csv"]
    told = [subprocess.run(words, cwd=folder, capture_output=True, text=True, check=True).stdout]
    killed: set[int] = set()
    with subprocess.Popen(
        [*words, "--master", plan.master], cwd=folder, stdout=subprocess.PIPE, text=True
    ) as process:
        while process.poll() is None:
            found = executors(there).get("worker-1", 0)
            if found and found not in killed and len(killed) < 3:
                os.kill(found, signal.SIGKILL)
                killed.add(found)
            time.sleep(0.05)
        assert process.stdout is not None
        told.append(process.stdout.read())
    assert process.returncode == 0
    assert told[0] == told[1]
    assert told[0].startswith("k,n,c\nk0,")
    assert killed


@pytest.mark.jvm
@pytest.mark.xdist_group("cluster")
def test_packages_are_sent_to_executors_without_them(
    cluster: tuple[Cluster, Plan], folder: Path
) -> None:
    venv.create(folder / "bare", symlinks=True)
    write(folder, 0, 30)
    variables = {
        "PYSPARK_PYTHON": str(folder / "bare" / "bin" / "python"),
        "PYSPARK_SUBMIT_ARGS": "--conf spark.cores.max=1 pyspark-shell",
        "MUNTIN_CACHE": str(folder / "cache"),
    }
    with run(folder, "--once", "--master", cluster[1].master, **variables) as process:
        _, err = process.communicate(timeout=2 * PATIENCE)
    assert process.returncode == 0, err
    assert re.search(r"an executor has no Python with Muntin \(.*No module named", err), err
    assert re.search(r"[1-9]\d* MB of packages are sent to the executors", err)
    assert len(list((folder / "cache").glob("packages-*.zip"))) == 1
    assert stored(folder, "sums") == truth(folder, "sums", 30)


@pytest.mark.jvm
@pytest.mark.xdist_group("cluster")
def test_logs_that_executors_do_not_see_are_told_with_their_host(
    cluster: tuple[Cluster, Plan], folder: Path
) -> None:
    here = SQL.format(folder="/proc/self/cwd")  # which is another folder in every process
    (folder / "jobs.sql").write_text(here)
    write(folder, 0, 30)
    with run(folder, "--once", "--master", cluster[1].master) as process:
        _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1
    last = err.strip().splitlines()[-1]
    assert re.match(
        rf"error: /proc/self/cwd/logs/web-\d.log was removed before it was read \(on host "
        rf"{socket.gethostname()}\), but can be read where the program runs; executors need logs",
        last,
    ), err
    assert stored(folder, "sums") == []


@pytest.mark.jvm
@pytest.mark.xdist_group("cluster")
def test_up_and_down_do_what_is_left_to_do(cluster: tuple[Cluster, Plan], tmp_path: Path) -> None:
    there, plan = cluster
    before = (there.folder / "cluster.json").read_text()
    assert there.up(plan) == [
        f"the cluster is up already, with 2 workers of 1 core and 1g at {plan.master}"
    ]
    assert (there.folder / "cluster.json").read_text() == before
    with pytest.raises(StateError, match=r"a cluster with 2 workers .* is up already in .*down"):
        there.up(Plan(3, port=plan.port))
    with pytest.raises(InputError, match=rf"port {plan.port} .* in use; give another one with"):
        Cluster(tmp_path / "other").up(plan)
    assert Cluster(tmp_path / "other").down() == [f"no cluster is up in {tmp_path / 'other'}"]


def test_only_own_processes_are_ended(tmp_path: Path) -> None:
    """A file of before a restart of the machine: one process has gone, another has its number."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
    try:
        mine = Started.of(process.pid)
        assert mine is not None
        assert mine.runs
        other = Started(process.pid, mine.ticks - 1)
        assert not other.runs
        up = {
            "plan": {"workers": 1, "cores": 1, "memory": "1g", "port": 7077},
            "page": 8080,
            "processes": {"worker-1": {"pid": process.pid, "ticks": mine.ticks - 1}},
        }
        (tmp_path / "cluster.json").write_text(json.dumps(up))
        told = Cluster(tmp_path).down()
        assert told == [
            f"worker-1 had ended before; see the logs in {tmp_path}",
            "0 processes ended",
        ]
        assert process.poll() is None
        assert not (tmp_path / "cluster.json").exists()
    finally:
        process.kill()
        process.wait()
    assert Started.of(process.pid) is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"workers": 0}, "--workers is a number from 1 to 100, not 0"),
        ({"cores": 0}, "--cores is 1 or more, not 0"),
        ({"port": 99999}, "--port is a number from 1 to 65535, not 99999"),
        ({"memory": "lots"}, "--memory is as Spark has it, 1g or 1500m, not 'lots'"),
        ({"memory": "512m"}, "--memory 512m is less than 1g"),
    ],
)
def test_wrong_plans_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        Plan(**({"workers": 1} | options))


def test_without_java_or_a_folder_nothing_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StateError, match="cannot be used: Not a directory; give another --dir"):
        Cluster(tmp_path / "file" / "x").down()
    (tmp_path / "cluster.json").write_text("{}")
    with pytest.raises(StateError, match=r"cannot be read: .*; remove it"):
        Cluster(tmp_path).down()
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(StartError, match="there is no Java to start a cluster with"):
        Cluster(tmp_path / "new").up(Plan(1))
    assert not (tmp_path / "new").exists()
