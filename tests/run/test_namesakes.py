"""Of two agents with one name, one is read and the other is told of."""

from __future__ import annotations

import pytest

from muntin.errors import InputError
from muntin.run.namesakes import Namesakes
from muntin.wire.messages import News

ONE = News("web", "d", identity="one", via=("a:1",))
TWO = News("web", "d", identity="two", via=("b:1",))
OTHER = News("db", "d", identity="three", via=("c:1",))
BOTH = "stream 'logs': the agents at a:1 and b:1 are both named 'web'"


def test_who_begins_with_two_is_refused() -> None:
    names = Namesakes("logs", 10.0)
    with pytest.raises(InputError, match=f"^{BOTH}; start each with a --name of its own$"):
        names.meant([ONE, OTHER, TWO], 0.0)
    assert names.names == []


def test_who_was_there_first_is_read_and_the_other_is_told_of_once() -> None:
    names = Namesakes("logs", 10.0)
    told: list[str] = []
    assert names.meant([ONE, OTHER], 0.0) == [ONE, OTHER]
    told += names.told([ONE, OTHER])
    for now in (1.0, 2.0, 3.0, 4.0):
        assert names.meant([TWO, ONE, OTHER], now) == [ONE, OTHER]
        told += names.told([TWO, ONE, OTHER])
    assert told == [f"{BOTH}; the one at b:1 is not read; start each with a --name of its own"]
    assert names.meant([TWO], 9.0) == []  # the first is away for a moment
    assert list(names.told([TWO])) == []
    assert names.meant([TWO], 14.5) == [TWO]  # it has gone, or has another name now
    assert names.identity("web") == "two"


def test_who_is_started_again_is_the_same() -> None:
    names = Namesakes("logs", 10.0)
    assert names.meant([ONE], 0.0) == [ONE]
    assert names.meant([TWO], 0.1) == [TWO]
    assert list(names.told([TWO])) == []


def test_who_is_started_again_during_a_look_is_not_told_of() -> None:
    """By one way the process of before was heard, by another the next."""
    names = Namesakes("logs", 10.0)
    names.meant([ONE], 0.0)
    assert names.meant([ONE, TWO], 1.0) == [ONE]
    assert list(names.told([ONE, TWO])) == []
    assert names.meant([TWO, TWO], 11.5) == [TWO, TWO]
    assert list(names.told([TWO, TWO])) == []


def test_two_that_come_later_are_not_read() -> None:
    names = Namesakes("logs", 10.0)
    names.meant([OTHER], 0.0)
    for now in (1.0, 2.0):
        assert names.meant([OTHER, ONE, TWO], now) == [OTHER]
        told = list(names.told([OTHER, ONE, TWO]))
    assert [note.split("; ")[1] for note in told] == [
        "the one at a:1 is not read",
        "the one at b:1 is not read",
    ]
    assert names.meant([OTHER, TWO], 3.0) == [OTHER, TWO]  # the other has another name now
