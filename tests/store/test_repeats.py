"""Windows that a table has as they are do not come again; others come as revisions."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin.store import delta
from muntin.store.parts import PartWriter
from muntin.store.repeats import Ends, Sifting, ends_of, without_repeats
from muntin.store.results import Results
from muntin.store.storage import LocalFolder
from tests.effort import examples
from tests.store.test_results import START, publish, rows

# Some are called as what windows are compared with.
NAMES = ("n", "same", "Same", "upto", "UPTO", "__row", "place", "stays", "rows", "hash", "mine")
Stored = dict[int, tuple[int, list[float]]]  # the revision of a window, and its rows


def table(windows: dict[int, list[float]], column: str = "n") -> pa.Table:
    """Windows by number, with their rows, which have one column."""
    made = pa.concat_tables(
        [rows(range(number, number + 1), len(v)) for number, v in windows.items()]
    )
    values = [value for each in windows.values() for value in each]
    return made.set_column(3, column, pa.array(values, pa.float64()))


def by_window(found: pa.Table, column: str) -> Stored:
    windows: Stored = {}
    for row in found.to_pylist():
        number = (row["window_end"] - START) // timedelta(minutes=1)
        windows.setdefault(number, (row["revision"], []))[1].append(row[column])
    return windows


values = st.lists(st.sampled_from([0.5, 1.0, 2.0]), min_size=1, max_size=3)
some = st.dictionaries(st.integers(0, 5), values, min_size=1)


def sifted(store: Results, state: Path, batch: int, rows: pa.Table, known: Ends, size: int) -> Any:
    """The files of rows that tasks have written, so many in each, as tasks sift them."""
    place = LocalFolder(state / "results" / "top")
    found = delta.snapshot(place)
    writer = PartWriter(place, found.schema, batch)
    pieces = ((n, rows.slice(n, size)) for n in range(0, rows.num_rows, size))
    parts = [part for piece in pieces if (part := writer.write([piece])) is not None]
    sift, together = Sifting(found, known, writer), tuple(part.name for part in parts)
    left = [part for each in parts if (part := sift((each, together))) is not None]
    return store.write(batch, {}, None, {"top": left})


@examples(40)
@given(
    first=some,
    again=some,
    later=some,
    size=st.one_of(st.none(), st.integers(1, 4)),
    column=st.sampled_from(NAMES),
)
def test_readers_find_every_window_once_as_it_came_last(
    tmp_path_factory: pytest.TempPathFactory,
    first: Any,
    again: Any,
    later: Any,
    size: int | None,
    column: str,
) -> None:
    """Whether rows are at hand, or in files of some size, and whatever a column is called."""
    state = tmp_path_factory.mktemp("state")
    store = Results(state)
    publish(store, "a", 0, table(first, column))
    known = {"top": store.ends("top")}
    # Beyond what an earlier state has stored, nothing leaves twice.
    later = {n: v for n, v in later.items() if n <= max(first) or n not in again}
    expected = {number: (0, rows) for number, rows in first.items()}
    for batch, windows in enumerate((again, later)):
        if windows:
            if size is None:
                files = store.write(batch, {"top": [table(windows, column)]}, known)
            else:
                files = sifted(store, state, batch, table(windows, column), known["top"], size)
            store.publish("b", batch, files)
        for number, new in windows.items():
            revision, old = expected.get(number, (-1, []))
            if sorted(old) != sorted(new):
                expected[number] = revision + 1, new
    found = by_window(store.read("top"), column)
    assert {n: (r, sorted(v)) for n, (r, v) in found.items()} == {
        n: (r, sorted(v)) for n, (r, v) in expected.items()
    }


@pytest.mark.parametrize("column", NAMES)
def test_windows_are_compared_whatever_a_column_is_called(tmp_path: Path, column: str) -> None:
    store = Results(tmp_path)
    publish(store, "a", 0, table({1: [1.0, 2.0], 2: [3.0]}, column))
    known = {"top": store.ends("top")}
    again = table({1: [2.0, 1.0], 2: [4.0, 5.0], 3: [6.0]}, column)
    store.publish("b", 0, store.write(0, {"top": [again]}, known))
    found = by_window(store.read("top"), column)
    assert found == {1: (0, [1.0, 2.0]), 2: (1, [4.0, 5.0]), 3: (0, [6.0])}


def test_sums_that_differ_in_their_last_digit_are_the_same(tmp_path: Path) -> None:
    store = Results(tmp_path)
    publish(store, "a", 0, table({1: [0.1 + 0.2], 2: [0.3]}))
    known = store.ends("top")
    path = tmp_path / "results" / "top"

    def sift(fresh: pa.Table) -> pa.Table:
        return delta.read(LocalFolder(path), lambda found: without_repeats(found, fresh, known))

    assert sift(table({1: [0.3], 2: [0.3000001]}))["n"].to_pylist() == [0.3000001]
    assert sift(table({3: [0.3]})).num_rows == 1  # behind all that is known
    assert delta.read(LocalFolder(path), ends_of) == known == {"1 minute": max(known.values())}
