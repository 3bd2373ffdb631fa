"""A state on HDFS whose nodes are killed while a program runs, and what others see of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import muntin as mt
from muntin.store.inspection import check
from tests.store.hdfs import serving
from tests.waiting import wait_for
from tests.whole.test_objects import PROGRAM, count, growing, require_all, write

MUNTIN = [sys.executable, "-m", "muntin"]


@pytest.mark.jvm
def test_a_run_goes_on_when_nodes_come_back(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    write(logs, "a", 0)
    (tmp_path / "jobs.sql").write_text(PROGRAM.format(folder=logs))
    with serving() as server:
        url = f"{server.url}/some/state"
        command = [*MUNTIN, "run", str(tmp_path / "jobs.sql"), "--state", url]
        command += ["--master", "local[1]", "--idle", "1h"]
        with (
            growing(logs),
            (tmp_path / "out").open("w") as out,
            subprocess.Popen(command, stdout=out, stderr=out) as process,
        ):
            try:
                for kill in (server.kill_name_node, server.kill_data_node):
                    before = count(url)
                    wait_for(lambda: count(url) > before + 2)  # noqa: B023
                    kill()
                    server.start()
                before = count(url)
                wait_for(lambda: count(url) > before + 2)
            finally:
                process.kill()
        done = subprocess.run([*command, "--once"], capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        require_all(url, logs)
        assert list(check(url)) == []
        everyone = pa.table(DeltaTable(f"{url}/results/j").to_pyarrow_dataset().to_table())
        assert everyone.num_rows == mt.results("j", url).num_rows > 0
        for words in (
            ["state", "show", url],
            ["status", "--state", url],
            ["results", "j", "--state", url],
        ):
            done = subprocess.run([*MUNTIN, *words], capture_output=True, text=True, timeout=100)
            assert done.returncode == 0, done.stderr
