"""Sessions against the definition, record by record and pair by pair.

A record belongs to the sessions of its key that it is at most the gap away from, and that are open
by the clock of its own source when it is read. If the gap behind it was over by then, and it is
near no open session, it is late.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import muntin as mt
from muntin.run.agents import Agents
from muntin.run.inline import InlineRun, windows_inline
from muntin.run.loop import Loop, Rules
from muntin.run.progress import Lateness
from muntin.store.results import Results
from muntin.store.status import status
from tests.agent.serving import serving
from tests.effort import examples
from tests.oracle import Record, stream_time, write_logs
from tests.waiting import wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("looking_at_all")

GAP = 10
records = st.lists(
    st.fixed_dictionaries(
        {
            "t": st.integers(-60, 120),
            "k": st.sampled_from(["a", "b", None]),
            "n": st.one_of(st.none(), st.integers(0, 3)),
        }
    ),
    max_size=25,
)
sources = st.dictionaries(st.sampled_from(["web-1", "web-2", "db"]), records, min_size=1)
slacks = st.sampled_from([None, 0, 15])
Row = tuple[Any, ...]
Logs = Mapping[str, Sequence[Record]]
JOB = (
    "CREATE JOB visits AS SELECT k, count(*) AS records, sum(n) AS total, "
    "count(DISTINCT n) AS different, median(n) AS middle "
    f"FROM logs WHERE n IS NULL OR n < 3 GROUP BY k WINDOW SESSION {GAP} SECONDS;"
)


def program(folder: Path, slack: int | None) -> mt.Program:
    wait = f"SLACK {slack} SECONDS" if slack is not None else ""
    return mt.sql(
        f"CREATE STREAM logs (t BIGINT, k VARCHAR, n BIGINT) FROM '{folder}/{{source}}.jsonl' "
        f"FORMAT json TIMESTAMP t {wait}; {JOB}"
    )


@dataclass
class Read:
    """A record and the mark it was read at: its source's stream time, less the slack."""

    record: Record
    mark: float

    @property
    def t(self) -> int:
        return int(self.record["t"])

    @property
    def known(self) -> float:
        return max(self.t, self.mark)

    @property
    def lives(self) -> bool:
        return self.mark <= self.t + GAP

    def meets(self, other: Read) -> bool:
        """Whether both were known before the gap behind either was over."""
        return max(self.known, other.known) <= min(self.t, other.t) + GAP


@dataclass
class Visit:
    """A session: it is open while a record of it lives."""

    living: list[Read]
    taken: list[Read] = field(default_factory=list)

    @property
    def records(self) -> list[Read]:
        return sorted([*self.living, *self.taken], key=lambda r: r.t)

    def takes(self, read: Read) -> bool:
        is_open = any(r.known <= read.mark for r in self.living) and any(
            read.mark <= r.t + GAP for r in self.living
        )
        return is_open and any(abs(r.t - read.t) <= GAP for r in self.records)


def visits_of(key: Any, every: Sequence[Read]) -> tuple[list[Visit], list[Read]]:
    """The sessions of a key, and its records that are late."""
    mine = [read for read in every if read.record["k"] == key]
    visits: list[Visit] = []
    for read in (r for r in mine if r.lives):
        near = [v for v in visits if any(read.meets(r) for r in v.living)]
        visits = [v for v in visits if not any(v is n for n in near)]
        visits.append(Visit([read, *(r for v in near for r in v.living)]))
    late = [read for read in mine if not read.lives]
    changed = True
    while changed:
        changed = False
        for read in late:
            for visit in visits:
                if visit.takes(read):
                    visit.taken.append(read)
                    late = [r for r in late if r is not read]
                    changed = True
                    break
    return visits, late


def read_of(logs: Logs, slack: int | None) -> list[Read]:
    """What the job asks for, each with its mark."""
    every = []
    for log in logs.values():
        for number, record in enumerate(log, 1):
            reached = stream_time([r["t"] for r in log[:number]], slack)
            mark = -inf if slack is None else reached - slack
            if record["n"] is None or record["n"] < 3:
                every.append(Read(record, mark))
    return every


def expected(logs: Logs, slack: int | None) -> tuple[list[Row], list[Read]]:
    """The rows of all sessions, and the late records."""
    every, rows, late = read_of(logs, slack), [], []
    for key in {read.record["k"] for read in every}:
        visits, missed = visits_of(key, every)
        rows += [_row([read.record for read in visit.records]) for visit in visits]
        late += missed
    return sorted(rows, key=_order), late


