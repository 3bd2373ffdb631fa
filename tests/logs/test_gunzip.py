"""The text of gzip members, up to the damage, whatever the sizes of reads."""

from __future__ import annotations

import gzip
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin.logs.gunzip import Gunzip


def read(
    data: bytes, size: int, start: int = 0, end: int | None = None
) -> tuple[bytes, str | None]:
    file = Gunzip(io.BytesIO(data), start, end)
    text = b"".join(iter(lambda: file.read(size) or b"", b""))
    return text, file.damage


@given(members=st.lists(st.binary(max_size=200), min_size=1), size=st.integers(1, 300))
def test_members_are_read_one_after_another(members: list[bytes], size: int) -> None:
    data = b"".join(map(gzip.compress, members))
    assert read(data, size) == (b"".join(members), None)
    assert read(data + bytes(100), size) == (b"".join(members), None)


def test_a_range_is_whole_members() -> None:
    one, two, three = (gzip.compress(text) for text in (b"one", b"two", b"three"))
    whole = one + two + three
    assert read(whole, 9, len(one), len(one + two)) == (b"two", None)


@given(cut=st.integers(1, 200), size=st.sampled_from([1, 7, 1 << 16]))
def test_what_comes_before_an_early_end_is_given(cut: int, size: int) -> None:
    text = bytes(range(256)) * 20
    data = gzip.compress(text)
    found, damage = read(data[: -min(cut, len(data) - 1)], size)
    assert text.startswith(found)
    assert damage == "it ends too early"


@pytest.mark.parametrize(
    ("damaged", "said"),
    [
        (lambda data: b"plain text", "this is not gzip data"),
        (lambda data: data[:-8] + b"\0\0\0\0" + data[-4:], "its checksum is wrong"),
        (lambda data: data + b"junk behind it", "this is not gzip data"),
        (lambda data: b"", "it ends too early"),
    ],
)
def test_damage_is_told_in_words(damaged: object, said: str) -> None:
    assert callable(damaged)
    assert read(damaged(gzip.compress(b"text")), 100)[1] == said
