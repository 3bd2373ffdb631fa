"""Open panes: what is over is taken, and the rest stays, wherever it is kept."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from muntin.agent.buffers import Buffers
from muntin.agent.panes import OpenPanes
from tests.agent.test_tree import SHAPE, Rows, block, counted
from tests.effort import examples

keys = st.sampled_from("abc")
rows = st.lists(st.tuples(st.integers(0, 9), keys, st.just(1)), unique=True, max_size=9)


@examples(60)
@given(
    st.lists(st.tuples(rows, st.one_of(st.none(), st.integers(0, 11))), max_size=9),
    st.sampled_from([0, 1 << 20]),
)
def test_every_row_is_taken_once(steps: list[tuple[Rows, int | None]], limit: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        buffers = Buffers(limit, Path(folder) / "open")
        panes = OpenPanes(SHAPE, buffers)
        there = counted([])
        for added, before in steps:
            panes.add(block(added))
            there.update({(pane, key): count for pane, key, count in added})
            over = {place: n for place, n in there.items() if before is None or place[0] < before}
            taken = panes.take(before)
            assert (None if taken is None else counted([taken])) == (over or None)
            there = Counter({p: n for p, n in there.items() if p not in over})
            assert bool(panes) == bool(there)
            if panes:
                assert counted([panes.rows()]) == there
        panes.drop()
        assert not panes
        assert buffers.held == 0
        assert not list(Path(folder).glob("open/*"))


def test_nothing_is_looked_at_where_no_pane_is_over(tmp_path: Path) -> None:
    buffers = Buffers(1 << 20, tmp_path / "open")
    panes = OpenPanes(SHAPE, buffers)
    first, second = block([(5, "a", 1)]), block([(5, "a", 2), (7, "a", 1)])
    panes.add(first)
    panes.add(second)
    assert panes.take(5) is None
    assert buffers.held == first.nbytes + second.nbytes  # not even merged
    taken = panes.take(6)
    assert isinstance(taken, pa.Table)
    assert taken["c0"].to_pylist() == [3]
    assert panes.take(7) is None  # the first that is left is known
