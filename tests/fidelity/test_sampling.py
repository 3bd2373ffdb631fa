"""Samples: each pane with the same chance, and the same panes in every process and run."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from muntin.fidelity.sampling import picked, sampled, sampled_of, sufficient
from muntin.model.shapes import Sample


@given(share=st.floats(0.01, 1), job=st.text(max_size=5), source=st.text(max_size=5))
def test_samples_take_each_pane_with_the_same_chance(share: float, job: str, source: str) -> None:
    panes = np.arange(-10_000, 10_000)
    taken = sampled(Sample(job, share), source, panes)
    assert abs(taken.mean() - share) < 0.02
    # A pane's fate says nothing of the next one's.
    both = (taken[1:] & taken[:-1]).mean()
    assert abs(both - share**2) < 0.03


def test_samples_are_the_same_in_every_process() -> None:
    panes = np.arange(20)
    first = sampled(Sample("words", 0.5), "web-1", panes)
    assert "".join("x" if k else "." for k in first) == "..x.x...x.x.x....xxx"
    assert not (first == sampled(Sample("words", 0.5), "web-2", panes)).all()


def test_sources_together_are_as_each_alone() -> None:
    sample, panes, names = Sample("words", 0.3), np.arange(-50, 50), ["a", "b", "c"]
    assert (sampled_of(sample, names, panes) == [sampled(sample, n, panes) for n in names]).all()


def test_the_whole_is_a_sample_too() -> None:
    assert sampled(Sample("words", 1.0), "a", np.arange(10_000)).all()


@given(st.floats(0.01, 1.0), st.integers(1, 300))
def test_as_few_parts_as_are_sufficient(share: float, parts: int) -> None:
    few = sufficient(share, parts)
    assert few / parts >= share or few >= share * parts
    assert few == 0 or (few - 1) / parts < share


@given(st.sets(st.text(max_size=3)), st.integers(0, 9), st.integers(0, 9))
def test_more_sources_have_those_of_fewer(names: set[str], few: int, more: int) -> None:
    some = picked(names, few)
    assert len(some) == min(few, len(names))
    assert some <= picked(names, few + more) <= names


def test_every_source_is_picked_as_often_as_others() -> None:
    counts = Counter(
        name for fleet in range(400) for name in picked([f"{fleet}-web-{n}" for n in range(10)], 1)
    )
    numbers = Counter(int(name.rpartition("-")[2]) for name in counts)
    assert len(numbers) == 10
    assert max(numbers.values()) < 75
