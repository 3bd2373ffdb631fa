"""Sessions that leave: in pieces as at once, in files as at hand, each with its own score."""

from __future__ import annotations

import pickle
import tempfile
from functools import reduce
from pathlib import Path

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from muntin.fidelity.score import EVER, NEVER, Board, Gap, State, Track
from muntin.kernel.statements import (
    SESSION_LATE,
    SESSION_RECORDS,
    SESSION_START,
    WINDOW,
    WINDOW_END,
)
from muntin.language.program import sql
from muntin.run.many import Part
from muntin.run.results import JobWindows, stored_schema
from muntin.run.sessions import StoredSessions, Totals, Verdict, WaitingSessions, in_sessions
from muntin.store import delta
from muntin.store.parts import FileParts, PartWriter, in_order
from muntin.store.storage import storage_of
from tests.effort import examples

PROGRAM = sql(
    "CREATE STREAM s (t BIGINT, k VARCHAR) FROM '/logs/{source}.log' FORMAT json TIMESTAMP t; "
    "CREATE JOB j AS SELECT k, count(*) AS c FROM s GROUP BY k WINDOW SESSION 10 SECONDS;"
)
JOB = PROGRAM.jobs["j"]

gaps = st.builds(
    lambda lower, size, state: Gap(lower, lower + size, state),
    st.integers(0, 40), st.integers(1, 8), st.sampled_from([State.LOST, State.SHED]),
)  # fmt: skip
tracks = st.builds(
    lambda first, until, whole, rest, never: Track(first, until, whole, rest, tuple(sorted(never))),
    st.integers(-5, 20),
    st.sampled_from([EVER, 30]),
    st.one_of(st.integers(0, 45), st.just(EVER)),
    st.sampled_from([State.AWAITED, State.DEAD]),
    st.lists(gaps, max_size=2),
)
boards = st.dictionaries(st.sampled_from(["a", "b", "c"]), tracks, min_size=1).map(Board)
verdicts = st.builds(
    Verdict,
    boards,
    st.sampled_from([NEVER, 5]),
    st.sampled_from([None, 25]),
    st.sampled_from([None, 30]),
    st.sampled_from([None, 0, 20]),
)
session = st.tuples(
    st.integers(0, 30), st.integers(1, 12), st.sampled_from("xyz"), st.integers(1, 5),
    st.sampled_from([0, 0, 0, 2]),
)  # fmt: skip


def ordered(found: list[tuple[int, int, str, int, int]]) -> pa.Table:
    """Rows as `order` gives them."""
    rows = sorted(
        (start + size, start, key, records, late) for start, size, key, records, late in found
    )
    ends, starts, keys, records, late = zip(*rows, strict=True) if rows else [()] * 5
    return pa.table(
        {
            WINDOW: pa.array([0] * len(rows), pa.int32()),
            WINDOW_END: pa.array(ends, pa.int64()),
            SESSION_START: pa.array(starts, pa.int64()),
            SESSION_RECORDS: pa.array(records, pa.int64()),
            SESSION_LATE: pa.array(late, pa.int64()),
            "k": pa.array(keys, pa.string()),
            "c": pa.array(records, pa.int64()),
        }
    )


def results(windows: JobWindows | StoredSessions) -> list[object]:
    return [
        (r.job, r.window, r.start, r.end, r.rows.to_pylist(), r.counts, r.c2, r.version)
        for r in windows.results()
    ]


@examples(150)
@given(verdict=verdicts, found=st.lists(session, max_size=30))
def test_a_session_leaves_and_scores_by_itself(
    verdict: Verdict, found: list[tuple[int, int, str, int, int]]
) -> None:
    rows = ordered(found)
    windows = verdict.sessions(JOB, rows)
    mine = {
        (start, start + size)
        for start, size, *_ in found
        if start >= verdict.began
        and (verdict.before is None or start < verdict.before)
        and (verdict.until is None or start + size <= verdict.until)
    }
    assert windows.counts.keys() == windows.scores.keys() == mine
    for (start, end), counts in windows.counts.items():
        same = [each for each in found if (each[0], each[0] + each[1]) == (start, end)]
        late = sum(each[4] for each in same)
        assert (counts.read, counts.late) == (sum(each[3] for each in same) + late, late)
        alone = Verdict(verdict.board).score(start, end, counts)
        assert windows.scores[start, end] == alone


@examples(60)
@given(verdict=verdicts, found=st.lists(session, max_size=30), most=st.integers(1, 12))
def test_in_pieces_and_files_sessions_are_what_they_are_at_once(
    verdict: Verdict, found: list[tuple[int, int, str, int, int]], most: int
) -> None:
    rows = ordered(found)
    whole = verdict.sessions(JOB, rows).left_at(100.0)
    sent: Verdict = pickle.loads(pickle.dumps(verdict))
    pieces = [sent.sessions(JOB, some).left_at(100.0) for some in in_sessions(rows, most)]
    assert pa.concat_tables([rows.slice(0, 0), *(each.rows for each in pieces)]) == whole.rows
    totals = reduce(Totals.plus, (Totals.of(p, verdict.lags_after) for p in pieces), Totals())
    expected = Totals.of(whole, verdict.lags_after)
    assert (totals.windows, totals.rows, totals.last, totals.lacking) == (
        len(whole.counts), whole.num_rows, expected.last, expected.lacking
    )  # fmt: skip
    assert totals.timing.lags == expected.timing.lags
    assert abs(totals.timing.area - expected.timing.area) < 1e-9
    with tempfile.TemporaryDirectory() as folder:
        place = storage_of(Path(folder)).within("j")
        schema = stored_schema(JOB).append(pa.field("row_number", pa.int64()))
        delta.create(place, schema, {})
        writer = PartWriter(place, schema, 0)
        tables = (table for each in pieces for table in each.tables())
        file = writer.write(in_order(tables))
        files = [file] if file is not None and whole.counts else []
        waiting = WaitingSessions(JOB, NotAsked(), verdict, at=100.0)
        parts = FileParts(place, tuple(each.name for each in files))
        stored = StoredSessions.of(waiting, parts, files, totals)
        assert results(stored) == results(whole)
        assert (stored.num_windows, stored.num_rows) == (len(whole.counts), whole.num_rows)
        if whole.counts:
            assert results(stored.newest()) == results(whole.newest())
            assert stored.last == whole.last


class NotAsked:
    """Rows of nobody: what is stored is not waited for."""

    faults = ()

    def write(self, *_: object) -> tuple[list[Part], Totals]:
        raise AssertionError

    def let_go(self) -> None:
        raise AssertionError
