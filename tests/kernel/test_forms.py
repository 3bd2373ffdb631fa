"""Shapes of one form get together what each of them gets alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import muntin
from muntin.fidelity.score import Only
from muntin.kernel import forms
from muntin.kernel.clocks import Clocks
from muntin.kernel.compute import compute
from muntin.kernel.due import Due, due_jobs
from muntin.kernel.finish import finish, order
from muntin.kernel.forms import Asked, finish_form, forms_of, merge_all, split_all
from muntin.kernel.merge import gather, merge, split
from muntin.model.jobs import Job
from muntin.model.shapes import Shape
from muntin.run.catalog import Catalog
from tests.effort import examples
from tests.kernel.test_together import STREAM, record, table

FILTERS = ("", "n > 1", "k = 'a'", "k IN ('a', 'b')", "x < 2")
QUERIES = (
    "k, count(*) AS c, sum(n) AS n FROM s {} GROUP BY k",
    "k, count(*) AS c, sum(x) AS x FROM s {} GROUP BY k ORDER BY c DESC LIMIT 2",
    "k, sum(x) AS x FROM s {} GROUP BY k ORDER BY x LIMIT 1",
    "n, max(x) AS x, min(i) AS i FROM s {} GROUP BY n HAVING count(*) > 1",
    "max(n) AS n, count(DISTINCT k) AS k FROM s {}",
    "k, median(x) AS m, avg(n) AS n FROM s {} GROUP BY k",
    "k, list(n ORDER BY n) AS n FROM s {} GROUP BY k",
    "k, 10 // sum(n) AS n, CAST(max(k) AS BIGINT) AS bad FROM s {} GROUP BY k",  # it may fail
)
WINDOWS = ("4 us", "6 us EVERY 1 us", "6 us EVERY 3 us", "2 us, 8 us")

asked_for = st.lists(
    st.tuples(st.sampled_from(QUERIES), st.sampled_from(FILTERS), st.sampled_from(WINDOWS)),
    min_size=2,
    max_size=7,
)
pieces = st.lists(st.lists(record, min_size=1, max_size=25), min_size=1, max_size=4)


def jobs_of(queries: Sequence[tuple[str, str, str]]) -> Catalog:
    texts = [
        f"CREATE JOB j{number} AS SELECT {query.format(f'WHERE {where}' if where else '')} "
        f"WINDOW {window};"
        for number, (query, where, window) in enumerate(queries)
    ]
    program = muntin.sql(STREAM + "\n".join(texts))
    return Catalog.of(program.streams["s"], program.jobs.values())


def computed(
    catalog: Catalog, logs: Sequence[Sequence[tuple[object, ...]]], slack: int | None
) -> dict[str, list[pa.Table]]:
    clocks, blocks = Clocks(slack_us=slack), {}  # type: ignore[var-annotated]
    for log in logs:
        for shape, block in compute(table(log), "a", catalog.recipes, clocks)[0].items():
            blocks.setdefault(shape, []).append(block)
    return blocks


def rows(found: pa.Table) -> Counter[str]:
    return Counter(str(sorted(row.items())) for row in found.to_pylist())


def all_due(jobs: Mapping[str, Job], more: bool = False) -> Due:
    """Every window of every job that may hold a record."""
    ends = {
        name: [sorted(spec.ends(list(range(-2, 30)), None, 30)) for spec in job.windows]
        for name, job in jobs.items()
    }
    return Due(ends, more=more)


@examples(60)
@given(asked_for, pieces, st.sampled_from([None, 0, 3]))
def test_blocks_merge_as_they_do_alone(
    queries: list[tuple[str, str, str]], logs: list[list[Any]], slack: int | None
) -> None:
    catalog = jobs_of(queries)
    blocks = computed(catalog, logs, slack)
    together = merge_all(catalog.shapes, blocks)
    gathered = merge_all(catalog.shapes, blocks, gather)
    assert together.keys() == gathered.keys() == blocks.keys()
    for id_, tables in blocks.items():
        alone, apart = merge(catalog.shapes[id_], tables), gathered[id_]  # which may not be merged
        put_together = merge(catalog.shapes[id_], [apart, apart.slice(0, 0)])
        assert rows(together[id_]) == rows(put_together) == rows(alone)
        assert together[id_].schema.equals(alone.schema)
    for groups in (1, 3):
        split_ = {(id_, at): rows(t) for id_, at, t in split_all(catalog.shapes, together, groups)}
        assert split_ == {
            (id_, at): rows(part)
            for id_, block in together.items()
            for at, part in split(catalog.shapes[id_], block, groups).items()
        }


@examples(100)
@given(asked_for, pieces, st.sampled_from([None, 0, 3]), st.booleans(), st.integers(0, 99))
def test_windows_are_those_that_shapes_have_alone(
    queries: list[tuple[str, str, str]],
    logs: list[list[Any]],
    slack: int | None,
    more: bool,
    seed: int,
) -> None:
    """With values that fail for one of them, late records, and windows of a part of the panes."""
    catalog = jobs_of(queries)
    jobs, blocks = catalog.jobs, computed(catalog, logs, slack)
    due = all_due(jobs, more)
    if seed < 20:  # one window is made of some of its panes
        name = sorted(jobs)[seed % len(jobs)]
        end = due.ends[name][0][seed % len(due.ends[name][0])]
        due = replace(due, only={(name, 0, end): Only((end - 1,))})
    asked = [
        Asked(mine, sum(t.num_rows for t in blocks[id_]), partial(whole, blocks[id_]))
        for id_, mine in due_jobs(jobs, due).items()
        if id_ in blocks
    ]
    together: dict[str, pa.Table] = {}
    for form in forms_of(asked, due):
        assert len(form) > 1
        made = finish_form(form, due)
        assert not together.keys() & made.keys()
        together |= made
    for each in asked:
        alone = finish(each.shape, each.jobs, each.table(), due).rows
        for name in together.keys() & each.jobs.keys():
            assert same_results(jobs[name], together[name], alone[name])


def whole(tables: Sequence[pa.Table]) -> pa.Table:
    return pa.concat_tables(tables)


def same_results(job: Job, one: pa.Table, other: pa.Table) -> bool:
    """The same rows in the same order, and the same faults."""
    first, second = (order(job, [each]) for each in (one, other))
    return bool(first.schema.equals(second.schema)) and str(first.to_pylist()) == str(
        second.to_pylist()
    )


def shapes_asked(catalog: Catalog, blocks: dict[str, list[pa.Table]], due: Due) -> list[Asked]:
    return [
        Asked(mine, sum(t.num_rows for t in blocks[id_]), partial(whole, blocks[id_]))
        for id_, mine in due_jobs(catalog.jobs, due).items()
    ]


RECORDS = [(n, "ab"[n % 2], n % 3, n / 2, n) for n in range(20)]


def test_shapes_of_one_form_are_found() -> None:
    """Another filter or key column is the same form; another window, order or cell is not."""
    catalog = jobs_of(
        [
            ("k, sum(n) AS n FROM s {} GROUP BY k", "", "4 us"),
            ("k, sum(n) AS m FROM s {} GROUP BY k", "n > 1", "4 us"),
            ("upper(k) AS k, sum(i) AS n FROM s {} GROUP BY 1", "n > 0", "4 us"),
            ("k, sum(n) AS n FROM s {} GROUP BY k", "x > 1", "8 us EVERY 4 us"),
            ("k, max(n) AS n FROM s {} GROUP BY k", "n > 1", "4 us"),
            ("k, sum(n) AS n FROM s {} GROUP BY k LIMIT 1", "n > 1 AND i > 1", "4 us"),
        ]
    )
    blocks, due = computed(catalog, [RECORDS], None), all_due(catalog.jobs)
    (form,) = forms_of(shapes_asked(catalog, blocks, due), due)
    assert [each.job.name for each in form] == ["j0", "j1", "j2"]


def test_one_that_fails_leaves_others_together(monkeypatch: pytest.MonkeyPatch) -> None:
    query = "k, 10 // sum(n) AS n, CAST(min(k) AS BIGINT) AS b FROM s {} GROUP BY k"
    filters = ["k = '1'", "k = '2'", "k = 'a'", "k = '3'", "k IN ('1', '2')"]
    catalog = jobs_of([(query, where, "40 us") for where in filters])
    records = [(n, k, 1, 1.0, 1) for n, k in enumerate(("1", "2", "a", "3"))]
    blocks, due = computed(catalog, [records], None), all_due(catalog.jobs)
    (form,) = forms_of(shapes_asked(catalog, blocks, due), due)
    alone: list[str] = []

    def finish_alone(shape: Shape, jobs: Mapping[str, Job], *rest: Any) -> Any:
        alone.extend(jobs)
        return finish(shape, jobs, *rest)

    monkeypatch.setattr(forms, "finish", finish_alone)
    found = finish_form(form, due)
    assert "j2" in alone
    assert len(alone) <= 2
    told = {name: order(catalog.jobs[name], [table]) for name, table in found.items()}
    assert [told[f"j{n}"].num_rows for n in (0, 1, 3, 4)] == [1, 1, 1, 2]
    assert told["j2"].column("__fault").null_count == 0


def test_large_blocks_stay_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    queries = [("k, sum(n) AS n FROM s {} GROUP BY k", where, "4 us") for where in FILTERS]
    catalog = jobs_of(queries)
    blocks, due = computed(catalog, [RECORDS], None), all_due(catalog.jobs)
    asked = shapes_asked(catalog, blocks, due)
    assert [len(form) for form in forms_of(asked, due)] == [len(asked)]
    monkeypatch.setattr(forms, "ROWS_AT_ONCE", 25)
    assert sum(len(form) for form in forms_of(asked, due)) <= len(asked)
    monkeypatch.setattr(forms, "LARGE", 1)
    assert forms_of(asked, due) == []
