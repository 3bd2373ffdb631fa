"""What differs between two states, applied to the first, gives the second."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin.store.document import Document, apply, decode, difference, encode

leaves = st.none() | st.integers() | st.text(max_size=3) | st.lists(st.integers(), max_size=2)
keys = st.sampled_from(["a", "b", 7, ("web-1", 60), ("web-1", 61)])
mappings = st.dictionaries(keys, leaves, max_size=4)
# A key has a mapping in every state, or a leaf in every state.
documents = st.builds(
    lambda flat, nested: flat | {("in", key): value for key, value in nested.items()},
    mappings,
    st.dictionaries(st.sampled_from(["x", "y"]), mappings),
)


def read_back(patch: Any) -> Any:
    return decode(encode(patch))


@given(states=st.lists(documents, min_size=1, max_size=4))
def test_patches_one_after_another_give_every_state(states: list[Document]) -> None:
    known: Document = {}
    stored: Document = {}
    for state in states:
        apply(stored, read_back(difference(known, state)))
        assert known == stored == state


@given(state=documents)
def test_equal_states_differ_in_nothing(state: Document) -> None:
    known: Document = {}
    difference(known, state)
    assert difference(known, deepcopy(state)) == {}


def test_a_patch_is_as_large_as_what_has_changed() -> None:
    state: Document = {"sources": {f"web-{n}": {"reached": n} for n in range(1000)}}
    known: Document = {}
    whole = len(encode(difference(known, state)))
    state["sources"]["web-7"]["reached"] = 70
    assert len(encode(difference(known, state))) < whole / 50


@pytest.mark.xfail(strict=True, reason="what was a leaf stays one when the patch is applied")
def test_a_leaf_becomes_a_mapping() -> None:
    known: Document = {"a": 1}
    stored = dict(known)
    apply(stored, read_back(difference(known, {"a": {}})))
    assert stored == known == {"a": {}}
