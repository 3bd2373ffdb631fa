"""Streams: what their records have."""

from __future__ import annotations

from muntin.model.records import Column
from muntin.model.streams import Format, Stream


def test_records_have_a_source_unless_they_bring_their_own() -> None:
    time, key = Column("t", "BIGINT"), Column("k", "VARCHAR")
    without = Stream("a", ("x",), Format("json"), (time, key), "t")
    assert [c.name for c in without.visible_columns()] == ["t", "k", "source"]
    for name in ("source", "SOURCE"):
        own = Stream("b", ("y",), Format("json"), (time, Column(name, "VARCHAR")), "t")
        assert [c.name for c in own.visible_columns()] == ["t", name]
