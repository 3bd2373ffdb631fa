"""HDFS on this machine: a NameNode and a DataNode in processes of their own, which may be killed.

Their jars come from `scripts/hdfs-jars`; where these cannot be had, tests are skipped.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import count
from pathlib import Path

import pytest

from muntin.store.hdfs import Hdfs
from muntin.store.requests import RequestError
from tests.ports import free_port
from tests.waiting import wait_for

_ROOT = Path(__file__).parents[2]
_NODES = "org.apache.hadoop.hdfs.server"
_NAME_NODE, _DATA_NODE = f"{_NODES}.namenode.NameNode", f"{_NODES}.datanode.DataNode"
# Hadoop of that time looks into classes that Java keeps closed now.
_OPENED = [
    f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in ("lang", "util", "net", "nio")
]
_LOGGING = """log4j.rootLogger=WARN,c
log4j.appender.c=org.apache.log4j.ConsoleAppender
log4j.appender.c.layout=org.apache.log4j.PatternLayout
log4j.appender.c.layout.ConversionPattern=%d %p %c: %m%n
"""
_numbers = count()


class Server:
    """A file system of one DataNode, in a folder; everybody may use it but where a test forbids."""

    def __init__(self, folder: Path, jars: Path) -> None:
        self._folder = folder
        self._jars = jars
        self.port = free_port()
        self._nodes: dict[str, subprocess.Popen[bytes]] = {}
        for name in ("hdfs", "datanode", "static"):  # pages of which there are none
            (folder / "conf" / "webapps" / name / "WEB-INF").mkdir(parents=True)
        (folder / "conf" / "log4j.properties").write_text(_LOGGING)
        settings = {
            "fs.defaultFS": self.url,
            "dfs.namenode.name.dir": f"{folder}/names",
            "dfs.datanode.data.dir": f"{folder}/data",
            "dfs.namenode.http-address": f"127.0.0.1:{free_port()}",
            "dfs.datanode.address": f"127.0.0.1:{free_port()}",
            "dfs.datanode.http.address": f"127.0.0.1:{free_port()}",
            "dfs.datanode.ipc.address": f"127.0.0.1:{free_port()}",
            "dfs.replication": "1",
            "dfs.webhdfs.enabled": "false",
            "dfs.namenode.datanode.registration.ip-hostname-check": "false",
            "dfs.heartbeat.interval": "1",
            "dfs.namenode.safemode.extension": "0",
        }
        told = "".join(
            f"<property><name>{k}</name><value>{v}</value></property>" for k, v in settings.items()
        )
        for name in ("core-site.xml", "hdfs-site.xml"):
            (folder / "conf" / name).write_text(f"<configuration>{told}</configuration>\n")
        self._java(_NAME_NODE, "-format", "-force").wait()
        self.start()

    @property
    def url(self) -> str:
        return f"hdfs://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Has both nodes run, and returns when files can be written."""
        for node in (_NAME_NODE, _DATA_NODE):
            if node not in self._nodes:
                self._nodes[node] = self._java(node)
        wait_for(self._writes, every=0.2)

    @property
    def running(self) -> list[str]:
        return list(self._nodes)

    def kill(self, *nodes: str) -> None:
        for node in nodes:
            process = self._nodes.pop(node)
            process.kill()
            process.wait()

    def kill_name_node(self) -> None:
        self.kill(_NAME_NODE)

    def kill_data_node(self) -> None:
        self.kill(_DATA_NODE)

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Within the block, the NameNode takes requests and answers none."""
        self._nodes[_NAME_NODE].send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._nodes[_NAME_NODE].send_signal(signal.SIGCONT)

    def _java(self, *words: str) -> subprocess.Popen[bytes]:
        home = os.environ.get("JAVA_HOME")
        java = f"{home}/bin/java" if home else "java"
        path = f"{self._folder}/conf:{self._jars}/*"
        with (self._folder / "log").open("ab") as log:
            return subprocess.Popen(
                [java, "-Xmx256m", *_OPENED, "-cp", path, *words], stdout=log, stderr=log
            )

    def _writes(self) -> bool:
        with socket.socket() as asking:
            if asking.connect_ex(("127.0.0.1", self.port)) != 0:
                return False
        try:
            Hdfs.at(f"{self.url}/probe", 3.0, {}).put("a", b"1")
        except RequestError:
            return False
        return True


def jars() -> Path:
    """The folder with the jars; the test is skipped where there is none."""
    done = _asked_for_jars()
    if done.returncode:
        pytest.skip(done.stderr.strip())
    return Path(done.stdout.strip())


@cache  # of failures, too: each would take as long as the first
def _asked_for_jars() -> subprocess.CompletedProcess[str]:
    words = [str(_ROOT / "scripts" / "hdfs-jars"), sys.executable]
    return subprocess.run(words, capture_output=True, text=True)


@contextmanager
def serving() -> Iterator[Server]:
    """A new server, which ends with the block."""
    folder = Path(tempfile.mkdtemp(prefix="muntin-hdfs-"))
    server = None
    try:
        server = Server(folder, jars())
        yield server
    finally:
        if server is not None:
            server.kill(*server.running)
        shutil.rmtree(folder)


@pytest.fixture(scope="session")
def hdfs_server() -> Iterator[Server]:
    """One for all tests of a process that leave it as it is."""
    with serving() as server:
        yield server


@pytest.fixture
def hdfs(hdfs_server: Server) -> str:
    """The URL of a folder that is not there yet."""
    return f"{hdfs_server.url}/test-{next(_numbers)}/some/state"
