"""Counts of windows against adding up every tally that falls into them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from muntin.model import Counts, Tally
from muntin.windows.ledger import Ledger
from muntin.windows.spec import WindowSpec

SPECS = [WindowSpec(60, 60), WindowSpec(60, 20), WindowSpec(90, 60), WindowSpec(7, 3)]
SIZES = sorted({spec.pane for spec in SPECS})

numbers = st.integers(0, 5)
tallies = st.builds(
    Tally,
    source=st.sampled_from(["web-1", "web-2"]),
    axis=st.just("t"),
    size=st.sampled_from(SIZES),
    pane=st.integers(-20, 20),
    not_before=st.one_of(st.none(), st.integers(-25, 30)),
    records=numbers,
    bad=numbers,
    reached=st.integers(-2000, 2000),
)


def counted(tallies: list[Tally], spec: WindowSpec, end: int) -> Counts:
    inside = [t for t in tallies if t.size == spec.pane and end - spec.length <= t.pane < end]
    late = [t for t in inside if t.not_before is not None and end <= t.not_before]
    return Counts(
        sum(t.records for t in inside), sum(t.bad for t in inside), sum(t.records for t in late)
    )


@given(st.lists(st.lists(tallies, max_size=10), max_size=4))
def test_counts_after_every_batch(batches: list[list[Tally]]) -> None:
    ledger = Ledger()
    seen: list[Tally] = []
    for batch in batches:
        ledger.add(batch)
        seen += batch
        for spec in SPECS:
            ends = range(-25, 45)
            assert [ledger.counts("t", spec, end) for end in ends] == [
                counted(seen, spec, end) for end in ends
            ]


@given(st.lists(tallies, max_size=20), st.integers(-25, 25))
def test_forgotten_panes_are_gone_and_others_stay(found: list[Tally], before: int) -> None:
    ledger = Ledger(found)
    forgotten, *others = SIZES
    ledger.counts("t", SPECS[0], 0)
    ledger.forget(("t", forgotten), before)
    left = [t for t in found if t.size in others or t.pane >= before]
    for spec in SPECS:
        assert ledger.counts("t", spec, 0) == counted(left, spec, 0)
    for size in SIZES:
        with_records = {t.pane for t in left if t.size == size and t.records}
        assert ledger.panes(("t", size)) == sorted(with_records)


@given(st.lists(tallies, max_size=20))
def test_what_is_saved_is_what_was_added_with_equal_ones_summed(found: list[Tally]) -> None:
    saved = list(Ledger(found))
    keys = [(t.source, t.size, t.pane, t.not_before) for t in saved]
    assert len(keys) == len(set(keys))
    assert set(Ledger(saved)) == set(saved)
    for tally, key in zip(saved, keys, strict=True):
        same = [t for t in found if (t.source, t.size, t.pane, t.not_before) == key]
        assert tally.records == sum(t.records for t in same)
        assert tally.bad == sum(t.bad for t in same)
        assert tally.reached == max(t.reached for t in same)


def test_long_windows_are_counted_fast() -> None:
    """An hour every second: walking every pane of every window would take minutes."""
    spec = WindowSpec(3600, 1)
    ledger = Ledger(Tally("web-1", "t", 1, pane, None, 1, 0, pane) for pane in range(40_000))
    assert sum(ledger.counts("t", spec, end).read for end in range(1, 43_600)) == 40_000 * 3600
