"""Blocks that are made together are those that each shape's statement makes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import muntin
from muntin.kernel import compute as computing
from muntin.kernel import together
from muntin.kernel.clocks import Clocks
from muntin.kernel.compute import Recipe, compute
from muntin.kernel.statements import row_names
from muntin.model.records import POSITION
from muntin.run.catalog import Catalog
from tests.effort import examples

STREAM = (
    "CREATE STREAM s (t BIGINT, k VARCHAR, n BIGINT, x DOUBLE, i INTEGER) FROM 'x' FORMAT json "
    "TIMESTAMP t;"
)
FILTERS = (
    "",
    "n > 1",
    "k = 'a'",
    "k IN ('a', 'b') AND n < 3",
    "NOT x > 2 OR n IS NULL",
    "k = 'c' AND (n > 0 AND x < 3)",
    "n BETWEEN 1 AND 2 AND i > 0",
    "n",
)
KEYS = ("k", "n", "i", "k, n", "upper(k)", "n % 2", "x > 1", "x")
CELLS = (
    "count(*)",
    "sum(n)",
    "sum(x)",
    "avg(n)",
    "min(n)",
    "max(x)",
    "max(i)",
    "count(x)",
    "sum(n * 2) FILTER (WHERE k = 'a')",
    "count(*) FILTER (WHERE x > 1)",
    "sum(i)",
    "count(DISTINCT k)",
    "max(k)",
)
WINDOWS = ("4 us", "2 us EVERY 1 us", "6 us EVERY 3 us")

texts = st.none() | st.sampled_from(["a", "b", "c", ""])
numbers = st.none() | st.integers(-3, 4)
reals = st.none() | st.integers(-8, 8).map(lambda each: each / 2)
record = st.tuples(st.integers(0, 20), texts, numbers, reals, numbers)
query = st.tuples(
    st.sampled_from(FILTERS),
    st.sampled_from(KEYS),
    st.lists(st.sampled_from(CELLS), min_size=1, max_size=3, unique=True),
    st.sampled_from(WINDOWS),
)


def recipes_of(queries: Sequence[tuple[str, str, Sequence[str], str]]) -> tuple[Recipe, ...]:
    texts = [
        f"CREATE JOB j{number} AS SELECT {keys}, {', '.join(cells)} FROM s "
        f"{'WHERE ' + where if where else ''} GROUP BY {keys} WINDOW {window};"
        for number, (where, keys, cells, window) in enumerate(queries)
    ]
    program = muntin.sql(STREAM + "\n".join(texts))
    return Catalog.of(program.streams["s"], program.jobs.values()).recipes


def table(records: Sequence[tuple[object, ...]]) -> pa.Table:
    kinds = [pa.int64(), pa.string(), pa.int64(), pa.float64(), pa.int32()]
    columns = list(zip(*records, strict=True)) or [()] * len(kinds)
    arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
    return pa.table(arrays, [POSITION, "k", "n", "x", "i"])


def rows(block: pa.Table | None, recipe: Recipe) -> list[dict[str, object]]:
    """What a block says, in an order of its own."""
    if block is None:
        return []
    names = ["pane", "not_before", *row_names(recipe.shape)]
    return sorted(block.to_pylist(), key=lambda row: str([row[name] for name in names]))


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(computing, "WORTH_SHARING", 1)


def require_equal(
    together_: Mapping[str, pa.Table], alone: Mapping[str, pa.Table], recipes: Sequence[Recipe]
) -> None:
    """Blocks of a shared pass are those of statements of their own."""
    assert together_.keys() == alone.keys()
    for recipe in recipes:
        one, other = together_.get(recipe.shape.id), alone.get(recipe.shape.id)
        assert rows(one, recipe) == rows(other, recipe)
        assert one is None or other is None or one.schema.equals(other.schema)


@given(st.lists(record, max_size=40), st.lists(query, min_size=1, max_size=6), st.integers(0, 3))
@settings(deadline=None)
def test_together_is_what_each_statement_makes(
    records: list[tuple[object, ...]],
    queries: list[tuple[str, str, list[str], str]],
    slack: int,
) -> None:
    """Whatever the filters, keys, cells and windows are, with records that are late and NULLs."""
    recipes, given_ = recipes_of(queries), table(records)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(computing, "WORTH_SHARING", 1)
        together_, reading = compute(given_, "a", recipes, Clocks(slack_us=slack))
        patch.setattr(computing, "WORTH_SHARING", 1 << 30)
        alone, expected = compute(given_, "a", recipes, Clocks(slack_us=slack))
    require_equal(together_, alone, recipes)
    assert reading.tallies == expected.tallies


@given(
    st.lists(record, max_size=40),
    st.lists(
        st.tuples(
            st.sampled_from(("", "n > 1", "k = 'a'", "n < 0")),
            st.sampled_from(("k", "n % 2")),
            st.lists(st.sampled_from(CELLS[:11]), min_size=1, max_size=4, unique=True),
            st.just("4 us"),
        ),
        min_size=2,
        max_size=8,
    ),
    st.sampled_from([None, 0, 2]),
    st.sampled_from([0, 3, 1000]),
)
@examples(30)
def test_shapes_that_choose_the_same_records_have_cells_in_common(
    records: list[tuple[object, ...]],
    queries: list[tuple[str, str, list[str], str]],
    slack: int | None,
    many: int,
) -> None:
    """Selections of few records are added up at once, of which each is asked for other cells."""
    recipes, given_ = recipes_of(queries), table(records)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(together, "_MANY", many)
        patch.setattr(computing, "WORTH_SHARING", 1)
        together_, _ = compute(given_, "a", recipes, Clocks(slack_us=slack))
        patch.setattr(computing, "WORTH_SHARING", 1 << 30)
        alone, _ = compute(given_, "a", recipes, Clocks(slack_us=slack))
    require_equal(together_, alone, recipes)


QUERIES = [("n > 1", "k", ("sum(n)", "max(x)"), "4 us"), ("k = 'a'", "k", ("count(*)",), "4 us")]


def test_numbers_that_arrays_do_not_hold_are_left_to_sql(shared: None) -> None:
    """Sums beyond 64 bits, infinities and NaN: the same blocks, by the statement."""
    large = 2**62
    records = table([(n, "a", large, float("inf") if n else float("nan"), 1) for n in range(4)])
    recipes = recipes_of(QUERIES)
    block = compute(records, "a", recipes, Clocks())[0][recipes[0].shape.id]
    assert block.column("c1").to_pylist() == [4 * large]
    assert np.isnan(block.column("c2")[0].as_py())


def test_whole_sums_are_exact_beyond_real_numbers(shared: None) -> None:
    odd = 2**53 + 1
    recipes = recipes_of(QUERIES)
    blocks, _ = compute(table([(0, "a", odd, 0.5, 1)] * 3), "a", recipes, Clocks())
    assert blocks[recipes[0].shape.id].column("c1").to_pylist() == [3 * odd]


def test_an_expression_that_fails_leaves_others_together(
    shared: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who fails has a statement of its own from then on, and the records it refuses are told."""
    monkeypatch.setattr(together, "_refusing", set())
    failing = ("CAST(k AS BIGINT) > 0", "k", ("count(*)",), "4 us")
    guarded = ("n = 1", "k", ("sum(CAST(k AS BIGINT))",), "4 us")
    recipes = recipes_of([*QUERIES, failing, guarded])
    records = table([(0, "a", 2, 1.0, 1), (1, "5", 1, 1.0, 1)])
    blocks, reading = compute(records, "a", recipes, Clocks())
    counts = [blocks[r.shape.id].column("c0").to_pylist() for r in recipes]
    assert counts == [[1], [1], [1], [1]]
    assert {fault.job for fault in reading.faults} == {"j2"}
    assert together._refusing == {recipes[2].shape.id, recipes[3].shape.id}


def test_only_plain_cells_and_keys_are_shared() -> None:
    plain, distinct, text, real = recipes_of(
        [
            ("n > 1", "k", ("count(*)", "avg(x)"), "4 us"),
            ("n > 1", "k", ("count(DISTINCT n)",), "4 us"),
            ("n > 1", "k", ("max(k)",), "4 us"),
            ("n > 1", "x", ("count(*)",), "4 us"),
        ]
    )
    told = [together.is_shared(r.shape) for r in (plain, distinct, text, real)]
    assert told == [True, False, False, False]
