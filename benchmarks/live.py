"""How soon an order to a running program is in force, and how soon a message reaches many agents.

    python -m benchmarks.live           # all of it, about a minute and a half
    python -m benchmarks.live orders    # one question of: orders, agents

Orders go to a run on Spark that follows a log of 200 lines a second. The time is from the text to
the answer that it is committed, for whoever waits: after that, it takes until the next boundary.
Agents are 50 in five other processes, each with a port of its own. They note when a message has
come, by the clock of the machine, so that it is told when the last of them has it, and when all
answers are back; and how long this process computes for it: the rest is theirs, who are elsewhere
otherwise.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from threading import Event, Thread
from typing import ClassVar

from muntin.agent.agent import Agent
from muntin.agent.settings import AgentSettings, Limits, StreamSettings
from muntin.errors import OrderError
from muntin.language.program import sql
from muntin.run.catalog import Catalog
from muntin.run.door import Door
from muntin.spark.context import start_context
from muntin.spark.runner import Settings, SparkRun
from muntin.wire.client import Client
from muntin.wire.looks import Looks
from muntin.wire.messages import Exchange, Heard, Known, Plan
from muntin.wire.server import Server

AGENTS = 50
_IN_ONE = 10  # agents of one process
_SERVE = "serve"
TIMES = 20
JOB = (
    "JOB {} (least DEFAULT 3) AS SELECT k, {} AS c FROM s WHERE n > $least GROUP BY k "
    "WINDOW 1 SECOND"
)
CODE = """
class Count:
    columns = {{"k": "VARCHAR", "c": "BIGINT"}}

    def mapper(self, _, record):
        yield record["k"], {}

    def reducer(self, k, ones):
        yield k, sum(ones)
"""
PYTHON = "JOB counted AS PYTHON 'counting:Count' FROM s WINDOW 1 SECOND"


def orders(times: int = TIMES) -> dict[str, list[float]]:
    """Milliseconds that orders of each kind take."""
    took: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        stack.enter_context(_writing(folder / "web-1.log"))
        stream = f"CREATE STREAM s (t DOUBLE, k VARCHAR, n BIGINT) FROM '{folder}/{{source}}.log' "
        program = sql(f"{stream} FORMAT json TIMESTAMP t; CREATE {JOB.format('j', 'count(*)')}")
        door = Door(folder)
        settings = Settings(folder / "state", follow=True)
        run = SparkRun(program, start_context(), settings, Event(), door=door)
        took["a turn"] = stack.enter_context(_running(run))
        _wait(lambda: bool(door.program))
        time.sleep(3.0)  # the first batches of a run take longer

        def measure(kind: str, text: str) -> None:
            started = time.perf_counter()
            visit = door.bring(text)
            understood = time.perf_counter()
            visit.reply()
            took.setdefault("understood", []).append(1000 * (understood - started))
            took.setdefault(kind, []).append(1000 * (time.perf_counter() - started))
            time.sleep(0.2)

        for number in range(times):
            cell = ("sum(n)", "count(*)")[number % 2]
            measure("create", f"CREATE {JOB.format('other', cell)}")
            measure("replace", f"CREATE OR REPLACE {JOB.format('other', cell + ' + 1')}")
            measure("set", f"SET j.least = {number % 7}")
            measure("drop", "DROP JOB other")
            (folder / "counting.py").write_text(CODE.format(number + 1))
            measure("Python code", f"CREATE OR REPLACE {PYTHON}")
    return took


@contextmanager
def _running(run: SparkRun) -> Iterator[list[float]]:
    """A run in a thread of its own, and the milliseconds that its turns take."""
    took: list[float] = []

    def turns() -> None:
        started = time.perf_counter()
        for turn in run.turns():
            over = time.perf_counter()
            took.extend([1000 * (over - started)] if turn.bytes else [])
            started = time.perf_counter()

    thread = Thread(target=turns)
    thread.start()
    try:
        yield took
    finally:
        run.stop.set()
        thread.join()


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Somebody writes ten lines twenty times a second."""
    stop = Event()

    def write() -> None:
        while not stop.wait(0.05):
            line = json.dumps({"t": time.time(), "k": "a", "n": 5}) + "\n"
            with path.open("a") as file:
                file.write(line * 10)

    writer = Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        stop.set()
        writer.join()


def _wait(condition: Callable[[], bool]) -> None:
    while True:
        try:
            if condition():
                return
        except OrderError:
            time.sleep(0.05)


