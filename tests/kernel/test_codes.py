"""Codes of groups, against what sorting says."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from muntin.kernel.codes import compact, first_rows


@given(st.lists(st.integers(0, 50), max_size=40), st.sampled_from([51, 1_000_000]))
def test_codes_are_those_of_sorted_values(values: list[int], count: int) -> None:
    given_ = np.array(values, np.int64)
    codes, different = compact(given_, count)
    expected, first, inverse = np.unique(given_, return_index=True, return_inverse=True)
    assert different == len(expected)
    assert codes.tolist() == inverse.tolist()
    assert first_rows(codes, different).tolist() == first.tolist()
