"""Panes that are asked about in trouble: where an answer says that it is whole, no record lacks.

Whatever comes late, is left behind or is shed, and whenever windows leave, the rows of a range are
those of records that were read for it, none twice; and where its score is 100 %, of all of them.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import muntin as mt
from muntin.ask.answering import Asking
from muntin.units import describe_time
from tests.ask.keeping import Kept
from tests.effort import examples

BEGIN = 100_000
PANE = 10
Record = tuple[str, int, str]  # source, seconds, key


class Told:
    """A program whose records are known, and which is asked about them."""

    def __init__(self, folder: Path, clauses: str, slack: int, declared: bool) -> None:
        self.folder, self.state = folder, folder / "state"
        sources = " SOURCES 'a', 'b'" if declared else ""
        self.program = mt.sql(
            f"CREATE STREAM s (t BIGINT, k VARCHAR) FROM '{folder}/{{source}}.log' FORMAT json "
            f"TIMESTAMP t SLACK {slack} SECONDS{sources}; CREATE JOB j AS SELECT k, count(*) AS c "
            f"FROM s GROUP BY k WINDOW 20 SECONDS EVERY 10 SECONDS {clauses} RETAIN 1 DAY;"
        )
        self.records: list[Record] = []
        self.run = Kept(self.program, self.state, follow=True, now=BEGIN)
        self.asking = Asking(self.state)

    def write(self, *records: Record) -> None:
        for source, t, k in records:
            with (self.folder / f"{source}.log").open("a") as log:
                log.write(json.dumps({"t": t, "k": k}) + "\n")
        self.records += records

    def restart(self) -> None:
        self.run = Kept(self.program, self.state, follow=True, now=self.run.now)

    def truth(self, start: int, end: int) -> Counter[str]:
        return Counter(k for _, t, k in self.records if start <= t < end)

    def ask(self, start: int, end: int) -> tuple[Counter[str], mt.C2]:
        text = f"BETWEEN '{describe_time(start * 10**6)}' AND '{describe_time(end * 10**6)}'"
        answer = self.asking.ask(f"SELECT k, c FROM j GROUP BY k {text}")
        (only,) = answer.ranges
        assert (only.start, only.end) == (start * 10**6, end * 10**6)
        return Counter({row["k"]: row["c"] for row in answer.rows.to_pylist()}), answer.c2

    def check(self) -> list[float]:
        """Asks about ranges of all lengths; returns how complete they are."""
        try:
            (only,) = self.asking.ask("SELECT count(*) FROM j").ranges
        except mt.InputError:
            assert not any(self.asking._keeping.jobs().values())  # nothing was read so far
            return []
        first, last = only.start // 10**6, only.end // 10**6
        found = []
        for start, end in self.ranges(first, last):
            rows, c2 = self.ask(start, end)
            truth = self.truth(start, end)
            assert rows <= truth, "something is there twice"
            if c2.area == 1.0:
                assert rows == truth, (start, end)
            found.append(c2.area)
        return found

    def ranges(self, first: int, last: int) -> set[tuple[int, int]]:
        """All that there is, and single panes that have records, which tell most."""
        full = sorted({t // PANE * PANE for _, t, _ in self.records if first <= t < last})
        some = {(pane, pane + PANE) for pane in (full[:1] + full[len(full) // 2 :][:1] + full[-2:])}
        return {(first, last), *some}


MOVES = st.one_of(
    st.tuples(
        st.just("write"),
        st.sampled_from("ab"),
        st.lists(st.tuples(st.integers(-25, 12), st.sampled_from("xy")), min_size=1, max_size=4),
    ),
    st.tuples(st.just("turn"), st.integers(0, 20)),
    st.tuples(st.just("restart")),
    st.tuples(st.just("whole")),
)
CLAUSES = (
    "", "REVISE FOR 20 SECONDS", "WITHIN 5 SECONDS", "WITHIN 5 SECONDS REVISE FOR 30 SECONDS",
    "FIDELITY 50 PERCENT", "FIDELITY 50 PERCENT OF TIME", "FIDELITY 50 PERCENT OF SPACE",
    "WITHIN 5 SECONDS STRAGGLERS LEAP",
)  # fmt: skip


def play(told: Told, moves: list[tuple[Any, ...]]) -> None:
    clocks = dict.fromkeys("ab", BEGIN)
    for move in moves:
        if move[0] == "write":
            for ahead, k in move[2]:
                told.write((move[1], clocks[move[1]] + ahead, k))
                clocks[move[1]] += max(0, ahead)
        elif move[0] == "turn":
            told.run.now += move[1]
            told.run.turn()
            told.check()
        elif move[0] == "restart":
            told.restart()
        else:
            told.run.whole()


@examples(12)
@given(
    st.sampled_from(CLAUSES), st.sampled_from([0, 5, 20]), st.booleans(),
    st.lists(MOVES, min_size=4, max_size=24),
)  # fmt: skip
def test_what_is_said_to_be_whole_is(
    clauses: str, slack: int, declared: bool, moves: list[tuple[Any, ...]]
) -> None:
    with TemporaryDirectory() as folder:
        told = Told(Path(folder), clauses, slack, declared)
        play(told, moves)
        end = BEGIN + 1_000
        told.write(*[(source, end + i, "x") for source in "ab" for i in range(4)])
        told.run.now += 2_000
        told.run.turn()
        told.run.whole()
        told.run.turn()
        told.check()