def agents(times: int = 5 * TIMES, number: int = AGENTS) -> dict[str, list[float]]:
    """Milliseconds until a message, or other jobs, are with all agents, and until all answered."""
    told: dict[str, list[tuple[int, float, float, float]]] = {"a message": [], "other jobs": []}
    with ExitStack() as stack:
        homes = [stack.enter_context(_agents(n, number)) for n in range(0, number, _IN_ONE)]
        places = [place for home in homes for place in home.places]
        listed = ", ".join(map(repr, places))
        program = sql(
            f"CREATE STREAM s (t DOUBLE, k VARCHAR, n BIGINT) FROM AGENTS {listed} FORMAT json "
            f"TIMESTAMP t; CREATE {JOB.format('j', 'count(*)')}"
        )
        catalog = Catalog.of(program.streams["s"], program.jobs.values())
        looks = Looks(Client(None))
        stack.callback(looks.close)
        known = {_name(n): Known(0) for n in range(number)}
        for turn in range(times + 1):
            recipes = tuple(replace(r, version=turn) for r in catalog.recipes)
            plan = Plan(catalog.stream, recipes, 0)
            message = Exchange("pipeline", "s", plan.digest, known, wanted={"__position": 2 * turn})
            for kind, at, sent in (
                ("other jobs", 2 * turn, replace(message, plan=plan)),
                ("a message", 2 * turn + 1, replace(message, wanted={"__position": 2 * turn + 1})),
            ):
                began, computed = time.monotonic(), time.process_time()
                heard = looks.at(places, sent)
                seconds = time.monotonic() - began
                assert len(heard.news) == number, heard.away
                if turn:  # the first one connects
                    told[kind].append((at, began, seconds, time.process_time() - computed))
        came = [home.came() for home in homes]
    took: dict[str, list[float]] = {}
    for kind, sends in told.items():
        took[f"{kind} is there"] = [
            1000 * (max(each[str(at)] for each in came) - began) for at, began, _, _ in sends
        ]
        took[f"{kind} and back"] = [1000 * seconds for _, _, seconds, _ in sends]
        took[f"{kind}, computing"] = [1000 * seconds for _, _, _, seconds in sends]
    return took


@dataclass(frozen=True)
class _Home:
    """A process with some agents."""

    places: list[str]  # their addresses
    process: subprocess.Popen[str]

    def came(self) -> dict[str, float]:
        """When each message had come to all of them, by its number; then they end."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        came: dict[str, float] = json.loads(self.process.stdout.readline())
        return came


@contextmanager
def _agents(first: int, number: int) -> Iterator[_Home]:
    """Some of so many agents in another process."""
    last = min(first + _IN_ONE, number)
    command = [sys.executable, "-m", "benchmarks.live", _SERVE, str(first), str(last)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield _Home(json.loads(process.stdout.readline()), process)
        finally:
            process.stdin.close()


class _Noting(Agent):
    """An agent that notes when a message has come: the last of those of its process, by number."""

    came: ClassVar[dict[int, float]] = {}

    def exchange(self, told: Exchange) -> Heard:
        now, number = time.monotonic(), told.wanted.get("__position", 0)
        self.came[number] = max(now, self.came.get(number, now))
        return super().exchange(told)


def _serve(first: int, last: int) -> None:
    """Has agents until nobody is there any more who began them; then tells when messages came."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        places = [stack.enter_context(_agent(_name(n), Path(name))) for n in range(first, last)]
        print(json.dumps(places), flush=True)
        sys.stdin.read()
        print(json.dumps(_Noting.came), flush=True)


def _name(number: int) -> str:
    return f"web{number:02}"


@contextmanager
def _agent(name: str, folder: Path) -> Iterator[str]:
    home = folder / name
    (home / "state").mkdir(parents=True)
    clauses = {"FORMAT": "json", "TIMESTAMP": "t"}
    streams = {"s": StreamSettings((f"{home}/*.log",), clauses)}
    agent = _Noting(AgentSettings(name, home / "state", streams, Limits()))
    server = Server(agent, "127.0.0.1:0", None, False)
    reading = Thread(target=agent.run)
    reading.start()
    try:
        yield f"127.0.0.1:{server.port}"
    finally:
        server.shutdown()
        agent.stop.set()
        reading.join()


QUESTIONS: dict[str, Callable[[], dict[str, list[float]]]] = {"orders": orders, "agents": agents}


def main(asked: list[str]) -> None:
    if asked[:1] == [_SERVE]:
        _serve(int(asked[1]), int(asked[2]))
        return
    for question in asked or QUESTIONS:
        for kind, took in QUESTIONS[question]().items():
            told = f"median {median(took):6.1f} ms, worst {max(took):6.1f} ms of {len(took)}"
            print(f"{question}: {kind:22} {told}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
