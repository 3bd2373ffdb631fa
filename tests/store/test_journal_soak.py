"""A fixed set of jobs needs a fixed place, and a restart a fixed time, however old the state is."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.soak import FAST, soak
from muntin.store import delta


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
