"""A source is dead only by a look at its files after its silence, whatever kept us from looking."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import muntin as mt
from muntin.kernel.compute import Recipe
from muntin.kernel.reading import Reading
from muntin.run.contracts import Batch, Request, Work
from muntin.run.files import LogFiles
from muntin.run.inline import InlineCollection, InlineRun, ignore
from muntin.run.loop import Rules
from tests.logs.reading import Snapshots

IDLE = 10.0


def program(folder: Path, bounds: str = "") -> mt.Program:
    return mt.sql(
        f"CREATE STREAM s (t DOUBLE) FROM '{folder}/{{source}}.log' FORMAT json TIMESTAMP t;"
        f"CREATE JOB j AS SELECT count(*) AS c FROM s WINDOW 10 SECONDS{bounds};"
    )


def write(folder: Path, source: str, *seconds: float) -> None:
    with (folder / f"{source}.log").open("a") as log:
        log.writelines(json.dumps({"t": t}) + "\n" for t in seconds)


def nothing() -> None:
    """Happens meanwhile."""


class Slow(InlineCollection):
    """Computes for as long as it is told, by the clock of the run."""

    def __init__(self) -> None:
        super().__init__()
        self.during: Callable[[], None] = nothing

    def add(self, work: Work, recipes: Sequence[Recipe], final: Mapping[str, int]) -> list[Reading]:
        readings = super().add(work, recipes, final)
        self.during()
        return readings


class Files(LogFiles):
    """Takes long to look, as on a mount that does not answer."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.after: Callable[[], None] = nothing

    def next(self, request: Request) -> Batch:
        batch = super().next(request)
        self.after()
        return batch


class Timed:
    """A run whose clock goes on while a batch is read."""

    def __init__(self, folder: Path, bounds: str = "", events: Snapshots | None = None) -> None:
        asked = program(folder, bounds)
        self.slow = Slow()
        (stream,), jobs = asked.streams.values(), list(asked.jobs.values())
        self.files = Files(stream, True, events=events)
        self.run = InlineRun(stream, jobs, Rules(True, IDLE), ignore, self.files, self.slow)

    def turn(
        self, now: float, takes: float = 0.0, during: Callable[[], None] = nothing
    ) -> list[Any]:
        """The windows that leave in a turn: start, count, and what is missing."""

        def pass_time() -> None:
            during()
            self.run._now = now + takes

        self.slow.during = pass_time
        found = self.run.turn(now).results()
        return [
            (
                r.start // 1_000_000,
                r.rows["c"][0].as_py(),
                [(m.source, m.why) for m in r.c2.missing],
            )
            for r in found
        ]


def test_a_batch_longer_than_the_idle_time_makes_nobody_dead(tmp_path: Path) -> None:
    for source in ("a", "b"):
        write(tmp_path, source, 1001, 1002)
    timed = Timed(tmp_path)

    def meanwhile() -> None:
        for source in ("a", "b"):
            write(tmp_path, source, 1005, 1008, 1062)

    assert timed.turn(1003, takes=60, during=meanwhile) == []
    assert timed.turn(1063) == [(1000, 8, [])]


def test_a_first_catch_up_longer_than_the_idle_time_makes_nobody_dead(tmp_path: Path) -> None:
    """The history of one takes long, and the other has little to say meanwhile."""
    for source in ("a", "b"):
        write(tmp_path, source, 901)
    timed = Timed(tmp_path)
    write(tmp_path, "a", *(range(902, 1002)))
    assert timed.turn(1001, takes=300, during=lambda: write(tmp_path, "b", 905, 960, 1009)) == []
    found = timed.turn(1301, takes=30, during=lambda: write(tmp_path, "b", 1330))
    assert found[0] == (900, 11, [])
    assert [missing for _, _, missing in found] == [[]] * 10


def test_who_is_silent_at_the_next_look_is_dead(tmp_path: Path) -> None:
    for source in ("a", "b"):
        write(tmp_path, source, 1001)
    timed = Timed(tmp_path)
    assert timed.turn(1001, takes=60, during=lambda: write(tmp_path, "a", 1061)) == []
    assert timed.turn(1061) == [(1000, 2, [("b", "dead")])]


