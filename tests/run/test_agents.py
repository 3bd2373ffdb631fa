"""Agents as an intake: rows are those of the same logs read directly, whoever is away when."""

from __future__ import annotations

import gzip
import json
import os
import time
from contextlib import ExitStack
from pathlib import Path
from socket import socket
from typing import Any
from unittest.mock import Mock

import pytest

from muntin.agent.settings import Limits
from muntin.errors import InputError, StateError
from muntin.language.program import sql
from muntin.run.agents import Agents, require_agents
from muntin.run.catalog import Catalog
from muntin.run.files import LogFiles
from muntin.run.inline import InlineRun, Unsaved, windows_inline
from muntin.run.loop import Rules
from muntin.run.results import Emission
from muntin.store import tape
from muntin.wire.keys import Keys
from tests.agent.serving import serving
from tests.logs.test_register import nobody
from tests.relay.serving import relaying

JOBS = """
CREATE JOB sums AS SELECT k, sum(n) AS n, count(*) AS c FROM logs GROUP BY k ORDER BY k
WINDOW 10 SECONDS EVERY 5 SECONDS;
CREATE JOB late AS SELECT count(*) AS c FROM logs WHERE k = 'a' WINDOW 20 SECONDS;
"""
FILES = "(t DOUBLE, k VARCHAR, n BIGINT) FROM '{}/{{source}}/a.log' FORMAT json TIMESTAMP t"


def write(folder: Path, start: int, stop: int) -> None:
    folder.mkdir(exist_ok=True)
    with (folder / "a.log").open("a") as file:
        for i in range(start, stop):
            t = 1000 + i / 4 - (0.9 if i % 7 == 0 else 0)
            file.write(json.dumps({"t": t, "k": "ab"[i % 2], "n": i}) + "\n")


def asked(addresses: list[str]) -> str:
    return f"CREATE STREAM logs FROM AGENTS {', '.join(map(repr, addresses))}; {JOBS}"


class Pipeline:
    """A run without Spark, whose turns are made here."""

    def __init__(self, text: str, idle: float = 1000.0, keys: Keys | None = None) -> None:
        program = sql(text, keys=keys)
        (stream,) = program.streams.values()
        self.intake: Agents | LogFiles
        if stream.agents:
            self.intake = Agents(stream, "pipeline", keys, idle)
        else:
            self.intake = LogFiles(stream, True)
        self.rows: dict[str, list[Any]] = {"sums": [], "late": []}
        self.notes: list[str] = []
        rules = Rules(True, idle, sharing="shared")
        jobs = list(program.jobs.values())
        self.run = InlineRun(stream, jobs, rules, self.notes.append, self.intake)

    def turn(self) -> None:
        for windows in self.run.turn(time.time()).windows:
            self.rows[windows.job.name] += windows.table().to_pylist()

    def until(self, windows: int, of: str = "sums") -> None:
        """Makes turns until so many rows of a job are there."""
        limit = time.monotonic() + 60
        while len(self.rows[of]) < windows:
            assert time.monotonic() < limit, (len(self.rows[of]), self.notes)
            self.turn()
            time.sleep(0.02)


def expected(folder: Path) -> dict[str, list[Any]]:
    rows: dict[str, list[Any]] = {"sums": [], "late": []}
    for windows in windows_inline(sql(f"CREATE STREAM logs {FILES.format(folder)}; {JOBS}")):
        rows[windows.job.name] += windows.table().to_pylist()
    return rows


def same(some: list[Any], wanted: list[Any]) -> bool:
    """Whether rows, and counts of records, are the first of those wanted."""
    keys = ("window_start", "window_end", "k", "n", "c", "records_read")
    told = [[{k: row.get(k) for k in keys} for row in rows] for rows in (some, wanted)]
    return told[0] == told[1][: len(some)]


def test_rows_are_those_of_the_logs(tmp_path: Path) -> None:
    names = ("web01", "web02")
    for name in names:
        write(tmp_path / name, 0, 400)
    wanted = expected(tmp_path)
    with ExitStack() as stack:
        places = [stack.enter_context(serving(n, tmp_path / n))[1] for n in names]
        pipeline = Pipeline(asked(places))
        stack.callback(pipeline.intake.close)
        pipeline.until(len(wanted["sums"]) - 6)
        for name in names:
            write(tmp_path / name, 400, 800)
        wanted = expected(tmp_path)
        pipeline.until(len(wanted["sums"]) - 6)
        pipeline.until(len(wanted["late"]) - 2, "late")
        assert same(pipeline.rows["sums"], wanted["sums"])
        assert same(pipeline.rows["late"], wanted["late"])
        for row in pipeline.rows["sums"]:
            assert (row["c2"]["area"], row["c2"]["reason"]) == (1.0, "complete")
        assert set(pipeline.run.loop.progress.sources) == set(names)


