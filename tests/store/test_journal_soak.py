"""A fixed set of jobs needs a fixed place, and a restart a fixed time, however old the state is."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.soak import FAST, soak
from muntin.store import delta
from tests.store import soaking


def test_a_state_does_not_grow_with_its_age(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`python -m benchmarks.soak` does the same over ten thousand batches."""
    # Twice that, as windows leave with every batch.
    monkeypatch.setattr("muntin.store.journal.SAVES_PER_REWRITE", 4)
    monkeypatch.setattr(delta, "_SETTINGS", delta._SETTINGS | FAST)
    monkeypatch.setattr(delta, "_SIZES", ((1 << 20, 8),))
    panes = 10
    young, *old = soak(tmp_path, 384, panes, {32, 128, 256, 384})
    for seen in old:
        assert seen.checkpoints < 2 * young.checkpoints
        assert seen.checkpoint_files <= 6
        # Of the newest results, those that panes of open windows were joined with are kept.
        assert seen.joined_files <= panes + 2
        assert seen.table_files < 1.25 * old[0].table_files


def test_what_is_retained_and_read_by_jobs_stays_as_large_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`python -m tests.store.soaking` does the same over ten thousand batches."""
    monkeypatch.setattr("muntin.store.journal.SAVES_PER_REWRITE", 4)
    monkeypatch.setattr(delta, "_SETTINGS", delta._SETTINGS | FAST)
    sizes = list(soaking.soak(tmp_path, 320, range(80, 321, 10)))
    assert {size.asked for size in sizes} == {soaking.KEPT_SECONDS * soaking.KEYS}
    young, old = sizes[: len(sizes) // 2], sizes[len(sizes) // 2 :]
    for part in soaking.PARTS:  # the most there was, as files are begun anew and merged
        (before, files_before), (now, files) = (
            [max(size.parts[part][which] for size in several) for which in (0, 1)]
            for several in (young, old)
        )
        # Small files of panes are merged with what is over, and go when all of it is.
        assert now < (1 << 16 if part == "panes" else 1.25 * before), part
        assert files <= files_before + 4, part
