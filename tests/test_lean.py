"""What agents and relays become: processes without what the command line needs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.agent.serving import AgentProcess
from tests.relay.serving import RelayProcess
from tests.run.test_agents import Pipeline, asked

LIBRARIES = ("pandas", "pydantic_core", "deltalake", "cryptography")


def loaded(process: int) -> set[str]:
    """The libraries of a process, of those that it should do without."""
    maps = Path(f"/proc/{process}/maps").read_text()
    return {name for name in LIBRARIES if f"/{name}/" in maps}


def test_agents_and_relays_have_nothing_that_they_do_not_need(tmp_path: Path) -> None:
    agent = AgentProcess("web01", tmp_path / "web01")
    agent.write([(1000.0 + i, "a", 1) for i in range(30)])
    relay = RelayProcess(agent.address)
    pipeline = Pipeline(asked([relay.address]), idle=2.0)
    pipeline.until(3)
    pipeline.intake.close()
    assert (loaded(agent.pid), loaded(relay.pid)) == (set(), set())
    assert (agent.stop(), relay.stop()) == (0, 0)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--config", "none"], "none cannot be read: No such file or directory"),
        (["--memory", "5 apples"], "--memory 5 apples: unknown unit 'apples'; expected bytes"),
        (["--mutual"], "--mutual is about certificates; give --keys too"),
        (["--keys", "none"], "none has no web.pem and web.key; `muntin keys none web` makes them"),
        (["--cpu", "0"], "--cpu 0 is no share of a core, as 0.5 is"),
        (["--listen", "all"], "--listen all is no address; say for example 127.0.0.1:7070"),
    ],
)
def test_mistakes_are_one_message(tmp_path: Path, words: list[str], told: str) -> None:
    (tmp_path / "agent.toml").write_text("[streams.logs]\npaths = '/x/*.log'\n")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "muntin",
            "agent",
            "--name",
            "web",
            "--config",
            "agent.toml",
            *words,
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path.cwd())},
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"error: {told}")
    assert done.stderr.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["agent.toml"]


def test_who_is_hidden_seems_not_to_be_installed() -> None:
    code = (
        "from muntin.lean import hide\n"
        "hide(['pandas'])\n"
        "import pyarrow, duckdb\n"
        "con = duckdb.connect()\n"
        "con.register('t', pyarrow.table({'a': [1]}))\n"
        "print(con.execute('FROM t').fetchall())\n"
        "import pandas\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "[(1,)]\n"
    assert done.stderr.endswith("ModuleNotFoundError: No module named 'pandas'\n")