def test_a_mount_that_does_not_answer_makes_nobody_dead(tmp_path: Path) -> None:
    write(tmp_path, "a", 1001)
    timed = Timed(tmp_path)
    assert timed.turn(1002) == []

    def answer_late() -> None:
        write(tmp_path, "a", 1005, 1062)
        timed.run._now = 1063

    timed.files.after = answer_late
    assert timed.turn(1003) == []
    timed.files.after = nothing
    assert timed.turn(1063) == [(1000, 2, [])]


def test_who_is_about_to_be_dead_is_looked_at_whatever_events_tell(tmp_path: Path) -> None:
    class Silent(Snapshots):
        def changed(self) -> set[str]:
            return set()

    for source in ("a", "b"):
        write(tmp_path, source, 1001)
    timed = Timed(tmp_path, events=Silent())
    assert [timed.turn(1001.0 + t) for t in (0, 1, 2)] == [[], [], []]
    for source in ("a", "b"):
        write(tmp_path, source, 1005, 1010)
    assert [timed.turn(1003.0 + t) for t in range(8)] == [[]] * 8
    assert timed.turn(1011.5) == [(1000, 4, [])]


def test_a_deadline_that_passes_in_a_long_batch_finds_sources_awaited(tmp_path: Path) -> None:
    for source in ("a", "b"):
        write(tmp_path, source, 1001)
    timed = Timed(tmp_path, " WITHIN 2 SECONDS")
    found = timed.turn(1001, takes=60, during=lambda: write(tmp_path, "b", 1005))
    assert found == [(1000, 2, [("a", "awaited"), ("b", "awaited")])]


CHILD = textwrap.dedent(
    """
    import json, os, signal, sys, time
    import muntin as mt
    from muntin.logs.events import FileEvents
    from muntin.run.files import LogFiles
    from muntin.run.inline import InlineRun
    from muntin.run.loop import Rules

    class Stopping(LogFiles):
        # Stops the process right after a look, before anything is decided.
        looks = 0

        def next(self, request):
            batch = super().next(request)
            self.looks += 1
            if self.looks == int(sys.argv[2]):
                os.kill(os.getpid(), signal.SIGSTOP)
            return batch

    (stream,), jobs = (program := mt.sql(sys.argv[1])).streams.values(), program.jobs.values()
    files = Stopping(stream, True, events=FileEvents())
    run = InlineRun(stream, list(jobs), Rules(True, 1.0), intake=files)
    while True:
        run.loop._clock = time.time
        for r in run.turn(time.time()).results():
            print(json.dumps([r.start, r.rows["c"][0].as_py(), str(r.c2)]), flush=True)
        time.sleep(0.05)
    """
)


def test_a_stopped_process_reads_what_was_written_before_it_decides(tmp_path: Path) -> None:
    text = (
        f"CREATE STREAM s (t DOUBLE) FROM '{tmp_path}/{{source}}.log' FORMAT json TIMESTAMP t;"
        "CREATE JOB j AS SELECT count(*) AS c FROM s WINDOW 1 HOUR;"
    )
    hour = time.time() // 3600 * 3600 - 7200  # it is over, and waits for its sources
    for source in ("a", "b"):
        write(tmp_path, source, hour + 1)
    started = [sys.executable, "-c", CHILD, text, "1"]
    with subprocess.Popen(started, stdout=subprocess.PIPE, text=True) as child:
        try:
            _, status = os.waitpid(child.pid, os.WUNTRACED)
            assert os.WIFSTOPPED(status)
            time.sleep(2.5)  # more than twice the idle time
            for source in ("a", "b"):
                write(tmp_path, source, hour + 2, hour + 3600)
            child.send_signal(signal.SIGCONT)
            assert child.stdout is not None
            start, count, c2 = json.loads(child.stdout.readline())
        finally:
            child.kill()
    assert (start, count, c2) == (int(hour) * 1_000_000, 4, "100 % complete")
