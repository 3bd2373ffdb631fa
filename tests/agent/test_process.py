"""`muntin agent` as it is started, killed and started again."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from muntin.agent.process import serve
from muntin.agent.settings import AgentSettings
from muntin.errors import InputError
from muntin.wire.process import Door
from tests.agent.serving import AgentProcess
from tests.run.test_agents import Pipeline, asked


def test_killed_at_any_moment_nothing_counts_twice_and_nothing_is_missing(tmp_path: Path) -> None:
    agents = [AgentProcess(name, tmp_path / name) for name in ("web01", "web02")]
    truth: Counter[tuple[int, str]] = Counter()

    def write(number: int, second: int) -> None:
        records = [(1000 + second + i / 20, "ab"[i % 2], i) for i in range(20)]
        agents[number].write(records)
        truth.update((int(t) // 5 * 5, k) for t, k, _ in records)

    for number in (0, 1):
        write(number, 0)
    places = ", ".join(repr(agent.address) for agent in agents)
    jobs = "CREATE JOB sums AS SELECT k, count(*) AS c FROM logs GROUP BY k WINDOW 5 SECONDS"
    pipeline = Pipeline(f"CREATE STREAM logs FROM AGENTS {places}; {jobs}")
    for second in range(1, 60):
        for number in (0, 1):
            write(number, second)
        pipeline.turn()
        time.sleep(0.03)
        if second % 7 == 0:
            agents[second % 2].kill()
            pipeline.turn()
            write(second % 2, second)
            agents[second % 2].start()
    pipeline.until(20)
    for row in pipeline.rows["sums"]:
        start = int(row["window_start"].timestamp())
        assert row["c"] == truth[start, row["k"]]
        assert row["c2"]["area"] == 1.0
    assert len({(row["window_start"], row["k"]) for row in pipeline.rows["sums"]}) >= 20
    pipeline.intake.close()
    assert [agent.stop() for agent in agents] == [0, 0]


def test_it_loads_neither_spark_nor_pandas_nor_the_compiler() -> None:
    code = (
        "import sys, muntin.agent.process\n"
        "heavy = {'pyspark', 'pandas', 'sqlglot', 'deltalake', 'rich', 'typer'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


ALONE = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"cryptography", "deltalake", "pandas", "pyspark", "sqlglot"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
"""


@pytest.fixture
def alone(tmp_path: Path) -> dict[str, str]:
    """The environment of a process in which only the packages of an agent are there."""
    (tmp_path / "alone").mkdir()
    (tmp_path / "alone" / "sitecustomize.py").write_text(ALONE)
    return {"PYTHONPATH": f"{tmp_path / 'alone'}:{Path.cwd()}"}


def test_it_runs_without_what_pipelines_need(tmp_path: Path, alone: dict[str, str]) -> None:
    agent = AgentProcess("web01", tmp_path / "web01", alone)
    agent.write([(1000.0 + i, "a", 1) for i in range(30)])
    pipeline = Pipeline(asked([agent.address]), idle=2.0)
    pipeline.until(3)
    pipeline.intake.close()
    assert agent.stop() == 0


def test_other_commands_say_what_to_install(tmp_path: Path, alone: dict[str, str]) -> None:
    (tmp_path / "x.sql").touch()
    for command, module in (("try", "sqlglot"), ("run", "pyspark")):
        done = subprocess.run(
            [sys.executable, "-m", "muntin", command, str(tmp_path / "x.sql")],
            capture_output=True,
            text=True,
            env={**os.environ, **alone},
        )
        assert done.returncode == 1
        told = f"error: {module} is not installed; where pipelines run: pip install 'muntin[run]'"
        assert done.stderr.strip() == told


def test_it_does_not_begin_where_others_could_come_in(tmp_path: Path) -> None:
    settings = AgentSettings("web01", tmp_path / "state", {})
    with pytest.raises(InputError, match="without keys an agent listens on this machine alone"):
        serve(settings, Door("0.0.0.0:7070"), print, 0)
    assert not settings.state.exists()