def _row(session: list[Record]) -> Row:
    numbers = sorted(r["n"] for r in session if r["n"] is not None)
    half = len(numbers) // 2
    middle = (numbers[half] + numbers[~half]) / 2 if numbers else None
    return (
        session[0]["t"],
        session[-1]["t"] + GAP,
        session[0]["k"],
        len(session),
        sum(numbers) if numbers else None,
        len(set(numbers)),
        middle,
    )


def rows_of(results: Iterable[mt.Result]) -> list[Row]:
    return [
        (result.start // 1_000_000, result.end // 1_000_000, *row.values())
        for result in results
        for row in result.rows.to_pylist()
    ]


def late_of(loops: Iterable[Loop]) -> tuple[int, int]:
    """How many records are late, and the slack in seconds that would have kept them."""
    (late,) = [loop.progress.late.get("visits", Lateness()) for loop in loops] or [Lateness()]
    return late.records, -(-late.slack_us // 1_000_000)


@examples(80)
@given(logs=sources, slack=slacks, batch=st.integers(1, 2000), piece=st.integers(1, 800))
def test_inline(logs: Logs, slack: int | None, batch: int, piece: int) -> None:
    loops: list[Loop] = []
    with tempfile.TemporaryDirectory() as folder:
        write_logs(Path(folder), logs)
        asked = program(Path(folder), slack)
        leaving = windows_inline(asked, done=loops.append, batch_bytes=batch, piece_bytes=piece)
        found = rows_of(result for windows in leaving for result in windows.results())
    rows, late = expected(logs, slack)
    assert sorted(found, key=_order) == rows
    records, slack_s = late_of(loops)
    assert records == len(late)
    if late:
        assert slack_s == (slack or 0) + max(r.mark - r.t for r in late) - GAP


@examples(60)
@given(logs=sources, slack=st.sampled_from([0, 15]), piece=st.integers(1, 800))
def test_sessions_that_late_records_would_change_say_so(logs: Logs, slack: int, piece: int) -> None:
    """All at once, so that nothing leaves before the last record has come."""
    rows, late = expected(logs, slack)
    missed: Counter[tuple[int, int]] = Counter()
    read: Counter[tuple[int, int]] = Counter()
    for start, end, key, count, *_ in rows:
        near = [r for r in late if r.record["k"] == key and start - GAP <= r.t <= end]
        missed[start, end] += len(near)
        read[start, end] += count + len(near)
    with tempfile.TemporaryDirectory() as folder:
        write_logs(Path(folder), logs)
        leaving = list(windows_inline(program(Path(folder), slack), piece_bytes=piece))
    for result in (result for windows in leaving for result in windows.results()):
        session = result.start // 1_000_000, result.end // 1_000_000
        counts = result.counts
        assert (counts.late, counts.read) == (missed.pop(session), read[session])
        share = (counts.read - counts.late) / counts.read
        assert (result.c2.area, str(result.c2.reason)) == (
            share,
            "complete" if share == 1 else "exhausted",
        )
    assert not missed


@examples(8)
@given(logs=sources, slack=slacks, batch=st.integers(100, 1000))
def test_spark(spark: SparkSession, logs: Logs, slack: int | None, batch: int) -> None:
    from muntin.spark.runner import Settings, SparkRun

    with tempfile.TemporaryDirectory() as folder:
        write_logs(Path(folder), logs)
        state = Settings(Path(folder) / "state", follow=False, batch_bytes=batch)
        run = SparkRun(program(Path(folder), slack), spark.sparkContext, state)
        found = rows_of(result for step in run.turns() for result in step.emission.results())
    rows, late = expected(logs, slack)
    assert sorted(found, key=_order) == rows
    assert sum(run.summary.late.values()) == len(late)


def _order(row: Row) -> tuple[Any, ...]:
    return row[1], row[0], row[2] is None, row[2] or ""


def test_a_session_is_counted_by_its_own_records(tmp_path: Path) -> None:
    """a at 0 and 5, b at 3: two sessions of two and one records."""
    write_logs(
        tmp_path, {"web-1": [{"t": t, "k": k, "n": 1} for t, k in ((0, "a"), (3, "b"), (5, "a"))]}
    )
    found = list(mt.run(program(tmp_path, None)))
    assert [(r.start, r.end, r.counts.read, r.window) for r in found] == [
        (3_000_000, 13_000_000, 1, "session 10 seconds"),
        (0, 15_000_000, 2, "session 10 seconds"),
    ]


ONE = JOB.replace("visits", "both").replace(";", ", 1 MINUTE EVERY 30 SECONDS;")
TWO = JOB + JOB.replace("visits", "counts").replace(
    f"SESSION {GAP} SECONDS", "1 MINUTE EVERY 30 SECONDS"
)


def together(folder: Path, slack: int | None, jobs: str) -> mt.Program:
    text = "(t BIGINT, k VARCHAR, n BIGINT) FROM '{}/{{source}}.jsonl' FORMAT json TIMESTAMP t"
    wait = f"SLACK {slack} SECONDS" if slack is not None else ""
    return mt.sql(f"CREATE STREAM logs {text.format(folder)} {wait}; {jobs}")


@examples(25)
@given(logs=sources, slack=slacks, batch=st.integers(100, 2000))
def test_sessions_beside_other_windows(logs: Logs, slack: int | None, batch: int) -> None:
    """One job with both has the results of two jobs, scores and counts included."""
    found: list[list[Any]] = []
    late: list[list[str]] = []
    with tempfile.TemporaryDirectory() as folder:
        write_logs(Path(folder), logs)
        for jobs in (ONE, TWO):
            loops: list[Loop] = []
            asked = together(Path(folder), slack, jobs)
            leaving = windows_inline(asked, done=loops.append, batch_bytes=batch)
            results = [r for windows in leaving for r in windows.results()]
            assert {r.job for r in results} <= set(asked.titles)
            found.append(
                sorted(
                    (r.window, r.start, r.end, repr(r.rows.to_pylist()), repr(r.counts), str(r.c2))
                    for r in results
                )
            )
            late.append(sorted(repr(x) for loop in loops for x in loop.progress.late.values()))
    assert found[0] == found[1]
    assert late[0] == late[1]


def test_sessions_beside_other_windows_are_stored_in_one_table(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Left after every batch, and at last begun anew over the same results."""
    from muntin.spark.runner import Settings, StreamRun

    log = [{"t": i * 7 % 300 + i, "k": "ab"[i % 2], "n": i % 3} for i in range(60)]
    write_logs(tmp_path, {"web-1": log, "web-2": log[:30]})
    asked, state = together(tmp_path, 20, ONE), tmp_path / "state"
    settings = Settings(state, follow=False, batch_bytes=400)

    def run() -> list[str]:
        notes: list[str] = []
        remaining = True
        while remaining:
            stream, jobs = asked.streams["logs"], asked.jobs_of("logs")
            run = StreamRun(spark.sparkContext, stream, jobs, settings)
            turn = run.loop.turn(0.0)
            notes += turn.notes
            remaining = turn.remaining > 0
            run.close()
        return notes

    def stored() -> list[Any]:
        columns = ("job", "window_name", "window_start", "window_end", "k", "records", "revision")
        rows = mt.results("both", state).select(columns)
        for number in (2, 3):
            times = rows[columns[number]].cast(pa.int64())
            rows = rows.set_column(number, columns[number], times)
        return sorted(tuple(row.values()) for row in rows.to_pylist())

    run()
    wanted = [
        ("both", r.window, r.start, r.end, row["k"], row["records"], 0)
        for r in mt.run(asked)
        for row in r.rows.to_pylist()
    ]
    assert stored() == sorted(wanted)
    assert Results(state).jobs() == ["both"]
    names = {row["job"] for row in status(state)[0]}
    assert names == {"both", f"both (session {GAP} seconds)"}
    latest = mt.results("both", state, window="latest")["window_name"].to_pylist()
    assert set(latest) == {"1 minute every 30 seconds", f"session {GAP} seconds"}
    for folder in state.iterdir():
        if folder.name != "results":
            shutil.rmtree(folder) if folder.is_dir() else folder.unlink()
    assert any("not stored again" in note for note in run())
    assert stored() == sorted(wanted)


@pytest.mark.parametrize("clause", ["ORDER BY k", "LIMIT 3"])
def test_sessions_have_no_common_order(clause: str) -> None:
    text = (
        "CREATE STREAM logs (t BIGINT, k VARCHAR) FROM 'x' FORMAT json TIMESTAMP t;"
        f"CREATE JOB j AS SELECT k, count(*) FROM logs GROUP BY k {clause} WINDOW SESSION 5 MINUTES"
    )
    with pytest.raises(mt.LanguageError, match="each session is one key's own"):
        mt.sql(text)


@pytest.mark.parametrize("batches", [1, 4, 12])
def test_a_record_that_is_near_an_open_session_belongs_to_it(tmp_path: Path, batches: int) -> None:
    """In whatever batch they come, with a gap of 20 seconds and no slack:

        at    50 60 70 100 115 108 70 116 117 119 140 160 200
        of     x  x  x   k   o   k  k   o   o   o   o   o   o
        mark                115 115 115

    100 and 108 of k are one session. 70 of k is too far from both.
    """
    log = [(50, "x"), (60, "x"), (70, "x"), (100, "k"), (115, "o"), (108, "k"), (70, "k")]
    log += [(116, "o"), (117, "o"), (119, "o"), (140, "o"), (160, "o"), (200, "o")]
    clause = "(t BIGINT, k VARCHAR) FROM '{}/a.log' FORMAT json TIMESTAMP t"
    asked = mt.sql(
        f"CREATE STREAM s {clause.format(tmp_path)};"
        "CREATE JOB j AS SELECT k, count(*) AS c FROM s GROUP BY k WINDOW SESSION 20 SECONDS;"
    )
    run = InlineRun(asked.streams["s"], list(asked.jobs.values()), Rules(True, 1000.0))
    found: list[mt.Result] = []
    for number in range(batches):
        with (tmp_path / "a.log").open("a") as file:
            some = log[number * len(log) // batches : (number + 1) * len(log) // batches]
            file.writelines(json.dumps({"t": t, "k": k}) + "\n" for t, k in some)
        found += run.turn(1000.0 + number).results()
    (of_k,) = [r for r in found if r.rows["k"].to_pylist() == ["k"]]
    assert (of_k.start, of_k.end) == (100_000_000, 128_000_000)
    assert (of_k.counts.read, of_k.counts.late, of_k.c2.area) == (2, 0, 1.0)
    late = run.loop.progress.late["j"]
    assert (late.records, late.slack_us) == (1, 25_000_000)  # 70 lives until 90


def test_records_exactly_the_gap_apart_are_one_session(tmp_path: Path) -> None:
    write_logs(tmp_path, {"web-1": [{"t": t, "k": "a", "n": 1} for t in (0, 10, 21)]})
    found = list(mt.run(program(tmp_path, None)))
    assert [(r.start, r.end) for r in found] == [(0, 20_000_000), (21_000_000, 31_000_000)]


@examples(3)
@given(logs=sources, slack=st.sampled_from([0, 15]), batch=st.integers(150, 600))
def test_runs_that_are_left_after_every_batch(
    spark: SparkSession, logs: Logs, slack: int, batch: int
) -> None:
    """With slack, that is: a finite run without it has nothing to save before its end."""
    from muntin.spark.runner import Settings, StreamRun

    with tempfile.TemporaryDirectory() as folder:
        write_logs(Path(folder), logs)
        asked = program(Path(folder), slack)
        settings = Settings(Path(folder) / "state", follow=False, batch_bytes=batch)
        remaining, late = True, 0
        while remaining:
            run = StreamRun(
                spark.sparkContext, asked.streams["logs"], asked.jobs_of("logs"), settings
            )
            remaining = run.loop.turn(0.0).remaining > 0
            late = run.loop.progress.late.get("visits", Lateness()).records
            run.close()
        stored = Results(Path(folder) / "state").read("visits").to_pylist()
    rows, missed = expected(logs, slack)
    columns = ("k", "records", "total", "different", "middle")
    found = [
        (
            int(row["window_start"].timestamp()),
            int(row["window_end"].timestamp()),
            *(row[name] for name in columns),
        )
        for row in stored
    ]
    assert (sorted(found, key=_order), late) == (rows, len(missed))


@examples(6)
@given(logs=sources)
def test_agents(logs: Logs) -> None:
    """Each source is an agent's. What has left by the end is what it should be."""
    slack = 1  # as these agents have it
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        whole = {name: [*log, *_afterwards(log)] for name, log in logs.items()}
        places = []
        for name, log in whole.items():
            (Path(folder) / name).mkdir()
            write_logs(Path(folder) / name, {"a": log})
            agent = serving(name, Path(folder) / name, pattern="*.jsonl")
            places.append(stack.enter_context(agent)[1])
        listed = ", ".join(map(repr, places))
        asked = mt.sql(f"CREATE STREAM logs FROM AGENTS {listed}; {JOB}")
        intake = Agents(asked.streams["logs"], "pipeline", None, 1000.0)
        stack.callback(intake.close)
        stream, jobs = asked.streams["logs"], asked.jobs_of("logs")
        run = InlineRun(stream, jobs, Rules(True, 1000.0), intake=intake)
        found: list[Row] = []

        def turn() -> bool:
            found.extend(rows_of(run.turn(time.time()).results()))
            return run.loop.progress.records == sum(map(len, whole.values()))

        wait_for(turn)
    rows, late = expected(whole, slack)
    assert sorted(found, key=_order) == [row for row in rows if row[1] < END - slack]
    assert late_of([run.loop])[0] == len(late)


END = 400


def _afterwards(log: Sequence[Record]) -> list[Record]:
    """Records of another key that take a source's stream time to the end, step by step."""
    first = max((record["t"] for record in log), default=0)
    times = [*range(first, END, 30), END, END, END]
    return [{"t": t, "k": "z", "n": 0} for t in times]
