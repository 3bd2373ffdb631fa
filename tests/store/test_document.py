"""Patches, written and read, make one state of the other."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from muntin.store.document import Document, apply, decode, difference, encode

leaves = st.one_of(st.integers(), st.none(), st.text(max_size=3))
keys = st.one_of(st.integers(0, 4), st.sampled_from("abc"), st.tuples(st.just("k"), st.just(1)))
documents = st.recursive(
    st.dictionaries(keys, leaves, max_size=5),
    lambda inner: st.dictionaries(keys, st.one_of(leaves, inner), max_size=4),
    max_leaves=20,
)


@given(st.lists(documents, max_size=5))
def test_patches_follow_a_document(states: list[Document]) -> None:
    known: Document = {}
    read: Document = {}
    for state in states:
        before = deepcopy(state)
        patch = difference(known, state)
        apply(read, decode(encode(patch)))
        assert known == read == state == before
        assert difference(known, state) == {}


def test_a_patch_has_what_has_changed_alone() -> None:
    known: Document = {}
    now: Document = {
        "sources": {name: (name, 1) for name in "abc"},
        "left": {("job", "kind"): {1: "x"}},
    }
    difference(known, now)
    now["sources"]["b"] = ("b", 2)
    now["left"]["job", "kind"][2] = "y"
    del now["sources"]["c"]
    assert difference(known, now) == {
        "in": [
            ("sources", {"set": [("b", ("b", 2))], "gone": ["c"]}),
            ("left", {"in": [(("job", "kind"), {"set": [(2, "y")]})]}),
        ]
    }


def test_dataclasses_become_lists_of_their_fields() -> None:
    @dataclass(frozen=True)
    class Leaf:
        name: str
        number: int

    assert decode(encode({"set": [("a", Leaf("x", 1))]})) == {"set": [["a", ["x", 1]]]}