def test_what_is_silent_is_complete_and_nothing_stays_behind(tmp_path: Path) -> None:
    write(tmp_path / "web01", 0, 100)
    wanted = expected(tmp_path)
    with serving("web01", tmp_path / "web01") as (_, place):
        pipeline = Pipeline(asked([place]), idle=2.0)
        pipeline.until(len(wanted["sums"]))
        assert same(pipeline.rows["sums"], wanted["sums"])
        pipeline.intake.close()


def test_a_deadline_takes_panes_that_are_open(tmp_path: Path) -> None:
    """A window of the last minute leaves in time with what was written, though it is not over."""
    now = time.time()
    start = now // 10 * 10 - 10
    (tmp_path / "web01").mkdir()
    lines = [json.dumps({"t": start + i, "k": "a", "n": 1}) + "\n" for i in range(9)]
    (tmp_path / "web01" / "a.log").write_text("".join(lines))
    job = "CREATE JOB sums AS SELECT count(*) AS c FROM logs WINDOW 10 SECONDS WITHIN 12 SECONDS"
    with serving("web01", tmp_path / "web01") as (_, place):
        pipeline = Pipeline(f"CREATE STREAM logs FROM AGENTS {place!r}; {job}")
        with (tmp_path / "web01" / "a.log").open("a") as file:
            while not pipeline.rows["sums"]:
                assert time.time() < now + 60
                # Somebody writes all the time, so that the pane does not leave by itself.
                file.write(json.dumps({"t": start + 9, "k": "a", "n": 1}) + "\n")
                file.flush()
                lines.append("")
                pipeline.turn()
                time.sleep(0.1)
        (row,) = pipeline.rows["sums"]
        assert row["c2"]["reason"] == "deadline"
        assert 9 < row["c"] <= len(lines)
        pipeline.intake.close()


