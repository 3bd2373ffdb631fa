"""Records: where their positions are."""

from __future__ import annotations

from muntin.model.records import Axis


def test_axes_have_columns_of_their_own() -> None:
    axes = [Axis(), Axis("records"), Axis("bytes"), Axis("sequence", "a"), Axis("sequence", "b")]
    assert len({axis.column for axis in axes}) == 5
