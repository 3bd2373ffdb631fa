"""Every aggregate is understood by all its names, or refused with what to use instead."""

from __future__ import annotations

import pytest

from muntin.errors import LanguageError
from muntin.kernel.aggregates import EXPANSIONS
from muntin.kernel.engine import aggregate_names
from muntin.model.jobs import Job
from tests.language.cases import Mistake, mistakes, program

AGGREGATES = [
    "count(*)",
    "count(ms)",
    "count(DISTINCT product)",
    "count(DISTINCT (product, store))",
    "count_if(ok)",
    "sum(clicks)",
    "sum(DISTINCT clicks)",
    "avg(ms)",
    "avg(DISTINCT clicks)",
    "min(ms)",
    "max(product)",
    "max(DISTINCT ms)",
    "any_value(product)",
    "bool_and(ok)",
    "bool_or(ok)",
    "stddev(ms)",
    "stddev_pop(clicks)",
    "variance(price)",
    "var_pop(ms)",
    "median(ms)",
    "quantile(ms, 0.9)",
    "quantile_cont(ms, 0.25)",
    "approx_count_distinct(product)",
    "approx_quantile(ms, 0.99)",
    "first(product)",
    "last(product)",
    "arg_min(product, ms)",
    "arg_max(product, ts)",
    "mode(product)",
    "histogram(store)",
    "arg_min_null(product, ms)",
    "arg_max_null(product, ts)",
    "max(ms, 3)",
    "min(product, 2)",
    "arg_max(product, ms, 5)",
    "arg_min(product, ts, 5)",
    "list(product)",
    "array_agg(product)",
    "array_agg(product ORDER BY ms DESC, ts)",
    "array_agg(DISTINCT store)",
    "string_agg(product, ', ')",
    "string_agg(DISTINCT product, ', ' ORDER BY product DESC)",
    "approx_top_k(product, 3)",
    "entropy(product)",
    "mad(ms)",
    "quantile_cont(ms, [0.5, 0.9, 0.99])",
    "approx_quantile(ms, [0.5, 0.9])",
    "percentile_cont([0.1, 0.2]) WITHIN GROUP (ORDER BY ms DESC)",
    "sem(ms)",
    "skewness(ms)",
    "kurtosis(ms)",
    "kurtosis_pop(ms)",
    "corr(ms, price)",
    "covar_pop(ms, price)",
    "covar_samp(ms, price)",
    *(
        f"regr_{name}(ms, price)"
        for name in ("count", "avgx", "avgy", "sxx", "syy", "sxy", "slope", "intercept", "r2")
    ),
    "product(clicks)",
    "fsum(ms)",
    "favg(ms)",
    "bit_and(clicks)",
    "bit_or(clicks)",
    "bit_xor(clicks)",
    "geomean(ms)",
    "wavg(ms, clicks)",
]
SYNONYMS = [
    ("count()", "count(*)"),
    ("count_star()", "count(*)"),
    ("count(ALL ms)", "count(ms)"),
    ("countif(ok)", "count_if(ok)"),
    ("mean(ms)", "avg(ms)"),
    ("MEAN( ms )", "avg(ms)"),
    ('"avg"(ms)', "avg(ms)"),
    ("stddev_samp(ms)", "stddev(ms)"),
    ("var_samp(ms)", "variance(ms)"),
    ("quantile_disc(ms, 0.9)", "quantile(ms, 0.9)"),
    ("arbitrary(product)", "first(product)"),
    ("argmin(product, ms)", "arg_min(product, ms)"),
    ("min_by(product, ms)", "arg_min(product, ms)"),
    ("argmax(product, ms)", "arg_max(product, ms)"),
    ("max_by(product, ms)", "arg_max(product, ms)"),
    ("list(ms)", "array_agg(ms)"),
    ("group_concat(product)", "string_agg(product)"),
    ("listagg(product, '-')", "string_agg(product, '-')"),
    ("kahan_sum(ms)", "fsum(ms)"),
    ("sumkahan(ms)", "fsum(ms)"),
    ("geometric_mean(ms)", "geomean(ms)"),
    ("weighted_avg(ms, clicks)", "wavg(ms, clicks)"),
    ("percentile_cont(0.5) WITHIN GROUP (ORDER BY ms)", "quantile_cont(ms, 0.5)"),
    ("percentile_cont(0.75) WITHIN GROUP (ORDER BY ms DESC)", "quantile_cont(ms, 0.25)"),
    ("percentile_disc(0.9) WITHIN GROUP (ORDER BY ms)", "quantile(ms, 0.9)"),
    ("mode() WITHIN GROUP (ORDER BY product)", "mode(product)"),
]


def job_of(aggregate: str) -> Job:
    text = f"CREATE JOB j AS SELECT product, {aggregate} AS x FROM shop GROUP BY product"
    return program(f"{text} WINDOW 1 DAY").jobs["j"]


@pytest.mark.parametrize("case", mistakes("calls_errors.sql"), ids=lambda case: case.text)
def test_mistake_is_shown_at_its_place(case: Mistake) -> None:
    with pytest.raises(LanguageError) as raised:
        program(case.text)
    assert str(raised.value) == case.shown()


def test_every_aggregate_of_the_kernel_is_tried_here() -> None:
    assert set(EXPANSIONS) <= {aggregate.partition("(")[0] for aggregate in AGGREGATES}


@pytest.mark.parametrize("aggregate", AGGREGATES)
def test_aggregate_becomes_cells(aggregate: str) -> None:
    job = job_of(aggregate)
    assert len(job.finishes) == 1
    assert job.outputs[1].name == "x"


@pytest.mark.parametrize("aggregate", AGGREGATES)
def test_filter_is_part_of_every_cell_but_the_count_of_all(aggregate: str) -> None:
    job = job_of(f"{aggregate} FILTER (WHERE store = 'a')")
    count, *cells = job.shape.parts[0].cells
    assert count.sql == "count(*)"
    assert all("\"store\" = 'a'" in cell.sql for cell in cells)
    assert all("\"store\" = 'a'" in (part.where or "") for part in job.shape.parts[1:])
    assert cells or len(job.shape.parts) > 1


@pytest.mark.parametrize(("synonym", "aggregate"), SYNONYMS)
def test_synonym_is_the_same(synonym: str, aggregate: str) -> None:
    assert job_of(synonym) == job_of(aggregate)


def test_equal_aggregates_share_their_cells() -> None:
    job = job_of("sum(ms) / SUM( ms ) + mean(ms)")
    cells = [cell.sql for cell in job.shape.parts[0].cells]
    assert cells == ["count(*)", 'sum("ms")', 'count("ms")']


@pytest.mark.parametrize("name", sorted(aggregate_names() - set(EXPANSIONS)))
def test_every_other_aggregate_is_a_synonym_or_refused(name: str) -> None:
    known = {synonym.partition("(")[0] for synonym, _ in SYNONYMS}
    if name not in known:
        with pytest.raises(LanguageError, match=f"{name} cannot be merged from parts; instead: "):
            job_of(f"{name}(ms)")
