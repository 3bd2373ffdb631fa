"""A master that is not there is told at once; one that has nothing to give, after a while."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from muntin.errors import InputError, SparkError
from muntin.spark.internals import spark_home
from muntin.spark.master import is_local, require_known, require_reached
from tests.ports import free_port
from tests.show.test_console import ROWS, SQL, start
from tests.waiting import PATIENCE, wait_for


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "web.jsonl").write_text(ROWS)
    (tmp_path / "jobs.sql").write_text(SQL)
    return tmp_path


@contextmanager
def silent() -> Iterator[str]:
    """A master that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def test_masters_are_reached_or_not() -> None:
    for master in (None, "local[2]", "yarn", "k8s://127.0.0.1:1"):
        require_reached(master)
    with silent() as address:
        require_reached(f"spark://{address}")
        require_reached(f"spark://127.0.0.1:1,{address}")
    for address, why in (
        ("127.0.0.1:1", "127.0.0.1:1: Connection refused"),
        ("127.0.0.1:1,127.0.0.1:2", "127.0.0.1:1: Connection refused; 127.0.0.1:2: Conn"),
        ("127.0.0.1:99999", "127.0.0.1:99999: this is no HOST:PORT"),
        ("127001:7077", "127001:7077: this is no HOST:PORT"),
        ("2130706433", "2130706433: this is no HOST:PORT"),  # which is 127.0.0.1
        ("0x7f000001:1", "0x7f000001:1: this is no HOST:PORT"),
        ("no.such.host.invalid:7077", "no.such.host.invalid:7077: "),
    ):
        with pytest.raises(SparkError, match=re.escape(f"is not reached ({why}")):
            require_reached(f"spark://{address}")
    assert (is_local(None), is_local("local[2]"), is_local("spark://a:1")) == (True, True, False)


@pytest.mark.parametrize(
    "master",
    [None, "local", "local[2]", "local[*]", "local[*,4]", "local-cluster[2,1,900]",
     "yarn", "spark://a:1", "spark://a:1,b:2", "k8s://https://a:6443", "other://a"],
)  # fmt: skip
def test_masters_that_spark_knows(master: str | None) -> None:
    require_known(master)


@pytest.mark.parametrize(
    "master", ["", "lokal", "local[0]", "local[x]", "local[2", "Yarn", "a:7077"]
)
def test_what_is_no_master_is_refused(master: str) -> None:
    with pytest.raises(InputError, match="is no Spark master; give local"):
        require_known(master)


@pytest.mark.parametrize("words", [("run", "jobs.sql", "--once"), ("ask", "SELECT n FROM sums")])
def test_a_master_that_is_not_there_ends_a_run_at_once(
    folder: Path, words: tuple[str, ...]
) -> None:
    began = time.monotonic()
    process = start(folder, *words, "--master", "spark://127.0.0.1:1")
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1
    assert err.startswith("error: the Spark master spark://127.0.0.1:1 is not reached")
    assert len(err.splitlines()) == 1
    assert time.monotonic() - began < 30  # on a loaded machine; Spark takes a minute more


@contextmanager
def empty_cluster(folder: Path) -> Iterator[str]:
    """A real master without workers."""
    port = free_port()
    java = Path(os.environ.get("JAVA_HOME", "/usr"), "bin", "java")
    command = [str(java), "-cp", f"{spark_home()}/jars/*", "org.apache.spark.deploy.master.Master"]
    command += ["--host", "127.0.0.1", "--port", str(port), "--webui-port", str(free_port())]
    with (folder / "master.log").open("wb") as log:
        process = subprocess.Popen(
            command,
            stdout=log,
            stderr=log,
            env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"},
        )
        try:
            wait_for(lambda: b"ALIVE" in (folder / "master.log").read_bytes())
            yield f"spark://127.0.0.1:{port}"
        finally:
            process.kill()
            process.wait()


def lines_of(process: subprocess.Popen[str], wanted: str) -> str:
    """What is said up to a line that has these words."""
    assert process.stderr is not None
    said = ""
    while wanted not in said:
        line = process.stderr.readline()
        assert line, said
        said += line
    return said


@pytest.mark.jvm
def test_a_cluster_that_has_nothing_to_give_is_told_and_left_at_once(folder: Path) -> None:
    with empty_cluster(folder) as master:
        process = start(folder, "run", "jobs.sql", "--once", "--master", master)
        lines_of(process, f"waiting for executors: {master} has given none yet")
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE)
        assert (process.returncode, err.strip().splitlines()[-1]) == (130, "stopped")
        assert "Traceback" not in err
        assert "Exception" not in err
        assert time.monotonic() - began < 30


def with_yarn(folder: Path, address: str) -> None:
    settings = {"resourcemanager.address": address, "resourcemanager.hostname": "elsewhere"}
    properties = "".join(
        f"<property><name>yarn.{name}</name><value>{value}</value></property>"
        for name, value in settings.items()
    )
    (folder / "yarn-site.xml").write_text(f"<configuration>{properties}</configuration>")


def test_a_yarn_that_is_not_there_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_yarn(folder, "127.0.0.1:1")
    monkeypatch.setenv("HADOOP_CONF_DIR", str(folder))
    why = (
        "the resource manager of YARN is not reached (127.0.0.1:1: Connection refused); check that"
    )
    with pytest.raises(SparkError, match=re.escape(why)):
        require_reached("yarn")


@pytest.mark.jvm
def test_a_yarn_that_does_not_answer_is_told_and_left_at_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with silent() as address:
        with_yarn(folder, address)
        monkeypatch.setenv("HADOOP_CONF_DIR", str(folder))
        process = start(folder, "run", "jobs.sql", "--once", "--master", "yarn")
        lines_of(process, f"the resource manager of YARN at {address} has not answered yet")
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, err.strip().splitlines()[-1]) == (130, "stopped")
    assert "Traceback" not in err
    assert time.monotonic() - began < 30


@pytest.mark.jvm
def test_a_master_that_does_not_answer_is_told_and_left_at_once(folder: Path) -> None:
    with silent() as address:
        process = start(folder, "run", "jobs.sql", "--once", "--master", f"spark://{address}")
        lines_of(process, f"spark://{address} has not answered yet")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, err.strip().splitlines()[-1]) == (130, "stopped")
    assert "Traceback" not in err
