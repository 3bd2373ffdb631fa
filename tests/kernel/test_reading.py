"""Readings of consecutive pieces add up the same in any grouping."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin.kernel.reading import Cost, Reading
from muntin.model.counts import Fault, Tally

NAMES = st.sampled_from(["a", "b"])
COUNTS = st.integers(0, 9)
TALLIES = st.builds(
    lambda axis, pane, mark, records, bad, reached: Tally(
        "web-1", axis, 10, pane, mark, records, bad, reached
    ),
    NAMES,
    st.integers(-2, 2),
    st.none() | st.integers(0, 2),
    COUNTS,
    COUNTS,
    COUNTS,
)
READINGS = st.builds(
    Reading,
    source=st.just("web-1"),
    sequence=COUNTS,
    tallies=st.lists(TALLIES, max_size=4).map(tuple),
    records=COUNTS,
    bad=st.integers(0, 2),
    first=st.dictionaries(NAMES, COUNTS),
    reached=st.dictionaries(NAMES, COUNTS),
    costs=st.dictionaries(NAMES, st.builds(Cost, COUNTS, COUNTS, st.integers(0, 9).map(float))),
    faults=st.lists(st.builds(Fault, NAMES, NAMES, NAMES, NAMES), max_size=2).map(tuple),
    notes=st.lists(NAMES, max_size=2).map(tuple),
    columns=st.frozensets(NAMES),
    changed=st.dictionaries(NAMES, st.frozensets(COUNTS)),
    backwards=COUNTS,
    ahead=COUNTS,
)


@given(READINGS, READINGS, READINGS)
def test_readings_add_up_in_any_grouping(a: Reading, b: Reading, c: Reading) -> None:
    whole = Reading.merge((a, b, c))
    assert (a + b) + c == whole
    assert a + (b + c) == whole


@given(st.lists(READINGS, min_size=1, max_size=5))
def test_nothing_is_lost(pieces: list[Reading]) -> None:
    whole = Reading.merge(pieces)
    assert whole.records == sum(piece.records for piece in pieces)
    assert sum(tally.bad for tally in whole.tallies) == sum(
        tally.bad for piece in pieces for tally in piece.tallies
    )
    assert len({tally[:5] for tally in whole.tallies}) == len(whole.tallies)


def test_sources_are_not_mixed() -> None:
    with pytest.raises(ValueError, match=r"several sources: \['web-1', 'web-2'\]"):
        Reading("web-1") + Reading("web-2")
