"""The cheapest tiles of a window against all that there are, and panes shared between jobs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from muntin.kernel.clocks import Clocks
from muntin.kernel.compute import Recipe, compute
from muntin.kernel.consolidate import Consolidation
from muntin.language.program import sql
from muntin.model.jobs import Job
from muntin.model.records import POSITION
from muntin.windows.sharing import Tile, Tiles, share_panes

MINUTE = 60_000_000
Chosen = tuple[tuple[int, ...], tuple[Tile, ...]]  # panes and windows


class Case(NamedTuple):
    panes: dict[int, int]  # rows of each
    windows: dict[Tile, int]

    def tiles(self) -> Tiles:
        panes = sorted(self.panes)
        tiles = Tiles(np.array(panes, np.int64), np.array([self.panes[p] for p in panes]))
        for window, rows in self.windows.items():
            tiles.add({window: rows})
        return tiles

    def cost(self, cover: Chosen) -> int:
        panes, windows = cover
        return sum(self.panes[pane] for pane in panes) + sum(self.windows[w] for w in windows)

    def covers(self, start: int, end: int) -> Iterator[Chosen]:
        """Every way to cover the panes of [start, end) that have rows, each of them once."""
        if start == end:
            yield (), ()
            return
        pane = (start,) if start in self.panes else ()
        yield from (((*pane, *panes), windows) for panes, windows in self.covers(start + 1, end))
        for window in self.windows:
            if window.start == start and window.end <= end:
                for panes, windows in self.covers(window.end, end):
                    yield panes, (window, *windows)


sizes = st.integers(1, 6)
spans = st.builds(
    lambda start, length, number: Tile(start, start + length, number),
    st.integers(-2, 9),
    st.integers(1, 6),
    st.integers(0, 3),
)
cases = st.builds(
    Case,
    st.dictionaries(st.integers(0, 9), sizes),
    st.dictionaries(spans, sizes, max_size=8),
)


def cover(case: Case, start: int, end: int) -> Chosen:
    found = case.tiles().cover(start, end)
    assert len(found) == len(found.panes) + len(found.windows)
    return tuple(found.panes.tolist()), tuple(found.windows)


@given(case=cases, start=st.integers(-3, 9), length=st.integers(0, 8))
def test_no_cover_has_fewer_rows(case: Case, start: int, length: int) -> None:
    every = list(case.covers(start, start + length))
    chosen = cover(case, start, start + length)
    assert chosen in every
    assert case.cost(chosen) == min(map(case.cost, every))


def test_among_equals_the_longest_tile_wins() -> None:
    case = Case(dict.fromkeys(range(6), 1), {Tile(0, 2, 0): 2, Tile(2, 6, 1): 4})
    assert cover(case, 0, 6) == ((), (Tile(0, 2, 0), Tile(2, 6, 1)))
    long, short = Tile(0, 6, 0), Tile(3, 6, 1)
    for windows in ({long: 6, short: 3}, {short: 3, long: 6}):
        assert cover(Case(case.panes, windows), 0, 6) == ((), (long,))


def test_panes_without_rows_cost_nothing_to_pass() -> None:
    assert cover(Case({5: 1, 10**12: 1}, {}), 0, 10**13) == ((5, 10**12), ())


def jobs_of(*windows: str, where: str = "") -> dict[str, Job]:
    text = "CREATE STREAM logs (t BIGINT, k VARCHAR) FROM 'x' FORMAT json TIMESTAMP t;"
    for number, clause in enumerate(windows):
        text += f"CREATE JOB j{number} AS SELECT count(*) AS c FROM logs{where} WINDOW {clause};"
    return dict(sql(text).jobs)


def test_an_hour_of_four_windows_takes_86_merges() -> None:
    """60 panes make the windows of 5 minutes; larger ones are made of two smaller each.

    minutes   0    5    10   15   20
    5         |----|----|----|----|    5 panes each   12 windows   60
    10        |---------|---------|    5 + 5           6 windows   12
    15        |--------------|         10 + 5          4 windows    8
    20        |-------------------|    10 + 10         3 windows    6
    """
    job = jobs_of("5 MINUTES, 10 MINUTES, 15 MINUTES, 20 MINUTES PANE 1 MINUTE")["j0"]
    shape, specs = job.shape, job.windows
    positions = [second * 1_000_000 for second in range(0, 3600, 7)]
    records = pa.table({POSITION: pa.array(positions, pa.int64())})
    blocks = compute(records, "web-1", [Recipe(shape, specs)], Clocks())[0][shape.id]
    consolidation = Consolidation(shape, blocks)
    found = {}
    for spec in specs:
        ends = spec.ends(range(60), None, 60)
        rows = consolidation.windows(spec, ends, again=True).table()
        found[spec.length] = sorted(
            zip(*rows.select(["w", "c0"]).to_pydict().values(), strict=True)
        )
    assert found == {
        length: [
            (end, sum((end - length) * 60 <= second < end * 60 for second in range(0, 3600, 7)))
            for end in range(length, 61, length)
        ]
        for length in (5, 10, 15, 20)
    }
    naive = sum(spec.length * len(spec.ends(range(60), None, 60)) for spec in specs)
    assert naive == 240
    assert (consolidation.merges.windows, consolidation.merges.tiles) == (25, 86)


def test_jobs_that_differ_in_windows_only_share_panes() -> None:
    jobs = jobs_of("1 HOUR EVERY 6 MINUTES", "20 MINUTES", "1 HOUR, 1 DAY FROM '2026-01-01 00:01'")
    assert {job.shape.pane for job in jobs.values()} == {MINUTE}
    assert len({job.shape.id for job in jobs.values()}) == 1
    assert [w.length for job in jobs.values() for w in job.windows] == [60, 20, 60, 1440]


def test_other_jobs_keep_their_own() -> None:
    hour, minute, day = (jobs_of(clause)["j0"] for clause in ("1 HOUR", "1 MINUTE", "1 DAY"))
    other = jobs_of("7 MINUTES", where=" WHERE k = 'a'")["j0"]
    named = {"hour": hour, "minute": minute, "day": day, "other": other}
    renamed = {name: Job(**{**vars(job), "name": name}) for name, job in named.items()}
    shared = share_panes(renamed)
    assert list(shared) == list(named)
    assert {n: j.shape.pane // MINUTE for n, j in shared.items()} == {
        "hour": 1, "minute": 1, "day": 1, "other": 7
    }  # fmt: skip
    counted = jobs_of("1 HOUR", "60 RECORDS", "7 MINUTES BEGIN '2026-01-01'")
    assert [job.shape.pane for job in counted.values()] == [60 * MINUTE, 60, 7 * MINUTE]


def test_jobs_that_fit_no_common_grid_keep_their_own() -> None:
    """Seven milliseconds and thirty days would need 2.6 billion panes a window."""
    jobs = jobs_of("7 MILLISECONDS", "30 DAYS")
    assert [job.windows[0].length for job in jobs.values()] == [1, 1]
