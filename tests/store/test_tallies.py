"""The files of a ledger hold what it holds, and no more than they need."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin.model.counts import Tally
from muntin.store.tallies import TallyFiles
from muntin.windows.ledger import Ledger

GRID = ("t", 1)


def tally(source: str, pane: int, mark: int | None = None) -> Tally:
    return Tally(source, *GRID, pane, mark, 1, 2, pane)


batches = st.lists(
    st.tuples(
        st.lists(
            st.builds(
                tally,
                st.sampled_from(["a", "b"]),
                st.integers(0, 9),
                st.one_of(st.none(), st.integers(0, 9)),
            ),
            max_size=5,
        ),
        st.integers(0, 9),
        st.booleans(),
    ),
    max_size=12,
)


@given(batches)
def test_what_is_read_is_what_was_held(
    tmp_path_factory: pytest.TempPathFactory, batches: list[tuple[list[Tally], int, bool]]
) -> None:
    folder = tmp_path_factory.mktemp("tallies")
    ledger, files = Ledger(), TallyFiles(folder)
    for batch, (tallies, before, anew) in enumerate(batches):
        ledger.add(tallies)
        ledger.forget(GRID, before)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("muntin.store.tallies._WORTH_MERGING", 3)
            files.write(batch, ledger, anew)
        again = TallyFiles(folder, files.files, files.forgotten)
        held = {t for t in ledger if t.pane >= files.forgotten.get(GRID, 0)}
        assert set(again.read()) == held
        if batch % 3 == 2:  # a restart
            files, ledger = again, again.read()


def test_an_hour_is_written_once(tmp_path: Path) -> None:
    """Files go with their panes; what stays is not written again."""
    ledger, files = Ledger(), TallyFiles(tmp_path)
    for second in range(2000):
        ledger.add(tally(f"web-{number}", second) for number in range(5))
        ledger.forget(GRID, second - 500)
        before = set(files.files)
        files.write(second, ledger, anew=second % 64 == 0)
        assert len(set(files.files) - before) <= 1
    assert len(ledger) == 501 * 5
    assert sum(stored.tallies for stored in files.files.values()) <= (501 + 2 * 64) * 5
    assert set(TallyFiles(tmp_path, files.files, files.forgotten).read()) == set(ledger)


def test_many_batches_of_one_pane_become_one(tmp_path: Path) -> None:
    ledger, files = Ledger(), TallyFiles(tmp_path)
    for batch in range(64):
        ledger.add([tally("a", 0), tally("b", 0)])
        files.write(batch, ledger, anew=False)
    files.write(64, ledger, anew=True)
    assert [stored.tallies for stored in files.files.values()] == [2]
    assert set(TallyFiles(tmp_path, files.files).read()) == set(ledger)
