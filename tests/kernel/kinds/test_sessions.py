"""Sessions of one block: what ends is finished, what goes on stays and says when it may end."""

from __future__ import annotations

import pyarrow as pa

from muntin.kernel.clocks import Clocks
from muntin.kernel.compute import Recipe, compute
from muntin.kernel.due import Due, Emitted
from muntin.kernel.kinds import kind_of
from muntin.model import POSITION
from tests.kernel.kinds.test_kind import SQL, job_of

JOB = job_of(SQL.format("SESSION 10 us"))
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
    done = KIND.finish({"j": JOB}, block(0, 5, 30, 60), Due(sessions={"j": (0, 40)}), ())
    rows = KIND.order(JOB, [done.rows["j"]])
    starts, ends = KIND.told(rows)
    assert list(zip(starts.tolist(), ends.tolist(), strict=True)) == [(0, 15), (30, 40)]
    assert done.ends == {"j": 70}
    assert set(rows.column_names[:5]) == set(KIND.columns)


def test_what_is_over_goes_only_with_all_of_its_session() -> None:
    left = KIND.without(block(0, 5, 30), Emitted({}, sessions=20))
    assert left["pane"].to_pylist() == [30]
    assert KIND.without(left, Emitted({})) is left
    assert not KIND.is_over(6, Emitted({}, sessions=1000))
