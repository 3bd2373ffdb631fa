"""Counts of records, which are added up."""

from __future__ import annotations

from muntin.model.counts import Counts


def test_counts_are_added_one_by_one() -> None:
    assert Counts(1, 2, 3, 4) + Counts(10, 20, 30, 40) == Counts(11, 22, 33, 44)
