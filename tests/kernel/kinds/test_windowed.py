"""What is dropped from blocks is what no window still to come holds."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import assume, given
from hypothesis import strategies as st

from muntin.kernel.due import Emitted
from muntin.kernel.kinds import kind_of
from muntin.kernel.statements import spec_id
from muntin.language.program import sql
from muntin.windows.spec import WindowSpec, on_one_grid
from tests.kernel.test_consolidate import STREAM

(JOB,) = sql(STREAM + "CREATE JOB j AS SELECT count(*) FROM logs WINDOW 1 SECOND;").jobs.values()
KIND = kind_of(JOB.shape)

kinds = st.sets(
    st.builds(WindowSpec, st.integers(1, 12), st.integers(1, 12), st.integers(0, 15)),
    min_size=1,
    max_size=3,
)


@given(kinds, st.data())
def test_a_block_that_is_over_has_nothing_left(found: set[WindowSpec], data: st.DataObject) -> None:
    specs = on_one_grid(found)
    ends = {spec: spec.first_end(data.draw(st.integers(-40, 40))) for spec in specs}
    emitted = Emitted(ends)
    panes = [(pane, 0) for pane in data.draw(st.lists(st.integers(-60, 20), max_size=3))]
    windows = [
        (spec.first_end(data.draw(st.integers(-60, 20))), spec_id(spec))
        for spec in data.draw(st.lists(st.sampled_from(specs), max_size=3))
    ]
    rows = [*panes, *windows]
    assume(rows)
    block = pa.table({"pane": [pane for pane, _ in rows], "spec": [kind for _, kind in rows]})
    left = KIND.without(block, emitted).num_rows
    lower, upper = KIND.interval(block)
    assert lower < upper
    if KIND.is_over(upper, emitted):
        assert left == 0
    if not windows and min(pane for pane, _ in rows) >= emitted.oldest_pane:
        assert left == len(rows)
        assert not KIND.is_over(upper, emitted)
