"""Keys as bytes: equal keys have equal bytes, and bytes give the key again."""

from __future__ import annotations

import subprocess
import sys
from collections import namedtuple
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin.kernel.python.keys import decode_key, encode_key, encoded, group_key

Named = namedtuple("Named", "a b")


@dataclass(frozen=True)
class Frozen:
    a: Any
    b: Any


@dataclass(frozen=True, slots=True)
class Slotted:
    a: Any


@dataclass(frozen=True)
class Partly:
    a: int
    b: int = field(compare=False)


@dataclass(frozen=True)
class Remembers:
    a: int

    @cached_property
    def twice(self) -> int:
        return 2 * self.a


class Folded:
    def __init__(self, text: str) -> None:
        self.text = text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Folded) and other.text.lower() == self.text.lower()

    def __hash__(self) -> int:
        return hash(self.text.lower())


class Color(Enum):
    RED = "red"


def other(text: str) -> str:
    """Equal text that is another object: pickle tells them apart."""
    return (text + "!")[:-1]


A = "some text"


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (Named(A, A), Named(A, other(A))),
        (Frozen(A, A), Frozen(A, other(A))),
        (Slotted((A, A)), Slotted((A, other(A)))),
        (frozenset([0, 8, 16]), frozenset([16, 8, 0])),
        (Frozen(frozenset([0, 8, 16]), None), Frozen(frozenset([16, 8, 0]), None)),
        ((A, Named(1, A)), (other(A), Named(1, other(A)))),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        (Decimal("1.0"), Decimal("1.00")),
        (Decimal("100"), Decimal("1E+2")),
        (Decimal("-0"), Decimal("0.00")),
        (0.0, -0.0),
    ],
)
def test_equal_keys_have_equal_bytes(one: Any, two: Any) -> None:
    assert one == two
    assert encode_key(one) == encode_key(two)
    assert decode_key(encode_key(two)) == one


@pytest.mark.parametrize(
    "key",
    [
        Named(1, None),
        Frozen("a", (1, 2)),
        Slotted(1),
        Color.RED,
        b"\0bytes",
        Decimal("-12.50"),
        Decimal("1E+400"),
        Decimal("Infinity"),
        Decimal("1234567890123456789012345678901234567890.5"),
        datetime(2026, 3, 1, 12, tzinfo=UTC),
        datetime(2026, 3, 1, 12, tzinfo=ZoneInfo("Europe/Vienna")),
        date(2026, 3, 1),
        UUID(int=5),
        Fraction(1, 3),
        PurePosixPath("/a/b"),
        np.int64(5),
        np.datetime64("2026-03-01"),
        1 + 2j,
        int,
        {1, 2},
    ],
)
def test_bytes_give_the_key_again(key: Any) -> None:
    found = decode_key(encode_key(key))
    assert found == key
    assert type(found) is type(key)


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=20)
    | st.binary(max_size=20)
    | st.decimals(allow_nan=False, allow_infinity=False),
    lambda part: st.tuples(part, part) | st.frozensets(part) | st.builds(Frozen, part, part),
    max_leaves=16,
)


@given(plain)
def test_any_key_comes_back(key: Any) -> None:
    assert decode_key(encode_key(key)) == key


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (Folded("a"), "class Folded, which has an __eq__ of its own; expected text"),
        (Partly(1, 2), "fields that do not count"),
        ((1, (c for c in "text")), "generator"),
        (lambda: 1, "<lambda>"),
    ],
)
def test_what_cannot_be_a_key_is_refused(key: Any, message: str) -> None:
    with pytest.raises(Exception, match=message):
        encode_key(key)


def test_what_a_dataclass_remembers_is_no_part_of_it() -> None:
    one, two = Remembers(1), Remembers(1)
    assert two.twice == 2
    assert encode_key(one) == encode_key(two)


nested = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(), st.floats(allow_nan=False)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.tuples(inner, inner)),
    max_leaves=6,
)


def same(a: Any, b: Any) -> bool:
    """Equal, and of the same types all the way down; minus zero is zero."""
    if isinstance(a, list | tuple) and type(a) is type(b):
        return len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


@given(nested)
def test_a_key_survives_its_bytes(key: Any) -> None:
    assert same(decode_key(encode_key(key)), key)
    assert encoded(group_key(key)) == encode_key(key)


@given(nested, nested)
def test_keys_are_equal_if_their_bytes_are(a: Any, b: Any) -> None:
    assert (encode_key(a) == encode_key(b)) == same(a, b)


def test_any_picklable_object_is_a_key() -> None:
    assert decode_key(encode_key((date(2026, 1, 1), b"x"))) == (date(2026, 1, 1), b"x")


def test_text_has_the_same_bytes_in_every_process() -> None:
    code = "from muntin.kernel.python.keys import encode_key; print(encode_key(('a', 'a', 1.5)))"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == str(encode_key(("a", "a", 1.5)))
