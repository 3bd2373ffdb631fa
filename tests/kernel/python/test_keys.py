"""Keys survive their bytes, and different keys have different bytes."""

from __future__ import annotations

import subprocess
import sys
from datetime import date
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from muntin.kernel.python.keys import decode_key, encode_key, encoded, group_key

plain = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(), st.floats(allow_nan=False)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.tuples(inner, inner)),
    max_leaves=6,
)


def same(a: Any, b: Any) -> bool:
    """Equal, and of the same types all the way down; minus zero is zero."""
    if isinstance(a, list | tuple) and type(a) is type(b):
        return len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


@given(plain)
def test_a_key_survives_its_bytes(key: Any) -> None:
    assert same(decode_key(encode_key(key)), key)
    assert encoded(group_key(key)) == encode_key(key)


@given(plain, plain)
def test_keys_are_equal_if_their_bytes_are(a: Any, b: Any) -> None:
    assert (encode_key(a) == encode_key(b)) == same(a, b)


def test_any_picklable_object_is_a_key() -> None:
    assert decode_key(encode_key((date(2026, 1, 1), b"x"))) == (date(2026, 1, 1), b"x")


def test_text_has_the_same_bytes_in_every_process() -> None:
    code = "from muntin.kernel.python.keys import encode_key; print(encode_key(('a', 'a', 1.5)))"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == str(encode_key(("a", "a", 1.5)))
