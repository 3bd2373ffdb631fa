"""Jobs over agents that retain their panes, with and without a relay, and after a restart."""

from __future__ import annotations

import json
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest

import muntin as mt
from muntin.ask.answering import Asking
from muntin.run.agents import Agents
from tests.agent.serving import serving
from tests.ask.keeping import Kept
from tests.relay.serving import relaying
from tests.waiting import wait_for

JOB = """CREATE JOB j AS SELECT k, count(*) AS c FROM logs GROUP BY k
WINDOW 10 SECONDS PANE 5 SECONDS RETAIN 1 DAY;"""
NAMES = ("web01", "web02")
BEGIN = 1_000


def write(folder: Path, start: int, stop: int) -> None:
    folder.mkdir(exist_ok=True)
    with (folder / "a.log").open("a") as log:
        for i in range(start, stop):
            log.write(json.dumps({"t": BEGIN + i / 4, "k": "ab"[i % 2]}) + "\n")


def truth(upto: int) -> Counter[str]:
    return Counter("ab"[i % 2] for i in range(upto) for _ in NAMES)


@pytest.mark.parametrize("relayed", [False, True])
def test_panes_of_agents_are_asked_about(tmp_path: Path, relayed: bool) -> None:
    for name in NAMES:
        write(tmp_path / name, 0, 200)
    state = tmp_path / "state"
    asking = Asking(state)
    with ExitStack() as stack:
        places = [stack.enter_context(serving(n, tmp_path / n))[1] for n in NAMES]
        if relayed:
            places = [stack.enter_context(relaying(*places))[1]]
        listed = ", ".join(map(repr, places))
        program = mt.sql(f"CREATE STREAM logs FROM AGENTS {listed}; {JOB}")
        for upto in (200, 400):  # and so the second time after a restart
            intake = Agents(program.streams["logs"], "pipeline", None, 1000.0)
            stack.callback(intake.close)
            run = Kept(program, state, follow=True, now=time.time(), intake=intake)

            def settled(upto: int = upto, run: Kept = run) -> bool:
                run.whole()
                run.turn()
                known = run.loop.progress.past
                return any(
                    past.settled >= (BEGIN + upto / 4 - 10) * 10**6 for past in known.values()
                )

            wait_for(settled)
            end = BEGIN + upto // 4 - 10
            bounds = f"BETWEEN '00:16:40' AND '00:{end // 60:02d}:{end % 60:02d}'"
            answer = asking.ask(f"SELECT k, c FROM j GROUP BY k {bounds}")
            found = Counter({row["k"]: row["c"] for row in answer.rows.to_pylist()})
            assert found == truth((end - BEGIN) * 4)
            assert (answer.c2.area, answer.c2.sources) == (1.0, 2)
            whole = asking.ask("SELECT k, c FROM j GROUP BY k")
            assert whole.c2.area < 1.0  # the last pane is still open
            for name in NAMES:
                write(tmp_path / name, upto, upto + 200)
            intake.close()
        assert asking._keeping.jobs()["j"][0].panes.files
