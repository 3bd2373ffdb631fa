"""Arrays choose and add up what a loop over records would."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin.kernel import arrays
from muntin.kernel.arrays import Cells, Coded, Groups, InPanes, NotSharedError, Values
from tests.effort import examples

texts = st.lists(st.none() | st.sampled_from("abcdef"), min_size=1, max_size=40)


@examples(60)
@given(texts, st.sets(st.sampled_from([None, *"abcdef"])), st.sampled_from([0, 2, 32]))
def test_a_condition_by_value_chooses_the_records_that_have_it(
    column: list[str | None], wanted: set[str | None], few: int
) -> None:
    """Told by records or by a mask, whichever is faster."""
    coded = Coded.of(pa.array(column, pa.string()))
    held = np.array([value in wanted for value in coded.values.to_pylist()])
    expected = [number for number, value in enumerate(column) if value in wanted]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrays, "_FEW_VALUES", few)
        chosen = coded.chosen(held)
    assert chosen.count == len(expected)
    assert chosen.rows.tolist() == np.flatnonzero(chosen.mask).tolist() == expected


records = st.lists(
    st.tuples(st.integers(0, 9), st.sampled_from("abc"), st.none() | st.integers(-5, 5)),
    min_size=1,
    max_size=30,
)


@examples(60)
@given(records, st.data(), st.sampled_from(["sum", "min", "max", "count"]))
def test_cells_of_selections_are_those_of_a_loop(
    given_: list[tuple[int, str, int | None]], data: st.DataObject, function: str
) -> None:
    """Of those selections that ask for the cell; the groups of each follow the last one's."""
    numbers = st.lists(st.integers(0, len(given_) - 1), unique=True).map(sorted)
    selections = data.draw(st.lists(numbers, min_size=1, max_size=3))
    which = data.draw(st.lists(st.sampled_from(range(len(selections))), min_size=1, unique=True))
    times = np.array([t for t, _, _ in given_], np.int64)
    keys = Coded.of(pa.array([k for _, k, _ in given_]))
    groups = Groups.of(InPanes.of(times, None, 3), [keys])
    cells = Cells(groups, [np.array(rows, np.int64) for rows in selections])
    values = Values(pa.array([n for _, _, n in given_], pa.int64()))
    told = cells.array(function, values, None, sorted(which)).to_pylist()
    columns = cells.columns().to_pylist()
    for number in which:
        start, stop = cells.bounds[number : number + 2]
        mine = zip(columns[start:stop], told[start:stop], strict=True)
        found = {(row["pane"], row["k0"]): cell for row, cell in mine}
        assert found == by_hand([given_[row] for row in selections[number]], function)


def by_hand(
    given_: list[tuple[int, str, int | None]], function: str
) -> dict[tuple[int, str], int | None]:
    merges: dict[str, Callable[[list[int]], int]] = {"sum": sum, "min": min, "max": max}
    merge = merges.get(function, len)
    groups: dict[tuple[int, str], list[int]] = {}
    for t, k, n in given_:
        groups.setdefault((t // 3, k), []).extend([] if n is None else [n])
    return {
        group: merge(some) if some or function == "count" else None
        for group, some in groups.items()
    }


def test_numbers_that_are_not_held_exactly_are_refused() -> None:
    for column in (pa.array([float("nan")]), pa.array([2**62, 2**62]), pa.array(["a"])):
        with pytest.raises(NotSharedError):
            _ = Values(column).numbers
