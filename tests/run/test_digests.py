"""A digest of a window is the same in any pieces, and another for other rows or another order."""

from __future__ import annotations

from itertools import pairwise

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from muntin.kernel.statements import WINDOW, WINDOW_END
from muntin.run.digests import digest, digests_of, sums_of
from tests.effort import examples


@examples(30)
@given(
    rows=st.lists(st.tuples(st.integers(0, 2), st.sampled_from([None, "", "NULL", "a, b"]))),
    cuts=st.sets(st.integers(0, 20)),
)
def test_a_digest_is_the_same_in_any_pieces(
    rows: list[tuple[int, str | None]], cuts: set[int]
) -> None:
    rows = sorted(rows, key=lambda row: row[0])
    ends, texts = [end for end, _ in rows], [text for _, text in rows]
    whole = pa.table({
        WINDOW: pa.array([0] * len(rows), pa.int32()),
        WINDOW_END: pa.array(ends, pa.int64()),
        "text": pa.array(texts, pa.string()),
    })  # fmt: skip
    before: dict[tuple[int, int], int] = {}
    sums: dict[tuple[int, int], int] = {}
    places = [0, *sorted(cut for cut in cuts if cut < len(rows)), len(rows)]
    for start, stop in pairwise(places):
        piece = whole.slice(start, stop - start)
        for kind, sum_ in sums_of(piece, before).items():
            sums[kind] = sums.get(kind, 0) + sum_
            before[kind] = before.get(kind, 0) + ends[start:stop].count(kind[1])
    assert {kind: digest(sum_) for kind, sum_ in sums.items()} == digests_of(whole)
    by_window = {end: [text for e, text in rows if e == end] for end in ends}
    told = {kind[1]: each for kind, each in digests_of(whole).items()}
    for one in by_window:
        for other in by_window:
            assert (told[one] == told[other]) == (by_window[one] == by_window[other])
