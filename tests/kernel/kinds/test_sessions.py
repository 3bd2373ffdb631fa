"""Sessions of one block: what ends is finished, what goes on stays and says when it may end."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from muntin.kernel.clocks import Clocks
from muntin.kernel.compute import Recipe, compute
from muntin.kernel.due import Due, Emitted
from muntin.kernel.kinds import kind_of
from muntin.kernel.kinds.kind import Given
from muntin.model.records import MARK, POSITION
from tests.effort import examples
from tests.kernel.kinds.test_kind import SQL, job_of
from tests.whole.test_sessions import GAP, visits_of
from tests.whole.test_sessions import Read as Marked

JOB = job_of(SQL.format(f"SESSION {GAP} us"))
KIND = kind_of(JOB.shape)


def block(*times: int) -> pa.Table:
    at = pa.array(times, pa.int64())
    records = pa.table({"k": ["a"] * len(times), "n": at, POSITION: at})
    (found,) = compute(records, "web-1", [Recipe(JOB.shape, ())], Clocks())[0].values()
    return found


def test_partial_sessions_that_are_close_become_one() -> None:
    merged = KIND.merge([block(0, 5), block(30), block(14)])
    assert sorted(zip(merged["pane"].to_pylist(), merged["last_at"].to_pylist(), strict=True)) == [
        (0, 14),
        (30, 30),
    ]
    assert KIND.interval(merged) == (0, 31)
    assert KIND.interval(merged.slice(0, 0)) == (0, 0)


def test_what_has_ended_is_finished_and_the_rest_says_when_it_may_end() -> None:
    done = KIND.finish({"j": JOB}, block(0, 5, 30, 60), Due(sessions={"j": (0, 41)}), ())
    rows = KIND.order(JOB, [done.rows["j"]])
    starts, ends = KIND.told(rows)
    assert list(zip(starts.tolist(), ends.tolist(), strict=True)) == [(0, 15), (30, 40)]
    assert done.missed == {"j": (0, 0)}
    assert done.ends == {"j": 71}
    assert set(rows.column_names[:5]) == set(KIND.columns)


def test_what_is_over_goes_only_with_all_of_its_session() -> None:
    left = KIND.without(block(0, 5, 30), Emitted({}, sessions=20))
    assert left["pane"].to_pylist() == [30]
    assert KIND.without(left, Emitted({})) is left
    assert not KIND.is_over(6, Emitted({}, sessions=1000))


def test_records_exactly_the_gap_apart_are_one_session() -> None:
    merged = KIND.merge([block(10), block(0), block(21)])
    assert sorted(zip(merged["pane"].to_pylist(), merged["last_at"].to_pylist(), strict=True)) == [
        (0, 10),
        (21, 21),
    ]
    assert KIND.without(merged, Emitted({}, sessions=20))["pane"].to_pylist().count(0) > 0
    assert set(KIND.without(merged, Emitted({}, sessions=21))["pane"].to_pylist()) == {21}


Read = tuple[int, int]  # where a record is, and its mark


def marked_block(records: Sequence[Read]) -> pa.Table:
    """The rows of records that were read at these marks."""
    at, marks = (pa.array(column, pa.int64()) for column in zip(*records, strict=True))
    table = pa.table({"k": ["a"] * len(records), "n": at, POSITION: at, MARK: marks})
    return KIND.compute(Given(table, "web-1", (), True)).block


def finished(blocks: Sequence[pa.Table]) -> tuple[list[str], object]:
    rows = pa.concat_tables(blocks)
    done = KIND.finish({"j": JOB}, rows, Due(sessions={"j": (-1000, 1000)}), ())
    told = KIND.order(JOB, [done.rows["j"]]).to_pylist()
    return sorted(map(repr, told)), done.missed


reads = st.lists(st.tuples(st.integers(0, 60), st.integers(-30, 60)), min_size=1, max_size=14)


@examples(150)
@given(records=reads)
def test_sessions_are_those_of_the_definition(records: list[Read]) -> None:
    block = marked_block(records)
    done = KIND.finish({"j": JOB}, block, Due(sessions={"j": (-1000, 1000)}), ())
    rows = KIND.order(JOB, [done.rows["j"]])
    starts, ends = KIND.told(rows)
    counts = rows["__records"].to_pylist()
    visits, late = visits_of("a", [Marked({"t": t, "k": "a"}, mark) for t, mark in records])
    times = [[read.t for read in visit.records] for visit in visits]
    assert sorted(zip(starts.tolist(), ends.tolist(), counts, strict=True)) == sorted(
        (each[0], each[-1] + GAP, len(each)) for each in times
    )
    assert done.missed["j"].records == len(late)


@examples(60)
@given(records=reads, seed=st.integers(0, 1000), size=st.integers(1, 5))
def test_blocks_may_be_merged_in_any_order(records: list[Read], seed: int, size: int) -> None:
    """Whatever is merged first: what is late, and what is not, comes out the same."""
    wanted = finished([marked_block(records)])
    draw = Random(seed)
    draw.shuffle(records)
    blocks = [marked_block(records[at : at + size]) for at in range(0, len(records), size)]
    while len(blocks) > 1:
        draw.shuffle(blocks)
        some = draw.randint(1, len(blocks))
        blocks = [KIND.merge(blocks[:some]), *blocks[some:]]
        assert finished(blocks) == wanted


def test_what_comes_after_a_session_has_left_is_a_session_of_its_own_or_late() -> None:
    """0 has left at 12, when the gap behind 1 is over, and that behind 2 is not."""
    for times, kept, missed in (((2,), 1, 0), ((1,), 0, 1), ((1, 9), 2, 0)):
        came = KIND.delivered(block(*times), 12)
        done = KIND.finish({"j": JOB}, came, Due(sessions={"j": (12, 100)}), ())
        assert done.missed["j"].records == missed
        assert sum(KIND.order(JOB, [done.rows["j"]])["__records"].to_pylist()) == kept
    assert KIND.delivered(block(0), None) == block(0)
