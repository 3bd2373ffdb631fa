"""What keeps recovery below its bound, and that it does."""

from __future__ import annotations

from hypothesis import assume, given
from hypothesis import strategies as st

from muntin.collections.lineage import Dataset, Lineage, cut, edge
from muntin.schedule.pace import Measure
from muntin.schedule.recovery import Recovery

MB = 1 << 20


def known(bound: float, back: float = 0.0, again: float = 1e-7, slower: float = 1.0) -> Recovery:
    return Recovery(bound, Measure(0.5), back, again, slower=slower)


def test_without_a_bound_nothing_is_asked() -> None:
    recovery = Recovery()
    recovery.read(100 * MB, 1e6)
    assert recovery.most is None
    assert not recovery.is_due
    assert not recovery.is_loose(0, 1 << 40)


@given(
    st.floats(2, 100),
    st.floats(1e-9, 1e-6),
    st.floats(1, 3),
    st.lists(st.integers(1, 1000), min_size=1, max_size=30),
)
def test_a_finite_run_is_always_within_its_bound(
    bound: float, again: float, slower: float, logs: list[int]
) -> None:
    """Batches are as large as they may be, each takes as long as those before, and all is lost."""
    recovery = known(bound, again=again, slower=slower)
    for megabytes in logs:
        assert recovery.most is not None
        size = min(megabytes * MB, recovery.most)
        recovery.read(size, size * again)
        assert recovery.takes <= max(bound, slower * 0.5 + bound / 2)
        if recovery.is_due:
            recovery.committed(0)


@given(
    st.floats(1, 100),
    st.floats(1, 3),
    st.integers(0, 1 << 33),
    st.floats(0, 100),
    st.floats(0, 5),
)
def test_the_cut_commits_before_another_batch_is_too_much(
    bound: float, slower: float, saved: int, unsaved: float, empty: float
) -> None:
    """Of what is lost and made again, another batch takes half of what blocks leave of the bound,
    and of that there is a quarter at least."""
    recovery = known(bound, back=1e-8, slower=slower)
    recovery.empty = Measure(empty)
    recovery.committed(saved)
    recovery.read(1, unsaved)
    limit = bound / slower
    room = max(limit - empty - saved * recovery.back, limit / 4)
    assume(abs(unsaved - room / 2) > 1e-6)
    assert recovery.is_due == (unsaved > room / 2)


def test_what_is_measured_decides_how_much_is_read() -> None:
    recovery = known(10.5, again=1e-7)
    assert recovery.most == int(5 / 1e-7)
    recovery.read(10 * MB, 10 * MB * 3e-7)  # half as fast as thought, by both
    assert recovery.most == int(5 / 2e-7)
    recovery.read_back(100 * MB, 4.5)
    assert 2 < recovery.takes < 4.5
    recovery.slower = 2.0  # of two executors one is left
    assert 4 < recovery.takes < 9


def test_saved_blocks_are_written_anew_where_that_helps() -> None:
    recovery = known(10.0, back=0.1 / MB)
    recovery.committed(40 * MB)
    assert not recovery.is_loose(10 * MB, 30 * MB)  # 4.5 s are within the half of the bound
    recovery.committed(60 * MB)
    assert recovery.is_loose(10 * MB, 50 * MB)
    assert not recovery.is_loose(50 * MB, 10 * MB)  # nearly all of it is needed


def test_a_loss_tells_what_it_takes_beside_blocks() -> None:
    recovery = known(60.0, back=1 / MB)
    recovery.committed(5 * MB)
    for _ in range(50):
        recovery.lost(12.0)
    assert abs(recovery.takes - 12.0) < 0.1


def test_what_is_known_is_kept() -> None:
    recovery = known(10.0, 1e-8, 2e-8)
    recovery.committed(7 * MB)
    recovery.lost(3.5)
    again = Recovery.of(recovery.known)
    assert again == recovery
    assert again.figures() == {
        "bound": 10.0,
        "takes": recovery.takes,
        "saved_bytes": 7 * MB,
        "losses": 1,
        "last": 3.5,
    }
    assert Recovery.of(()) == Recovery()


def written(steps: int, bound: float, growth: int, relaxation: float | None) -> tuple[int, float]:
    """Bytes for a chain of states, each of the one before and a second of reading; and the longest
    recovery: by minimum cut, or of the newest as soon as one would take too long.
    """
    lineage, total, longest = Lineage(), 0, 0.0
    for n in range(steps):
        lineage = lineage.plus(Dataset(f"{n}", (f"{n - 1}",), growth * (n + 1), 1.0))
        lineage = lineage.released([f"{n - 1}"])  # it was merged, and let go
        due = edge(lineage, bound) if relaxation is None else cut(lineage, bound, relaxation)
        total += sum(lineage.datasets[name].cost for name in due)
        lineage = lineage.written(due)
        longest = max(longest, *lineage.recovery.values())
    return total, longest


@given(st.integers(10, 60), st.integers(2, 9), st.sampled_from([1.0, 3.0]))
def test_a_minimum_cut_of_what_the_collection_holds_is_the_newest(
    steps: int, bound: int, relaxation: float
) -> None:
    """A state comes of the one before alone, which is gone: there is one dataset to choose."""
    newest, longest = written(steps, bound, 1000, None)
    assert longest <= bound
    assert written(steps, bound, 1000, relaxation) == (newest, longest)
