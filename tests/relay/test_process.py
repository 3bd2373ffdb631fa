"""`muntin relay` as it is started, killed and started again."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from muntin.errors import InputError
from muntin.relay.process import serve
from muntin.relay.relay import Relay
from muntin.wire.client import Client
from muntin.wire.messages import Exchange
from muntin.wire.process import Door
from tests.agent.serving import AgentProcess
from tests.relay.serving import RelayProcess
from tests.run.test_agents import Pipeline

AGENT = ["agent", "--name", "web01", "--config", "agent.toml"]


def test_whoever_is_killed_nothing_counts_twice_and_nothing_is_missing(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """A relay, the relay before it, and agents behind both; each is away for some turns."""
    agents = [AgentProcess(name, tmp_path / name) for name in ("web01", "web02", "web03")]
    for agent in agents:
        request.addfinalizer(agent.kill)
    inner = RelayProcess(f"{agents[0].address},{agents[1].address}")
    request.addfinalizer(inner.kill)
    listed = tmp_path / "agents.txt"
    listed.write_text(f"{inner.address}\n{agents[2].address}\n")
    outer = RelayProcess(str(listed))
    request.addfinalizer(outer.kill)
    truth: Counter[tuple[int, str]] = Counter()

    def write(number: int, second: int) -> None:
        records = [(1000 + second + i / 20, "ab"[i % 2], i) for i in range(20)]
        agents[number].write(records)
        truth.update((int(t) // 5 * 5, k) for t, k, _ in records)

    for number in range(3):
        write(number, 0)
    jobs = "CREATE JOB sums AS SELECT k, count(*) AS c FROM logs GROUP BY k WINDOW 5 SECONDS"
    pipeline = Pipeline(f"CREATE STREAM logs FROM AGENTS {outer.address!r}; {jobs}")
    others: dict[int, AgentProcess | RelayProcess] = {
        5: outer, 15: inner, 25: agents[0], 35: outer, 38: inner, 45: agents[2],
    }  # fmt: skip
    for second in range(1, 60):
        for number in range(3):
            write(number, second)
        if second in others:
            others[second].kill()
        if second - 6 in others:
            others[second - 6].start()
        pipeline.turn()
        time.sleep(0.05)
    pipeline.until(20)
    for row in pipeline.rows["sums"]:
        start = int(row["window_start"].timestamp())
        assert row["c"] == truth[start, row["k"]], (row["c2"], row["c2_records"])
        assert (row["c2"]["area"], row["c2"]["sources"]) == (1.0, 3)
    counted = [row["c2_records"] for row in pipeline.rows["sums"] if row["c2_records"]]
    assert counted
    for each in counted:
        assert [counts["source"] for counts in each] == ["web01", "web02", "web03"]
    assert len({(row["window_start"], row["k"]) for row in pipeline.rows["sums"]}) >= 20
    told = [note for note in pipeline.notes if f"at {outer.address} cannot be reached" in note]
    assert len(told) == 2
    assert all(note.endswith("; agents behind it are read directly") for note in told)
    pipeline.intake.close()
    assert [relay.stop() for relay in (outer, inner)] == [0, 0]
    assert [agent.stop() for agent in agents] == [0, 0, 0]


def test_it_loads_neither_spark_nor_pandas_nor_the_compiler() -> None:
    code = (
        "import sys, muntin.relay.process\n"
        "heavy = {'pyspark', 'pandas', 'sqlglot', 'deltalake', 'rich', 'typer', 'cryptography'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_what_it_cannot_begin_with_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="without keys a relay listens on this machine alone"):
        serve("relay", ["a:1"], Door("0.0.0.0:7071"), print)
    with pytest.raises(InputError, match=r"none\.txt, which lists agents, cannot be read: No such"):
        serve("relay", [str(tmp_path / "none.txt")], Door("127.0.0.1:0"), print)


def test_an_agent_that_hangs_does_not_take_its_relay_away(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """The relay waits for it less long than the pipeline waits for the relay."""
    agents = [AgentProcess(name, tmp_path / name) for name in ("web01", "web02")]
    for agent in agents:
        request.addfinalizer(agent.kill)
    relay = RelayProcess(",".join(agent.address for agent in agents))
    request.addfinalizer(relay.kill)
    told = Exchange("p", "logs", "d")
    assert len(Client().exchange(relay.address, told).news) == 2
    agents[0].send(signal.SIGSTOP)
    heard = Client().exchange(relay.address, told)
    assert [each.agent for each in heard.news] == ["web02"]
    assert list(heard.away) == [agents[0].address]
    agents[0].send(signal.SIGCONT)
    assert len(Client().exchange(relay.address, told).news) == 2


@pytest.mark.parametrize("command", [["relay", "--from", "a:1"], AGENT])
def test_certificates_of_both_sides_need_keys(command: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "muntin", *command, "--mutual"], capture_output=True, text=True
    )
    assert done.returncode == 1
    assert done.stderr == "error: --mutual is about certificates; give --keys too\n"


def test_its_memory_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part is for statements, another for what is fetched at once."""
    confined: list[int] = []
    monkeypatch.setattr("muntin.relay.process.confine", confined.append)
    monkeypatch.setattr("muntin.relay.process._wait", lambda stop: None)
    made: list[Relay] = []

    class Noted(Relay):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            made.append(self)

    monkeypatch.setattr("muntin.relay.process.Relay", Noted)
    serve("relay", ["a:1"], Door("127.0.0.1:0"), lambda _: None, memory=640 << 20)
    assert confined == [256 << 20]
    assert [relay.most_fetched for relay in made] == [128 << 20]
    with pytest.raises(
        InputError, match="a relay needs 256 MB, half of it for libraries; give --m"
    ):
        serve("relay", ["a:1"], Door("127.0.0.1:0"), print, memory=100 << 20)


def test_its_memory_is_an_option() -> None:
    words = [sys.executable, "-m", "muntin", "relay", "--from", "a:1", "--memory"]
    for memory, message in (
        ("100MB", "a relay needs 256 MB, half of it for libraries; give --memory"),
        ("much", "--memory much: "),
    ):
        done = subprocess.run([*words, memory], capture_output=True, text=True)
        assert done.returncode == 1
        assert done.stderr.startswith(f"error: {message}")
