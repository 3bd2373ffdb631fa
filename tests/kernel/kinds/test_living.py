"""Living states: what stays after a pane, and what is forgotten."""

from __future__ import annotations

import pyarrow as pa

from muntin.kernel.clocks import Clocks
from muntin.kernel.compute import Recipe, compute
from muntin.kernel.due import Due, Emitted
from muntin.kernel.kinds import kind_of
from muntin.kernel.python.partials import FORGOTTEN, STATE_SPEC
from muntin.model.records import POSITION, RECORDS
from tests.kernel.kinds.test_kind import PYTHON, job_of

JOB = job_of(PYTHON.format("Tops", ""))
KIND = kind_of(JOB.shape)
SECOND = 1_000_000


def block(*records: tuple[int, int]) -> pa.Table:
    """Numbers of one source in some seconds."""
    times = pa.array([second * SECOND for second, _ in records], pa.int64())
    numbers = pa.array([n for _, n in records], pa.int64())
    table = pa.table({"k": ["a"] * len(records), "n": numbers, "t": times, POSITION: times})
    table = table.append_column("source", pa.array(["web-1"] * len(records)))
    recipe = Recipe(JOB.shape, JOB.windows)
    (found,) = compute(table, "web-1", [recipe], Clocks())[0].values()
    return found


def test_a_state_goes_on_where_it_stopped() -> None:
    assert RECORDS in JOB.shape.axes
    first = KIND.finish({"j": JOB}, block((0, 3), (1, 2)), Due({"j": [[1, 2]]}), ())
    (state,) = first.stays
    assert state["spec"].to_pylist() == [STATE_SPEC]
    whole = KIND.merge([block((5, 2), (6, 9)), state])
    second = KIND.finish({"j": JOB}, whole, Due({"j": [[6, 7]]}), ())
    rows = KIND.order(JOB, [second.rows["j"]]).to_pylist()
    assert [(row["source"], row["n"]) for row in rows] == [("web-1", 9)]
    merged = KIND.merge([whole, *second.stays])
    assert merged["spec"].to_pylist().count(STATE_SPEC) == 1


def test_states_are_needed_on_whatever_has_left() -> None:
    first = KIND.finish({"j": JOB}, block((0, 3)), Due({"j": [[1]]}), ())
    whole = KIND.merge([block((0, 3), (5, 1)), *first.stays])
    left = KIND.without(whole, Emitted({JOB.windows[0]: 1}))
    assert sorted(left["spec"].to_pylist()) == [STATE_SPEC, 0]
    assert not KIND.is_over(1, Emitted({JOB.windows[0]: 1000}))


def test_forgotten_states_go_once_nothing_older_is_elsewhere() -> None:
    first = KIND.finish({"j": JOB}, block((0, 3)), Due({"j": [[1]]}), ())
    (state,) = first.stays
    gone = state.set_column(state.column_names.index("c0"), "c0", pa.array([FORGOTTEN]))
    assert KIND.without_forgotten(state).num_rows == 1
    assert KIND.without_forgotten(gone).num_rows == 0