def test_what_an_agent_sheds_is_in_the_score(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has far too little time for a minute of history, and goes on with what is new."""
    monkeypatch.setattr("muntin.agent.reader.TURN_BYTES", 4000)
    start = time.time() // 2 * 2 - 60
    (tmp_path / "web01").mkdir()
    lines = [{"t": start + i / 400, "k": "a", "n": 1} for i in range(61 * 400)]
    (tmp_path / "web01" / "a.log").write_text("".join(json.dumps(line) + "\n" for line in lines))
    job = "CREATE JOB sums AS SELECT count(*) AS c FROM logs WINDOW 2 SECONDS WITHIN 6 SECONDS"
    with serving("web01", tmp_path / "web01", limits=Limits(cpu=0.02)) as (_, place):
        pipeline = Pipeline(f"CREATE STREAM logs FROM AGENTS {place!r}; {job}")
        limit = time.monotonic() + 60
        scores: list[dict[str, Any]] = []
        while not any(m["why"] == "shed" for c2 in scores for m in c2["missing"]):
            assert time.monotonic() < limit, pipeline.rows
            pipeline.turn()
            time.sleep(0.05)
            scores = [row["c2"] for row in pipeline.rows["sums"]]
        pipeline.intake.close()
    (shed,) = [c2 for c2 in scores if any(m["why"] == "shed" for m in c2["missing"])][:1]
    assert shed["area"] == 0.0


def test_an_agent_that_is_away_is_told_of_and_comes_back(tmp_path: Path) -> None:
    write(tmp_path / "web01", 0, 400)
    listed = tmp_path / "agents.txt"
    with serving("web01", tmp_path / "web01") as (_, place):
        listed.write_text(place)
        pipeline = Pipeline(asked([str(listed)]))
        pipeline.until(30)
    pipeline.turn()
    pipeline.turn()
    assert [note for note in pipeline.notes if "cannot be reached" in note] == [
        f"stream 'logs': the agent at {place} cannot be reached; "
        "one that listens to others needs --keys"
    ]
    write(tmp_path / "web01", 400, 800)
    with serving("web01", tmp_path / "web01") as (_, place):
        listed.write_text(place)
        wanted = expected(tmp_path)
        pipeline.until(len(wanted["sums"]) - 6)
        assert same(pipeline.rows["sums"], wanted["sums"])
        pipeline.intake.close()


def test_one_pipeline_at_a_time(tmp_path: Path) -> None:
    write(tmp_path / "web01", 0, 400)
    with serving("web01", tmp_path / "web01") as (_, place):
        first = Pipeline(asked([place]))
        first.turn()
        second = Agents(sql(asked([place])).streams["logs"], "other")
        other = InlineRun(
            sql(asked([place])).streams["logs"],
            list(sql(asked([place])).jobs.values()),
            Rules(True, sharing="shared"),
            first.notes.append,
            second,
        )
        other.turn(time.time())
        assert first.notes == [
            f"stream 'logs': the agent at {place}: agent 'web01': another pipeline reads stream "
            "'logs'"
        ]
        first.until(30)
        first.intake.close()
        second.close()


def test_there_is_no_end_of_agents(tmp_path: Path) -> None:
    stream = sql(f"CREATE STREAM logs {FILES.split('FROM')[0]} FROM AGENTS 'a:1' FORMAT json "
                 "TIMESTAMP t").streams["logs"]  # fmt: skip
    intake = Agents(stream, "p")
    with pytest.raises(InputError, match=r"agents, which go on, .*use `muntin run` without"):
        intake.require()
    intake.close()


def test_an_agent_that_has_just_begun_is_not_taken_for_silent(tmp_path: Path) -> None:
    """It has not seen the end of its logs yet; its silence is counted from what it sends first."""
    write(tmp_path / "web01", 0, 100)
    with serving("web01", tmp_path / "web01") as (_, place):
        pipeline = Pipeline(asked([place]))
        sources, began = pipeline.run.loop.progress.sources, time.time()
        while "web01" not in sources:
            pipeline.turn()
        assert sources["web01"].wrote_at >= began
        pipeline.intake.close()


def test_an_agent_that_dies_before_it_has_sent_anything_is_awaited(tmp_path: Path) -> None:
    """It was told the jobs, and is killed while it reads; the other one does not go ahead."""
    for name in ("web01", "web02"):
        write(tmp_path / name, 0, 400)
    with ExitStack() as stack:
        _, first = stack.enter_context(serving("web01", tmp_path / "web01"))
        with serving("web02", tmp_path / "web02") as (agent, second):
            agent.step = agent._attend = Mock(return_value=False)  # type: ignore[method-assign]
            pipeline = Pipeline(asked([first, second]), idle=2.0)
            stack.callback(pipeline.intake.close)
            while "web01" not in pipeline.run.loop.progress.sources:
                pipeline.turn()
        pipeline.turn()
        assert pipeline.notes  # it is away
        assert not pipeline.rows["sums"]
        stack.enter_context(serving("web02", tmp_path / "web02", at=second))
        wanted = expected(tmp_path)
        pipeline.until(len(wanted["sums"]) - 6)
        assert same(pipeline.rows["sums"], wanted["sums"])


def test_an_agent_that_never_sends_anything_is_not_awaited_for_ever(tmp_path: Path) -> None:
    write(tmp_path / "web01", 0, 400)
    with ExitStack() as stack:
        _, first = stack.enter_context(serving("web01", tmp_path / "web01"))
        with serving("web02", tmp_path / "web02") as (agent, second):
            agent.step = agent._attend = Mock(return_value=False)  # type: ignore[method-assign]
            pipeline = Pipeline(asked([first, second]), idle=2.0)
            stack.callback(pipeline.intake.close)
            started = time.monotonic()
            pipeline.turn()
        pipeline.until(10)
        assert time.monotonic() - started > 1.5


def free_place() -> str:
    """An address where nobody listens."""
    with socket() as one:
        one.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{one.getsockname()[1]}"


@pytest.mark.parametrize("relayed", [False, True])
def test_results_without_an_agent_that_was_never_heard_are_not_complete(
    tmp_path: Path, relayed: bool
) -> None:
    write(tmp_path / "web01", 0, 400)
    away = free_place()
    with ExitStack() as stack:
        _, place = stack.enter_context(serving("web01", tmp_path / "web01"))
        places = [place, away]
        if relayed:
            places = [stack.enter_context(relaying(*places))[1]]
        pipeline = Pipeline(asked(places), idle=2.0)
        stack.callback(pipeline.intake.close)
        started = time.monotonic()
        pipeline.until(10)
        assert time.monotonic() - started > 1.5  # it is awaited first
        found = [row["c2"] for row in pipeline.rows["sums"]]
        assert found[0]["area"] == pytest.approx(1 / 3)  # the other one begins in its second pane
        assert found[-1]["area"] == 0.5
        missing = {(m["source"], m["why"]) for c2 in found for m in c2["missing"]}
        assert missing == {(away, f"lost: bytes of {away}, which cannot be reached")}


def test_an_agent_that_answered_a_moment_ago_is_not_dead(tmp_path: Path) -> None:
    """Its last delivery may be long ago, as its panes are long."""
    with ExitStack() as stack:
        places = []
        for name in ("web01", "web02"):
            write(tmp_path / name, 0, 400)
            places.append(stack.enter_context(serving(name, tmp_path / name))[1])
        pipeline = Pipeline(asked(places), idle=3.0)
        pipeline.until(10)
        now = time.time()
        pipeline.run.loop.progress.sources["web02"].heard_at = now - 100.0
    pipeline.run.turn(now + 2.0)
    assert {"web01", "web02"} <= pipeline.intake.behind({})
    pipeline.run.turn(now + 10.0)
    assert not pipeline.intake.behind({})
    pipeline.intake.close()


def test_a_list_that_is_away_for_a_moment_ends_no_run(tmp_path: Path) -> None:
    write(tmp_path / "web01", 0, 200)
    listed = tmp_path / "agents.txt"
    with serving("web01", tmp_path / "web01") as (_, place):
        listed.write_text(place)
        pipeline = Pipeline(asked([str(listed)]), idle=2.0)
        pipeline.until(4)
        listed.unlink()  # as an editor does that writes another one
        pipeline.turn()
        pipeline.turn()
        told = f"stream 'logs': {listed}, which lists agents, cannot be read: No such file"
        assert [note for note in pipeline.notes if note.startswith(told)] == pipeline.notes[-1:]
        listed.write_text(place)
        pipeline.until(len(expected(tmp_path)["sums"]))
        pipeline.intake.close()


def test_finer_panes_take_what_was_counted_on_the_ones_of_before(tmp_path: Path) -> None:
    """Deliveries wait at the agent when a job is added whose windows need smaller panes."""
    count = "CREATE JOB {} AS SELECT count(*) AS c FROM logs WINDOW {} SECONDS;"
    both = count.format("sums", 10) + count.format("late", 4)
    write(tmp_path / "web01", 0, 100)
    with serving("web01", tmp_path / "web01") as (_, place):
        pipeline = Pipeline(f"CREATE STREAM logs FROM AGENTS {place!r}; {count.format('sums', 10)}")
        pipeline.until(1)
        write(tmp_path / "web01", 100, 300)
        time.sleep(1)  # the agent reads on
        program = sql(f"CREATE STREAM logs FROM AGENTS {place!r}; {both}")
        (stream,) = program.streams.values()
        pipeline.run.loop.exchange(Catalog.of(stream, program.jobs.values()))
        pipeline.turn()
        write(tmp_path / "web01", 300, 400)
        pipeline.until(9)
        pipeline.intake.close()
    wanted = windows_inline(sql(f"CREATE STREAM logs {FILES.format(tmp_path)}; {both}"))
    rows = [
        row
        for windows in wanted
        if windows.job.name == "sums"
        for row in windows.table().to_pylist()
    ]
    assert same(pipeline.rows["sums"], rows)
    assert pipeline.rows["late"]


def rows_of(pipeline: Pipeline, windows: int) -> list[Any]:
    pipeline.until(windows)
    pipeline.intake.close()
    return pipeline.rows["sums"]


COUNT = "CREATE JOB sums AS SELECT count(*) AS c FROM logs WINDOW 10 SECONDS;"


@pytest.mark.parametrize("kind", ["denied", "damaged"])
def test_what_an_agent_cannot_read_is_told_and_lost(tmp_path: Path, kind: str) -> None:
    """As if the same files were read directly."""
    write(tmp_path / "web01", 0, 100)
    with serving("web01", tmp_path / "web01") as (_, place):  # as nobody may load modules
        rows_of(Pipeline(f"CREATE STREAM logs FROM AGENTS {place!r}; {COUNT}", idle=2.0), 1)
    with nobody() as folder:
        write(folder / "web01", 0, 100)
        lines = [json.dumps({"t": 1000 + i / 4, "k": "b", "n": i}) + "\n" for i in range(100)]
        if kind == "denied":
            (folder / "web01" / "b.log").write_text("".join(lines))
            (folder / "web01" / "b.log").chmod(0)
        else:
            data = gzip.compress("".join(lines).encode())
            (folder / "web01" / "b.log.gz").write_bytes(data[:100] + b"damage" + data[106:])
            os.utime(folder / "web01" / "b.log.gz", (0, 0))  # nobody is writing it
        files = FILES.format(folder).replace("/a.log'", "/*.log*'")
        directly = Pipeline(f"CREATE STREAM logs {files} SLACK 1 SECOND; {COUNT}", idle=2.0)
        wanted = rows_of(directly, 4)
        with serving("web01", folder / "web01", pattern="*.log*") as (_, place):
            text = f"CREATE STREAM logs FROM AGENTS {place!r}; {COUNT}"
            pipeline = Pipeline(text, idle=2.0)
            rows = rows_of(pipeline, 4)
        file = {"denied": "b.log", "damaged": "b.log.gz"}[kind]
        assert any(file in note for note in directly.notes)
        assert [note for note in pipeline.notes if file in note] == [
            f"agent 'web01': {note}" for note in directly.notes if file in note
        ]
        told = [
            [(r["c"], r["c2"]["area"], r["c2"]["missing"]) for r in some] for some in (rows, wanted)
        ]
        assert told[0] == told[1]
        assert rows[3]["c2"]["area"] == 0.0


def test_two_agents_with_one_name_are_refused(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write(tmp_path / name, 0, 200)
    with (
        serving("web", tmp_path / "one") as (_, first),
        serving("web", tmp_path / "two") as (_, second),
    ):
        pipeline = Pipeline(f"CREATE STREAM logs FROM AGENTS {first!r}, {second!r}; {COUNT}")
        both = f"the agents at {' and '.join(sorted([first, second]))} are both named 'web'"
        with pytest.raises(InputError, match=f"{both}; start each with a --name of its own"):
            pipeline.turn()
        pipeline.intake.close()
        program = sql(f"CREATE STREAM logs FROM AGENTS {first!r}, {second!r}, 'a:1'; {COUNT}")
        with pytest.raises(InputError, match=both):  # as is asked before Spark starts
            require_agents(program, follow=True)
    assert not list(tmp_path.glob("*/state/*.safe"))  # nobody was made to count


def test_agents_are_asked_who_they_are_only_for_jobs(tmp_path: Path) -> None:
    files = f"CREATE STREAM logs {FILES.format(tmp_path)}; {COUNT}"
    columns = FILES.split("FROM")[0]
    others = f"CREATE STREAM others {columns} FROM AGENTS 'a:1' FORMAT json TIMESTAMP t;"
    require_agents(sql(files + others), follow=False)
    with pytest.raises(InputError, match="'others' comes from agents, which go on"):
        require_agents(sql(others + COUNT.replace("logs", "others")), follow=False)


def test_a_slack_that_does_not_count_is_told(tmp_path: Path) -> None:
    for name in ("web01", "web02", "web03", "web04"):
        write(tmp_path / name, 0, 200)
    slacks = {"web01": None, "web02": "5 SECONDS", "web03": "5 SECONDS", "web04": ""}
    with ExitStack() as stack:
        places = [
            stack.enter_context(serving(name, tmp_path / name, slack=slack))[1]
            for name, slack in slacks.items()
        ]
        through = stack.enter_context(relaying(*places[2:]))[1]
        pipeline = Pipeline(f"CREATE STREAM logs FROM AGENTS {places[0]!r}, {places[1]!r}, "
                            f"{through!r}; {COUNT}")  # fmt: skip
        pipeline.until(3)
        pipeline.intake.close()
    assert pipeline.notes == [
        "stream 'logs': SLACK is 1 second for all agents, and not 5 seconds as the settings of "
        "agents 'web02', 'web03' say; give all the same, or none"
    ]


def test_another_agent_with_the_name_of_one_is_told_of_and_not_read(tmp_path: Path) -> None:
    """It is added to the list while the pipeline runs; the one that is read goes on."""
    for name in ("one", "two"):
        write(tmp_path / name, 0, 200)
    listed = tmp_path / "agents.txt"
    with (
        serving("web", tmp_path / "one") as (_, first),
        serving("web", tmp_path / "two") as (_, second),
        relaying(second) as (_, relay),
    ):
        listed.write_text(first)
        pipeline = Pipeline(f"CREATE STREAM logs FROM AGENTS '{listed}'; {COUNT}")
        pipeline.until(3)
        listed.write_text(f"{relay}\n{first}")  # through a relay, which comes before others
        write(tmp_path / "one", 200, 400)
        rows = rows_of(pipeline, 9)
        assert pipeline.notes == [
            f"stream 'logs': the agents at {' and '.join(sorted([first, second]))} are both named "
            f"'web'; the one at {second} is not read; start each with a --name of its own"
        ]
    (tmp_path / "two" / "a.log").unlink()
    files = sql(f"CREATE STREAM logs {FILES.format(tmp_path)}; {COUNT}")
    wanted = [row for windows in windows_inline(files) for row in windows.table().to_pylist()]
    assert same(rows, wanted)


def test_an_agent_in_the_place_of_another_is_taken_for_it(tmp_path: Path) -> None:
    """It was started again, or on another machine: only one of them answers."""
    write(tmp_path / "web", 0, 200)
    listed = tmp_path / "agents.txt"
    with serving("web", tmp_path / "web") as (_, place):
        listed.write_text(place)
        pipeline = Pipeline(f"CREATE STREAM logs FROM AGENTS '{listed}'; {COUNT}")
        pipeline.until(3)
    write(tmp_path / "web", 200, 400)
    with serving("web", tmp_path / "web") as (_, place):
        listed.write_text(place)
        rows = rows_of(pipeline, 9)
    assert not [note for note in pipeline.notes if "named" in note]
    files = sql(f"CREATE STREAM logs {FILES.format(tmp_path)}; {COUNT}")
    wanted = [row for windows in windows_inline(files) for row in windows.table().to_pylist()]
    assert same(rows, wanted)


@pytest.mark.parametrize("behind", [3600.0, -3600.0])
def test_a_clock_that_is_wrong_makes_no_agent_dead(tmp_path: Path, behind: float) -> None:
    """It says how long ago all was read, and not when."""
    write(tmp_path / "web01", 0, 100)
    with serving("web01", tmp_path / "web01") as (agent, place):
        agent._clock = lambda: time.time() - behind
        pipeline = Pipeline(f"CREATE STREAM logs FROM AGENTS {place!r}; {COUNT}", idle=2.0)
        pipeline.until(3)
        source = pipeline.run.loop.progress.sources["web01"]
        limit = time.monotonic() + 60
        while source.touched_at - source.wrote_at < 3.0:
            assert time.monotonic() < limit
            pipeline.turn()
            time.sleep(0.05)
        assert -1 < time.time() - source.touched_at < 3
        pipeline.intake.close()


def test_an_agent_whose_disk_was_full_is_told_of_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "web01", 0, 200)
    with serving("web01", tmp_path / "web01") as (_, place):
        pipeline = Pipeline(f"CREATE STREAM logs FROM AGENTS {place!r}; {COUNT}")
        pipeline.until(3)

        def full(path: Path, records: object) -> int:
            raise StateError(f"{path} cannot be written: No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(tape, "add", full)
            write(tmp_path / "web01", 200, 400)
            limit = time.monotonic() + 60
            while not pipeline.notes:
                assert time.monotonic() < limit
                pipeline.turn()
                time.sleep(0.02)
        rows = rows_of(pipeline, 9)
        file = tmp_path / "web01" / "state" / "logs.safe"
        assert pipeline.notes == [
            f"stream 'logs': agent 'web01' cannot go on: {file} cannot be written: No space left "
            "on device; it tries again"
        ]
    files = sql(f"CREATE STREAM logs {FILES.format(tmp_path)}; {COUNT}")
    wanted = [row for windows in windows_inline(files) for row in windows.table().to_pylist()]
    assert same(rows, wanted)


def test_when_an_agent_answered_last_is_saved_though_nothing_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "web01", 0, 200)
    commits: list[float] = []

    def commit(self: Unsaved, _: object, emission: Emission, *__: object) -> Emission:
        commits.append(self.progress.sources["web01"].answered_at)
        return emission

    monkeypatch.setattr(Unsaved, "commit", commit)
    with serving("web01", tmp_path / "web01") as (_, place):
        pipeline = Pipeline(f"CREATE STREAM logs FROM AGENTS {place!r}; {COUNT}", idle=2.0)
        pipeline.until(5)
        now = time.time()
        assert now - 60 < commits[-1] <= now
        for ahead in (100.0, 101.0, 129.0, 131.0):
            pipeline.run.turn(now + ahead)
    pipeline.run.turn(now + 200.0)  # it does not answer any more
    pipeline.intake.close()
    assert [at for at in commits if at > now] == [now + 100.0, now + 131.0]
