"""Turns of one stream: what is delivered twice counts once, and jobs change between turns."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import muntin as mt
from muntin.fidelity.scoreboard import Source
from muntin.kernel.clocks import Clocks
from muntin.kernel.compute import Recipe, compute
from muntin.model.records import POSITION
from muntin.run.contracts import Batch, Delivery, Request, Task
from muntin.run.inline import InlineRun
from muntin.run.loop import Rules
from muntin.run.results import Emission

STREAM = "CREATE STREAM s (t BIGINT, k VARCHAR) FROM 'none/{source}' FORMAT json TIMESTAMP t;"
JOB = "CREATE JOB j AS SELECT k, count(*) AS c FROM s GROUP BY k WINDOW 10 SECONDS;"
Sent = tuple[str, int, tuple[int, ...]]  # source, number, seconds


@dataclass(frozen=True)
class Parcel:
    """Deliveries that somebody sends, as an agent would."""

    sent: tuple[Sent, ...]

    def tasks(self, most: int) -> Sequence[Task]:
        return [self]

    def deliver(self, recipes: Sequence[Recipe]) -> Iterator[Delivery]:
        for source, number, seconds in self.sent:
            times = pa.array([t * 1_000_000 for t in seconds], pa.int64())
            records = pa.table({POSITION: times, "k": ["x"] * len(seconds)})
            blocks, reading = compute(records, source, recipes, Clocks())
            yield Delivery(blocks, (replace(reading, sequence=number),))


class Post:
    """An intake that hands out what was put into it, and nothing else."""

    def __init__(self) -> None:
        self.waiting: list[Sent] = []

    def next(self, request: Request) -> Batch:
        sent, self.waiting = tuple(self.waiting), []
        return Batch(Parcel(sent) if sent else None)

    def names(self, now: float) -> frozenset[str]:
        return frozenset()

    def behind(self, sources: Mapping[str, Source]) -> frozenset[str]:
        return frozenset()


def told(emission: Emission) -> list[tuple[int, int, int, str]]:
    """Start, count, records read and score of each window."""
    return [
        (r.start // 1_000_000, r.rows["c"].to_pylist()[0], r.counts.read, str(r.c2))
        for r in emission.results()
    ]


def answers(batches: list[list[Sent]]) -> tuple[list[Any], dict[str, Any]]:
    """What leaves after each batch, and what was noted of all."""
    program, post = mt.sql(STREAM + JOB), Post()
    run = InlineRun(
        program.streams["s"], list(program.jobs.values()), Rules(True, 1e9), intake=post
    )
    left = []
    for now, sent in enumerate(batches):
        post.waiting += sent
        left.append(told(run.turn(1_000_000.0 + now)))
    progress = run.loop.progress
    reached = {name: source.reached for name, source in progress.sources.items()}
    return left, {"records": progress.records, "reached": reached, "ledger": set(progress.ledger)}


#            0        10        20        30
# a 1        · ·  ·
# a 2                  ·  ·
# b 1        ·             ·
# a 3                                ·
FIRST: list[Sent] = [("a", 1, (1, 2, 5)), ("b", 1, (3, 14))]
SECOND: list[Sent] = [("a", 2, (11, 14))]
THIRD: list[Sent] = [("a", 3, (31,)), ("b", 2, (32,))]


@given(data=st.data())
def test_a_delivery_that_comes_twice_changes_nothing(data: st.DataObject) -> None:
    batches = [FIRST, SECOND, THIRD]
    so_far: list[Sent] = []
    repeated = []
    for batch in batches:
        so_far += batch
        again = data.draw(st.lists(st.sampled_from(so_far), max_size=4))
        repeated.append([*batch, *again])
    assert answers(repeated) == answers(batches)


def write(folder: Path, *seconds: int) -> None:
    with (folder / "a.log").open("a") as log:
        log.writelines(json.dumps({"t": t, "k": "x", "n": t}) + "\n" for t in seconds)


def files(folder: Path, *jobs: str) -> mt.Program:
    stream = f"CREATE STREAM s (t BIGINT, k VARCHAR, n BIGINT) FROM '{folder}/{{source}}.log' "
    return mt.sql(stream + "FORMAT json TIMESTAMP t;" + "".join(jobs))


MINUTE = "CREATE JOB minute AS SELECT k, count(*) AS c FROM s GROUP BY k WINDOW 60 SECONDS;"
TEN = "CREATE JOB ten AS SELECT k, count(*) AS c FROM s GROUP BY k WINDOW 10 SECONDS;"
OTHER = "CREATE JOB other AS SELECT k, sum(n) AS c FROM s GROUP BY k WINDOW 20 SECONDS;"


@pytest.mark.parametrize("added", [TEN, OTHER])
def test_a_job_that_is_added_answers_from_its_first_whole_window(
    tmp_path: Path, added: str
) -> None:
    #         0         60        120       180
    # read    · · ·  ┊·  · · ·    · · · ·    ·
    # added          ┊
    write(tmp_path, 1, 25, 33)
    program = files(tmp_path, MINUTE)
    run = InlineRun(program.streams["s"], list(program.jobs.values()), Rules(True, 1e9))
    emissions = [run.turn(1000.0)]
    (job,) = files(tmp_path, added).jobs.values()
    run.loop.exchange(run.loop.catalog.with_jobs(job))
    assert run.loop.catalog.version == 1
    rest = [34, 45, 61, 70, 89, 121, 122, 130, 181]
    for number, second in enumerate(rest):
        write(tmp_path, second)
        emissions.append(run.turn(1001.0 + number))
    rows = [(r.job, r.start // 1_000_000, r.rows["c"][0].as_py(), r.counts.read)
            for emission in emissions for r in emission.results()]  # fmt: skip
    assert [row for row in rows if row[0] == "minute"] == [
        ("minute", 0, 5, 5),
        ("minute", 60, 3, 3),
        ("minute", 120, 3, 3),
    ]
    assert run.loop.progress.late == {}  # nothing is too late for windows from before the job
    size = job.windows[0].range // 1_000_000
    windows: Counter[int] = Counter(second // size * size for second in rest if second < 180)
    first = 40  # the first window that starts behind all that was read before
    assert [row[1] for row in rows if row[0] == job.name] == [w for w in windows if w >= first]


def test_a_job_that_is_added_answers_for_whole_sessions(tmp_path: Path) -> None:
    """One that begins within the gap after what was read may have begun before."""
    session = "CREATE JOB visits AS SELECT count(*) AS c FROM s WINDOW SESSION 10 SECONDS;"
    write(tmp_path, 1, 25, 33)
    program = files(tmp_path, MINUTE)
    run = InlineRun(program.streams["s"], list(program.jobs.values()), Rules(True, 1e9))
    run.turn(1000.0)
    (job,) = files(tmp_path, session).jobs.values()
    run.loop.exchange(run.loop.catalog.with_jobs(job))
    found = []
    for number, second in enumerate((43, 45, 56, 57, 70, 85)):
        write(tmp_path, second)
        results = run.turn(1001.0 + number).results()
        found += [(r.start // 1_000_000, r.counts.read) for r in results if r.job == "visits"]
    assert found == [(56, 2), (70, 1)]


def test_a_job_that_goes_leaves_the_others_as_they_are(tmp_path: Path) -> None:
    write(tmp_path, 1, 25, 33)
    program = files(tmp_path, MINUTE, TEN)
    run = InlineRun(program.streams["s"], list(program.jobs.values()), Rules(True, 1e9))
    run.turn(1000.0)
    run.loop.exchange(run.loop.catalog.without("ten"))
    write(tmp_path, 45, 61)
    assert [(r.job, r.rows["c"][0].as_py()) for r in run.turn(1001.0).results()] == [("minute", 4)]
