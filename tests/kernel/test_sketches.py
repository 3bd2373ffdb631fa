"""Approximate aggregates against exact ones, on skewed data, whole and in pieces."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from muntin.kernel.clocks import Clocks
from muntin.kernel.compute import compute
from muntin.kernel.due import Due
from muntin.kernel.finish import finish, order
from muntin.kernel.merge import merge
from muntin.language.check import check
from muntin.model.jobs import Job
from muntin.model.records import POSITION, Column
from muntin.model.streams import Format, Stream
from muntin.run.catalog import recipes_of

STREAM = Stream("s", (), Format("parquet"), (Column("k", "VARCHAR"), Column("u", "BIGINT"),
                Column("x", "DOUBLE"), Column("t", "TIMESTAMP")), '"t"')  # fmt: skip


def job(select: str) -> Job:
    text = f"CREATE JOB j AS SELECT {select} FROM s WINDOW 1 HOUR"
    return check(text, lambda _: (), {"s": STREAM}).jobs["j"]


def answer(job_: Job, table: pa.Table, pieces: int) -> dict[str, Any]:
    """The one row of the one window, with the table computed in pieces."""
    table = table.append_column(POSITION, pa.array(np.zeros(len(table), np.int64)))
    shape, size = job_.shape, -(-len(table) // pieces)
    recipes = recipes_of([job_])
    blocks = [
        compute(table.slice(start, size), "s", recipes, Clocks())[0][shape.id]
        for start in range(0, len(table), size)
    ]
    found = finish(shape, {"j": job_}, merge(shape, blocks), Due({"j": [[1]]}))
    rows: list[dict[str, Any]] = order(job_, [found.rows["j"]]).to_pylist()
    return rows[0]


@pytest.mark.parametrize("distinct", [1, 10, 500, 5_000, 40_000, 200_000])
def test_distinct_counts_are_within_two_percent(distinct: int) -> None:
    chance = np.random.default_rng(distinct)
    skewed = np.minimum(chance.zipf(1.2, 300_000), distinct) * 7919
    every = np.concatenate([skewed, np.arange(1, distinct + 1) * 7919])
    exact = len(np.unique(every))
    table = pa.table({"u": every})
    found = answer(job("approx_count_distinct(u) AS n"), table, pieces=3)["n"]
    assert abs(found - exact) <= 0.02 * exact


@pytest.mark.parametrize("q", [0.01, 0.5, 0.9, 0.99, 0.999, 1.0])
def test_quantiles_are_within_one_percent(q: float) -> None:
    chance = np.random.default_rng(3)
    values = np.concatenate(
        [chance.lognormal(3, 2, 50_000), -chance.pareto(1.5, 20_000) - 1, np.zeros(100)]
    )
    chance.shuffle(values)
    exact = float(np.quantile(values, q, method="inverted_cdf"))
    found = answer(job(f"approx_quantile(x, {q}) AS p"), pa.table({"x": values}), pieces=4)["p"]
    assert abs(found - exact) <= 0.01 * abs(exact)


def test_pieces_change_nothing() -> None:
    values = np.random.default_rng(5).lognormal(0, 1, 5000)
    table = pa.table({"x": values, "u": (values * 100).astype(np.int64)})
    both = job("approx_quantile(x, 0.9) AS p, approx_count_distinct(u) AS n")
    assert answer(both, table, 1) == answer(both, table, 13)


def test_nothing_and_odd_numbers() -> None:
    table = pa.table({"x": pa.array([None, float("nan"), None], pa.float64()),
                      "u": pa.array([None, None, None], pa.int64())})  # fmt: skip
    both = job("approx_quantile(x, 0.9) AS p, approx_count_distinct(u) AS n, median(x) AS m")
    row = answer(both, table, 1)
    assert row["p"] is None
    assert row["n"] == 0
    extremes = pa.table({"x": [float("inf"), 1e308, 5e-324, -1e308], "u": [1, 1, 1, 1]})
    top = answer(job("approx_quantile(x, 1.0) AS p"), extremes, 1)["p"]
    assert top > 1e307
