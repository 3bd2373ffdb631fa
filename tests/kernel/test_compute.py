"""Which windows leave a record out, and what is counted, does not depend on chunks.

The oracle walks the log record by record, by the letter of DESIGN.md: a record counts in a
window unless the window's end plus slack is at or before the stream time when it was read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from muntin.kernel.clocks import Clocks
from muntin.kernel.compute import compute
from muntin.kernel.due import Due
from muntin.kernel.finish import finish, order
from muntin.kernel.merge import merge
from muntin.kernel.reading import Reading
from muntin.kernel.statements import WINDOW_END
from muntin.language.program import sql
from muntin.model.counts import Counts
from muntin.model.jobs import Job
from muntin.model.records import POSITION
from muntin.run.catalog import recipes_of
from muntin.windows.ledger import Ledger
from tests.effort import examples
from tests.oracle import stream_time

SECOND = 1_000_000
WINDOWS = {"tumbling": (10, 10), "sliding": (30, 10), "odd": (7, 3)}
JOBS = sql(
    "CREATE STREAM logs (t BIGINT, n BIGINT) FROM 'logs/*.json' FORMAT json TIMESTAMP t;"
    + "".join(
        f"CREATE JOB {name} AS SELECT count(*) AS records, sum(n) AS total FROM logs "
        f"WINDOW {range_s} SECONDS EVERY {slide_s} SECONDS;"
        for name, (range_s, slide_s) in WINDOWS.items()
    )
).jobs


RECIPES = recipes_of(JOBS.values())


@dataclass(frozen=True)
class Row:
    """A line of the log: its position, or how it is bad."""

    position: int | None
    broken: bool = False


@dataclass
class Window:
    """What one window holds and what it counts."""

    numbers: list[int] = field(default_factory=list)
    read: int = 0
    bad: int = 0
    late: int = 0


@dataclass
class Oracle:
    """All windows of one job after reading a log in order."""

    range_us: int
    slide_us: int
    windows: dict[int, Window] = field(default_factory=dict)

    def read(self, rows: Sequence[Row], slack_us: int | None) -> None:
        reached: int | None = None
        known: list[int] = []
        waiting = 0  # bad rows before the first time count at it
        for number, row in enumerate(rows):
            if row.position is None or row.broken:
                waiting += reached is None
                for window in self._holding(reached):
                    window.bad += 1
                continue
            if reached is None:
                for window in self._holding(row.position):
                    window.bad += waiting
            known.append(row.position)
            reached = stream_time(known, slack_us, 60 * SECOND)
            for end in self._ends(row.position):
                window = self.windows.setdefault(end, Window())
                late = slack_us is not None and end + slack_us <= reached
                window.read += 1
                window.late += late
                if not late:
                    window.numbers.append(number)

    def _holding(self, position: int | None) -> list[Window]:
        ends = [] if position is None else self._ends(position)
        return [self.windows.setdefault(end, Window()) for end in ends]

    def _ends(self, position: int) -> list[int]:
        last = position // self.slide_us
        starts = [k * self.slide_us for k in range(last - self.range_us // self.slide_us, last + 1)]
        return [s + self.range_us for s in starts if s <= position < s + self.range_us]


@dataclass
class Found:
    """The same windows from blocks and tallies."""

    blocks: list[dict[str, pa.Table]] = field(default_factory=list)
    reading: Reading = field(default_factory=lambda: Reading("web-1"))

    def read(self, rows: Sequence[Row], cuts: Sequence[int], slack_us: int | None) -> None:
        clocks = Clocks(slack_us)
        points = [0, *sorted(cut % (len(rows) + 1) for cut in cuts), len(rows)]
        for start, end in pairwise(points):
            part = list(enumerate(rows))[start:end]
            whole = [(number, row) for number, row in part if not row.broken]
            broken = [i for i, (_, row) in enumerate(part) if row.broken]
            table = pa.table(
                {
                    "n": pa.array([number for number, _ in whole], pa.int64()),
                    POSITION: pa.array([row.position for _, row in whole], pa.int64()),
                }
            )
            blocks, reading = compute(table, "web-1", RECIPES, clocks, broken)
            self.blocks.append(blocks)
            self.reading += reading

    def rows(self, job: Job, ends: Sequence[int]) -> dict[int, tuple[int, int]]:
        id_ = job.shape.id
        blocks = [found[id_] for found in self.blocks if id_ in found]
        if not blocks:
            return {}
        due = Due({job.name: [ends]})
        rows = finish(job.shape, JOBS, merge(job.shape, blocks), due).rows[job.name]
        table = order(job, [rows])
        return {row[WINDOW_END]: (row["records"], row["total"]) for row in table.to_pylist()}


positions = st.one_of(
    st.integers(-40 * SECOND, 40 * SECOND),
    st.integers(-40, 40).map(lambda second: second * SECOND),
    st.integers(-40, 40).map(lambda second: second * SECOND - 1),
)
logs = st.lists(
    st.one_of(
        positions.map(Row),
        positions.map(Row),
        positions.map(Row),
        st.just(Row(None)),
        st.just(Row(None, broken=True)),
    ),
    max_size=25,
)
slacks = st.one_of(st.none(), st.integers(0, 20 * SECOND), st.sampled_from([0, SECOND]))
BAD, BROKEN = Row(None), Row(None, broken=True)


@examples(40)
@given(logs, st.lists(st.integers(0, 25), max_size=4), slacks)
@example([BROKEN, BAD, Row(5 * SECOND), BROKEN, Row(12 * SECOND), BAD, BROKEN], [1, 2, 3, 5], 0)
@example([Row(12 * SECOND), Row(-1), BROKEN, Row(-30 * SECOND)], [2, 3], 0)
def test_windows_and_counts(rows: list[Row], cuts: list[int], slack_us: int | None) -> None:
    found = Found()
    found.read(rows, cuts, slack_us)
    known = [row.position for row in rows if row.position is not None]
    reading = found.reading
    assert (reading.records, reading.bad) == (len(known), len(rows) - len(known))
    ledger = Ledger(reading.tallies)
    for job in JOBS.values():
        (window,) = job.windows
        oracle = Oracle(window.range, window.slide)
        oracle.read(rows, slack_us)
        expected = {end // window.pane: w for end, w in oracle.windows.items()}
        ends = sorted(expected)
        assert found.rows(job, ends) == {
            end: (len(w.numbers), sum(w.numbers)) for end, w in expected.items() if w.numbers
        }
        assert {end: ledger.counts(POSITION, window, end) for end in ends} == {
            end: Counts(w.read, w.bad, w.late) for end, w in expected.items()
        }


def test_tallies_carry_the_stream_time_that_made_records_late() -> None:
    """12 s, then 3 s and 4 s: both late for their window, which 2 s of slack would not save."""
    found = Found()
    found.read([Row(12 * SECOND), Row(3 * SECOND), Row(4 * SECOND)], [2], SECOND)
    late = [t for t in Ledger(found.reading.tallies) if t.not_before]
    assert [(t.pane, t.not_before, t.records, t.reached) for t in late] == [
        (3, 11, 1, 12 * SECOND),
        (4, 11, 1, 12 * SECOND),
    ]
