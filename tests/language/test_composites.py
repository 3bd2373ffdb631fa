"""Several streams as one: what its members, columns and sources are called."""

from __future__ import annotations

from muntin.language.composites import composed, view_of
from muntin.model.records import MEMBER, Column
from muntin.model.streams import Format, Stream

BIDS = Stream("bids", ("b",), Format("json"), (Column("price", "BIGINT"),), "t", 5, sources=("x",))
ASKS = Stream(
    "asks", ("a",), Format("csv"), (Column("price", "DOUBLE"), Column("Source", "VARCHAR")), "t"
)


def test_columns_and_sources_are_named_by_their_stream() -> None:
    whole = composed([BIDS, ASKS])
    assert whole.name == "asks+bids"
    assert whole.columns == whole.visible_columns()
    assert [(c.name, c.type) for c in whole.columns] == [
        ("asks.price", "DOUBLE"),
        ("asks.Source", "VARCHAR"),
        ("bids.price", "BIGINT"),
        ("bids.source", "VARCHAR"),
        (MEMBER, "VARCHAR"),
    ]
    assert whole.sources == ("bids/x",)
    assert whole == composed([ASKS, BIDS])


def test_a_member_knows_what_it_has_not() -> None:
    asks, bids = composed([BIDS, ASKS]).members
    assert [c.name for c in bids.beside] == ["asks.price", "asks.Source"]
    assert [c.name for c in asks.beside] == ["bids.price", "bids.source"]
    assert (bids.before, bids.column("price")) == ("bids/", "bids.price")
    assert (BIDS.before, BIDS.column("price")) == ("", "price")


def test_a_source_tells_its_stream_and_slack() -> None:
    whole = composed([BIDS, ASKS])
    assert whole.of_source("bids/asks/1").name == "bids"
    assert whole.of_source("asks/1").slack(follow=True) == 0
    assert whole.of_source("asks/1").slack(follow=False) is None
    assert whole.of_source("bids/1").slack(follow=True) == 5
    assert BIDS.of_source("asks/1") is BIDS


def test_a_view_shows_the_columns_of_one_member() -> None:
    view = view_of(composed([BIDS, ASKS]), "bids", "b")
    assert {name: shown.sql for name, shown in view.columns.items()} == {
        "price": '"bids.price"',
        "source": '"bids.source"',
    }
    assert view.reads.name == "bids"
