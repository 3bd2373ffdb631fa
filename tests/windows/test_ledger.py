"""The ledger against adding up every tally that falls into a window."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin.model.counts import Counts, Tally
from muntin.windows.ledger import Grid, Ledger, on_grids
from muntin.windows.spec import WindowSpec

SPECS = [WindowSpec(60, 60), WindowSpec(60, 20), WindowSpec(90, 60), WindowSpec(7, 3)]
SIZES = sorted({spec.pane for spec in SPECS})

NAMES = ["web-1", "web-2", "web-3"]

numbers = st.one_of(st.integers(0, 5), st.sampled_from([255, 70_000, 1 << 40]))
tallies = st.builds(
    Tally,
    source=st.sampled_from(NAMES),
    axis=st.just("t"),
    size=st.sampled_from(SIZES),
    pane=st.integers(-20, 20),
    not_before=st.one_of(st.none(), st.integers(-25, 30)),
    records=numbers,
    bad=numbers,
    reached=st.integers(-2000, 2000),
)


@pytest.fixture(scope="module", autouse=True)
def packed_early() -> Iterator[None]:
    """Panes are packed however little there is of them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("muntin.windows.ledger._WORTH_PACKING", 1)
        yield


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
        late: dict[str, dict[int, int]] = {}
        for t in (t for t in left if t.size == size and t.records and t.not_before is not None):
            panes = late.setdefault(t.source, {})
            panes[t.pane] = max(t.not_before or 0, panes.get(t.pane, -99))
        assert ledger.late(("t", size)) == late


@given(st.lists(st.tuples(st.lists(tallies, max_size=6), st.integers(-25, 25)), max_size=6))
def test_packed_panes_count_as_loose_ones_do(batches: list[tuple[list[Tally], int]]) -> None:
    ledger, copy, spec = Ledger(), Ledger(), SPECS[2]
    held: list[Tally] = []
    inside = np.arange(2 * spec.length).reshape(2, -1) % 3 > 0
    for batch, before in batches:
        ledger.add(batch)
        ledger.forget(("t", spec.pane), before)
        held = [t for t in [*held, *batch] if t.size != spec.pane or t.pane >= before]
        copy.apply(ledger.changes())
        assert set(ledger) == set(copy) == set(Ledger(held))
        assert len(ledger) == len(copy) == len(list(ledger))
        for end in range(-25, 45):
            assert ledger.counts("t", spec, end) == counted(held, spec, end)
            first = end - spec.length
            some = [
                t
                for t in held
                if t.source in NAMES[1:] and first <= t.pane < end
                if inside[NAMES.index(t.source) - 1, t.pane - first]
            ]
            assert ledger.counts_of("t", spec, end, NAMES[1:], inside) == counted(some, spec, end)
            later = sum(t.records for t in held if t.size == spec.pane and t.pane >= end)
            assert ledger.read_since(("t", spec.pane), end) == later


@given(st.lists(tallies, max_size=20), st.sampled_from([(1, 20), (20, 1), (30, 1), (1, 1)]))
def test_tallies_move_to_panes_of_another_size(found: list[Tally], sizes: tuple[int, int]) -> None:
    before, after = sizes
    found = [t._replace(size=before) for t in found]
    ledger = Ledger(found)
    ledger.changes()
    ledger.regrid(("t", before), ("t", after))
    ledger.keep([("t", after)])

    def there(number: int) -> int:
        return number * before // after

    marks = [None if t.not_before is None else there(t.not_before) for t in found]
    wanted = Ledger(
        t._replace(size=after, pane=there(t.pane), not_before=mark)
        for t, mark in zip(found, marks, strict=True)
    )
    assert set(ledger) == set(wanted)
    copy = Ledger(found)
    copy.apply(ledger.changes())
    assert set(copy) == set(wanted)


def test_where_there_are_tallies_of_the_other_size_these_stay() -> None:
    coarse = [Tally("web-1", "t", 60, pane, None, 6, 0, 0) for pane in range(4)]
    fine = [Tally("web-1", "t", 20, pane, None, 2, 0, 0) for pane in range(6, 12)]
    ledger = Ledger([*coarse, *fine])
    ledger.regrid(("t", 60), ("t", 20))
    ledger.keep([("t", 20)])
    assert ledger.panes(("t", 60)) == []
    assert ledger.panes(("t", 20)) == [0, 3, *range(6, 12)]
    assert ledger.read_since(("t", 20), None) == 24


def test_what_both_grids_have_of_a_pane_counts_once() -> None:
    #            0         10
    # size 10    · · · ·
    # size 5          · ·      read from 5 on
    ledger = Ledger([Tally("a", "t", 10, 0, None, 4, 0, 9), Tally("a", "t", 5, 1, None, 2, 0, 9)])
    ledger.regrid(("t", 10), ("t", 5))
    assert ledger.counts("t", WindowSpec(10, 10, pane=5), 2).read == 4
    assert ledger.counts("t", WindowSpec(5, 5), 2).read == 2


def test_an_hour_of_many_sources_takes_little_memory() -> None:
    """What comes to rest is packed, and what is forgotten is let go."""
    ledger, names = Ledger(), [f"web-{number}" for number in range(100)]
    for second in range(600):
        ledger.add(Tally(name, "t", 1, second, None, 7, 0, 10**15 + second) for name in names)
        ledger.forget(("t", 1), second - 300)
    assert len(ledger) == 301 * len(names)
    panes = ledger._grids["t", 1].held.values()
    packed = [pane.packed for pane in panes if pane.packed is not None]
    assert len(packed) == 300
    assert len({id(pane.sources) for pane in packed}) == 1
    size = sum(sys.getsizeof(c) for p in packed for c in (p.records, p.bad, p.reached))
    assert size < 15 * len(ledger)


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


sizes = st.dictionaries(st.sampled_from("abc"), st.sampled_from([2, 4, 6, 12]), min_size=1)


@given(sizes, sizes, st.lists(st.integers(-100, 100)))
def test_tallies_of_other_grids_count_once_in_windows_that_lie_on_both(
    before: dict[str, int], now: dict[str, int], positions: list[int]
) -> None:
    """Each shape has the records on its own panes, whatever others had or have."""

    def grids(of: dict[str, int]) -> dict[str, Grid]:
        return {id_: ("t", size) for id_, size in of.items()}

    told = [
        Tally("web", "t", size, at // size, None, 1, 0, at)
        for size in {*before.values()}
        for at in positions
    ]
    moved = list(on_grids(told, grids(before), grids(now)))
    assert {tally.size for tally in moved} <= {*now.values()}
    for id_ in before.keys() & now.keys():
        windows: Counter[int] = Counter()
        for tally in moved:
            if tally.size == now[id_]:
                windows[tally.pane * tally.size // 12] += tally.records
        assert windows == Counter(at // 12 for at in positions)
