"""Changes are what a safe point lacks that was written before them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from muntin.agent.buffers import Buffers
from muntin.agent.changes import Changes


def rows(*panes: int) -> pa.Table:
    return pa.table({"pane": pa.array(panes, pa.int64())})


@pytest.fixture
def changes(tmp_path: Path) -> Changes:
    made = Changes(Buffers(1 << 20, tmp_path))
    made.written()
    return made


def added(changes: Changes) -> dict[str, list[int]]:
    return {
        id_: [pane for table in tables for pane in table["pane"].to_pylist()]
        for id_, tables in changes.added().items()
    }


def test_the_first_point_is_whole(tmp_path: Path) -> None:
    changes = Changes(Buffers(1 << 20, tmp_path))
    changes.add("a", rows(1), 10)
    assert changes.whole
    assert not changes.added()
    changes.written()
    assert not changes.whole


def test_rows_that_have_left_are_not_among_those_added(changes: Changes) -> None:
    changes.add("a", rows(1, 2), 10)
    changes.add("b", rows(1, 2), 10)
    changes.add("c", rows(1, 2), 10)
    changes.leave("a", 2)
    changes.leave("a", 1)  # which had left already
    changes.leave("b", None)
    changes.leave("b", 1)
    changes.add("c", rows(3), 10)
    assert added(changes) == {"a": [2], "c": [1, 2, 3]}
    assert changes.left == {"a": 2, "b": None}
    changes.written()
    assert (added(changes), changes.left, changes.whole) == ({}, {}, False)


def test_rows_that_are_more_than_all_that_is_open_are_let_go(tmp_path: Path) -> None:
    buffers = Buffers(1 << 30, tmp_path)
    changes = Changes(buffers)
    changes.written()
    many = rows(*range(1000))
    while not changes.whole:
        changes.add("a", many, many.nbytes)
        assert buffers.held < 2 << 20
    assert buffers.held == 0
    changes.add("a", many, many.nbytes)
    assert buffers.held == 0
