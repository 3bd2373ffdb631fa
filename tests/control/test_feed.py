"""Each result once, none left out: from memory, from tables, before and after a restart."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

import muntin as mt
from muntin.control.feed import Feed
from muntin.control.told import FIRST, Position, Told
from muntin.fidelity.score import C2, Reason
from muntin.model.counts import Counts
from muntin.model.jobs import Job
from muntin.run.results import Emission, JobWindows, no_windows
from muntin.store.results import Results
from tests.effort import EFFORT

JOB = """
CREATE STREAM s (ts TIMESTAMPTZ, n BIGINT) FROM 'x/{source}' FORMAT json TIMESTAMP ts;
CREATE JOB sums AS SELECT sum(n) AS n FROM s WINDOW 1 SECOND, 2 SECONDS EVERY 1 SECOND;
"""
SECOND = 1_000_000
SCORE = C2(Reason.COMPLETE, 1.0, 1.0, 1.0, 1, ((1, 1),))


def departures(job: Job, at: int, windows: list[tuple[int, int, int, bool]]) -> Emission:
    """Windows as (which, last second, revision, withdrawn) that leave together."""
    kinds = [(which, end) for which, end, _, _ in windows]
    rows = [k for k, (*_, withdrawn) in zip(kinds, windows, strict=True) if not withdrawn]
    empty = no_windows(job)
    table = pa.table(
        [[w for w, _ in rows], [e for _, e in rows], [100 * at + w for w, _ in rows]],
        schema=empty.rows.schema,
    )
    revisions = {kind: revision for kind, (*_, revision, _) in zip(kinds, windows, strict=True)}
    counts, scores = dict.fromkeys(kinds, Counts(1)), dict.fromkeys(kinds, SCORE)
    return Emission((JobWindows(job, table, counts, scores, revisions, float(at)),))


class Program:
    """What is committed, as a program does it: stored first, then handed to the feed."""

    def __init__(self, state: Path) -> None:
        (self.job,) = mt.sql(JOB).jobs.values()
        self.state = state
        self.results = Results(state)
        self.results.prepare({"sums": no_windows(self.job).table().schema})
        self.feed = Feed(state, memory=100)
        self.at = 1000

    def commit(self, windows: list[tuple[int, int, int, bool]]) -> None:
        self.at += 1
        emission = departures(self.job, self.at, windows)
        tables = [table for each in emission.windows for table in each.tables()]
        files = self.results.write(self.at, {"sums": tables})
        self.results.publish("writer", self.at, files)
        self.feed.take(emission)

    def restart(self, memory: int) -> None:
        self.feed = Feed(self.state, memory)


def read(feed: Feed, position: Position) -> list[Told]:
    """All that there is behind a position, taken in turns."""
    found: list[Told] = []
    while some := feed.after("sums", found[-1].position if found else position):
        found += some
    return found


def loaded(results: list[Told]) -> list[dict[str, Any]]:
    return [json.loads(one.text) for one in results]


# Turns: windows that leave together, at most one revision of a window that left before.
TURNS = st.lists(
    st.tuples(st.integers(1, 3), st.booleans(), st.booleans(), st.sampled_from([0, 100, 1 << 20])),
    min_size=1,
    max_size=6,
)


@settings(max_examples=15 * EFFORT)
@given(TURNS, st.data())
def test_memory_and_tables_tell_the_same_once(
    turns: list[tuple[int, bool, bool, int]], data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        program = Program(Path(folder))
        seen: list[Told] = []
        end = 0
        for count, revised, restarted, memory in turns:
            windows = [(which, end + n, 0, False) for n in range(1, count + 1) for which in (0, 1)]
            end += count
            if revised:
                windows.append((0, -end, 1, data.draw(st.booleans())))  # of seconds before
            if restarted:
                program.restart(memory)
            program.commit(windows)
            if data.draw(st.booleans()):
                seen += read(program.feed, seen[-1].position if seen else FIRST)
        seen += read(program.feed, seen[-1].position if seen else FIRST)
        whole = read(Feed(Path(folder)), FIRST)
        assert loaded(seen) == loaded(whole)
        assert [one.position for one in whole] == sorted({one.position for one in whole})
        assert len(whole) == sum(2 * count + revised for count, revised, *_ in turns)
        assert not program.feed.after("sums", program.feed.last("sums"))
        latest, stored = program.feed.latest("sums"), Feed(Path(folder)).latest("sums")
        assert sorted(one.text for one in latest) == sorted(one.text for one in stored)
        ends = {(row["window"], row["end"][17:19]) for row in loaded(latest)}
        assert {int(second) for _, second in ends} == {end}
        assert len(ends) == 2


def test_what_is_committed_while_a_reader_looks_is_not_told_twice(tmp_path: Path) -> None:
    """A table has it already, and the feed will have it in a moment."""
    program = Program(tmp_path)
    feed, program.feed = program.feed, Feed(tmp_path)  # that is handed nothing yet
    program.commit([(0, 1, 0, False)])
    program.feed = feed
    (one,) = read(program.feed, FIRST)
    feed.take(departures(program.job, program.at, [(0, 1, 0, False)]))
    assert program.feed.after("sums", one.position) == []
    assert [each.position for each in program.feed.latest("sums")] == [one.position]


def test_a_job_without_results_has_none(tmp_path: Path) -> None:
    feed = Feed(tmp_path)
    assert feed.latest("new") == list(feed.every("new")) == []
    assert list(feed.after("new", feed.last("new"))) == []
