"""What is written so that recovery is bounded: never exceeded, and at the least cost."""

from __future__ import annotations

from itertools import chain, combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin.collections.lineage import Dataset, Lineage, cut, edge


@st.composite
def datasets(draw: st.DrawFn, most: int = 9) -> list[Dataset]:
    """A history: each dataset comes of some before it."""
    names = [f"d{n}" for n in range(draw(st.integers(1, most)))]
    return [
        Dataset(
            name,
            tuple(draw(st.sets(st.sampled_from(names[:n]), max_size=3)) if n else ()),
            draw(st.integers(0, 20)),
            draw(st.integers(0, 5)),
        )
        for n, name in enumerate(names)
    ]


def separates(lineage: Lineage, name: str, bound: float, chosen: set[str]) -> bool:
    """Whether no path leads to a dataset from where recovery takes too long, by trying all."""
    paths = [[name]]
    for path in paths:
        for parent in lineage.datasets[path[-1]].parents:
            if not lineage.datasets[parent].written:
                paths.append([*path, parent])
    longest = {
        path[-1]: max(
            sum(lineage.datasets[each].delay for each in other)
            for other in paths
            if other[-1] == path[-1]
        )
        for path in paths
    }
    return all(chosen & set(path) for path in paths if longest[path[-1]] > bound)


def least(lineage: Lineage, name: str, bound: float) -> int:
    """The cost of the cheapest set that separates, of all sets."""
    held = [each for each in lineage.datasets.values() if each.held and not each.written]
    sets = chain.from_iterable(combinations(held, size) for size in range(len(held) + 1))
    return min(
        sum(each.cost for each in some)
        for some in sets
        if separates(lineage, name, bound, {each.name for each in some})
    )


@given(datasets(), st.integers(0, 12), st.floats(1, 4))
def test_the_bound_is_never_exceeded_and_nothing_cheaper_would_do(
    history: list[Dataset], bound: int, relaxation: float
) -> None:
    exact = relaxed = Lineage()
    for dataset in history:
        exact, relaxed = exact.plus(dataset), relaxed.plus(dataset)
        chosen = cut(exact, bound)
        if exact.recovery[dataset.name] > bound:
            assert separates(exact, dataset.name, bound, set(chosen))
            assert cost(exact, chosen) == least(exact, dataset.name, bound)
            near = cut(exact, bound, relaxation)
            assert separates(exact, dataset.name, bound, set(near))
            assert cost(exact, near) <= relaxation * cost(exact, chosen)
        else:
            assert chosen == ()
        exact = exact.written(chosen)
        relaxed = relaxed.written(cut(relaxed, bound, relaxation))
        for each in (exact, relaxed):
            assert max(each.recovery.values()) <= bound
            assert cut(each, bound, relaxation) == ()


def cost(lineage: Lineage, names: tuple[str, ...]) -> int:
    assert len(set(names)) == len(names)
    return sum(lineage.datasets[name].cost for name in names)


@given(datasets(), st.integers(0, 12))
def test_the_edge_algorithm_keeps_to_the_bound_too(history: list[Dataset], bound: int) -> None:
    lineage = Lineage()
    for dataset in history:
        lineage = lineage.plus(dataset)
        chosen = edge(lineage, bound)
        assert bool(chosen) == (max(lineage.recovery.values()) > bound)
        assert set(chosen) <= set(lineage.leaves)
        lineage = lineage.written(chosen)
        assert max(lineage.recovery.values()) <= bound


@given(datasets(), st.integers(1, 12), st.data())
def test_what_was_dropped_is_not_written_but_counts(
    history: list[Dataset], bound: int, data: st.DataObject
) -> None:
    lineage = Lineage()
    for dataset in history:
        lineage = lineage.plus(dataset)
        chosen = cut(lineage, bound, 2.0)
        assert all(lineage.datasets[name].held for name in chosen)
        lineage = lineage.written(chosen)
        held = [name for name, each in lineage.datasets.items() if each.held]
        assert all(lineage.recovery[name] <= bound for name in held)
        gone = data.draw(st.sets(st.sampled_from(held)))
        lineage = lineage.released(gone)
        assert all(lineage.recovery[name] <= bound for name in held if name not in gone)
        assert not gone & set(lineage.leaves)


def test_an_example() -> None:
    """With a bound of 10, the last dataset has paths of 15, 14 and 14 behind it."""
    lineage = Lineage()
    for name, parents, delay, size in (
        ("a", "", 3, 8),
        ("b", "", 3, 7),
        ("c", "a", 4, 6),
        ("d", "ab", 3, 2),
        ("e", "cd", 3, 5),
        ("i", "e", 5, 9),
    ):
        lineage = lineage.plus(Dataset(name, tuple(parents), size, delay))
    assert lineage.recovery["i"] == 15
    assert cut(lineage, 10) == ("e",)
    assert cut(lineage, 10, 2.0) == ("i",)  # costs 9, not 5, and leaves nothing behind it
    assert edge(lineage, 10) == ("i",)
    cheaper = lineage.written(["e"])
    assert (cheaper.recovery["i"], cut(cheaper, 10)) == (5, ())
    assert cut(cheaper, 4) == ("c", "d", "i")  # c and d are before what was written, and held


def test_a_dataset_that_alone_takes_too_long_is_written() -> None:
    lineage = Lineage().plus(Dataset("slow", (), 100, 20.0))
    assert cut(lineage, 10) == ("slow",)


def test_lineage_that_nobody_needs_is_forgotten() -> None:
    lineage = Lineage()
    for n in range(100):
        lineage = lineage.plus(Dataset(f"d{n}", (f"d{n - 1}",), 1, 1.0))
        lineage = lineage.written(cut(lineage, 10)).released([f"d{n - 2}"])
        assert len(lineage.datasets) <= 15


def test_parents_that_are_not_known_need_no_recovery() -> None:
    lineage = Lineage().plus(Dataset("a", ("elsewhere",), 1, 1.0))
    assert lineage.recovery == {"a": pytest.approx(1.0)}
