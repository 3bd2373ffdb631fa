"""Agents in a network of their own, which is cut, slow or lossy: the rows are the same after it.

Networks are namespaces of this machine, so that nothing leaves it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from ipaddress import ip_address
from pathlib import Path

import pytest

from muntin.wire.keys import Keys, make_keys, read_keys
from tests.agent.serving import AgentProcess
from tests.run.test_agents import Pipeline, asked, expected, same, write

# Of this process alone: others may run beside it, or have been killed and left theirs behind.
NAME = f"muntin-{os.getpid()}"
OUR_END, THEIR_END = f"muntin{os.getpid()}", f"muntan{os.getpid()}"  # 15 characters at most
_FIRST = int(ip_address("198.18.0.0")) + 4 * (os.getpid() % (1 << 15))  # for tests of networks
OURS, THEIRS = str(ip_address(_FIRST + 1)), str(ip_address(_FIRST + 2))
Trouble = Callable[[], None]


def command(*words: str) -> None:
    """Runs a command of the system; the test is skipped where that is not permitted."""
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"{' '.join(words)}: {done.stderr.strip()}")


@pytest.fixture
def network() -> Iterator[list[str]]:
    """A namespace that one cable leads to; the command that runs another one there."""
    if shutil.which("ip") is None or shutil.which("tc") is None:
        pytest.skip("the commands ip and tc are not here")
    inside = ["ip", "netns", "exec", NAME]
    command("ip", "netns", "add", NAME)
    try:
        ends = [OUR_END, "type", "veth", "peer", THEIR_END]
        command("ip", "link", "add", *ends, "netns", NAME)
        command("ip", "addr", "add", f"{OURS}/30", "dev", OUR_END)
        command("ip", "link", "set", OUR_END, "up")
        command(*inside, "ip", "addr", "add", f"{THEIRS}/30", "dev", THEIR_END)
        command(*inside, "ip", "link", "set", THEIR_END, "up")
        yield inside
    finally:
        subprocess.run(["ip", "netns", "del", NAME], check=True)


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    make_keys(tmp_path / "keys", [f"web01={THEIRS}", "pipeline"])
    return read_keys(tmp_path / "keys", "pipeline")


def cut() -> None:
    command("ip", "-n", NAME, "link", "set", THEIR_END, "down")


def mend() -> None:
    command("ip", "-n", NAME, "link", "set", THEIR_END, "up")


def netem(*how: str) -> Trouble:
    return lambda: command("tc", "qdisc", "add", "dev", OUR_END, "root", "netem", *how)


def calm() -> None:
    command("tc", "qdisc", "del", "dev", OUR_END, "root")


@pytest.mark.parametrize(
    ("trouble", "healed"),
    [
        pytest.param(cut, mend, id="cut"),
        pytest.param(netem("delay", "80ms", "40ms"), calm, id="delay"),
        pytest.param(netem("loss", "10%"), calm, id="loss"),
    ],
)
def test_rows_are_the_same_after_the_network_heals(
    trouble: Trouble, healed: Trouble, network: list[str], keys: Keys, tmp_path: Path
) -> None:
    options = {"--listen": f"{THEIRS}:7070", "--keys": str(tmp_path / "keys")}
    agent = AgentProcess("web01", tmp_path / "web01", within=network, more=options)
    try:
        write(tmp_path / "web01", 0, 200)
        pipeline = Pipeline(asked([agent.address]), keys=keys)
        pipeline.until(len(expected(tmp_path)["sums"]) - 6)
        trouble()
        write(tmp_path / "web01", 200, 400)
        until = time.monotonic() + 3
        while time.monotonic() < until:
            pipeline.turn()
        healed()
        write(tmp_path / "web01", 400, 600)
        wanted = expected(tmp_path)["sums"]
        pipeline.until(len(wanted) - 6)
        assert same(pipeline.rows["sums"], wanted)
        assert {row["c2"]["area"] for row in pipeline.rows["sums"]} == {1.0}
        pipeline.intake.close()
    finally:
        agent.stop()
