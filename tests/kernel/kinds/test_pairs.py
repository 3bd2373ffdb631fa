"""Pairs: the rounds after the first run over whole windows, wherever their pairs were made."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from muntin.kernel.clocks import Clocks
from muntin.kernel.compute import Recipe, compute
from muntin.kernel.due import Due
from muntin.kernel.finish import finish, order
from muntin.kernel.kinds import kind_of
from muntin.kernel.merge import split
from muntin.model.records import POSITION
from tests.kernel.kinds.test_kind import PYTHON, job_of


def test_the_second_round_sees_all_pairs_of_a_window_and_no_others() -> None:
    job = job_of(PYTHON.format("Most", " WINDOW 10 us, 20 us"))
    kind = kind_of(job.shape)
    assert kind.more_rounds(job)
    assert not kind.more_rounds(job_of(PYTHON.format("Spread", " WINDOW 10 us")))
    keys = [f"key {number % 9}" for number in range(40)]
    times, numbers = pa.array(range(40), pa.int64()), pa.array(range(40), pa.int64())
    records = pa.table({"k": keys, "n": numbers, POSITION: times})
    recipe = Recipe(job.shape, job.windows)
    (block,) = compute(records, "web-1", [recipe], Clocks())[0].values()
    due = Due({"j": [[1, 2, 3, 4], [2, 4]]})
    apart: dict[tuple[int, int], list[pa.Table]] = {}
    groups = split(job.shape, block, 3)
    assert len(groups) == 3
    for rows in groups.values():
        finished = finish(job.shape, {"j": job}, rows, due).rows["j"]
        for window in {*zip(*finished.select(["win", "w"]).to_pydict().values(), strict=True)}:
            is_of = (pc.field("win") == window[0]) & (pc.field("w") == window[1])
            apart.setdefault(window, []).append(finished.filter(is_of))
    done = [kind.later_rounds(job, tables) for tables in apart.values()]
    found = order(job, done).to_pylist()
    for window in found:
        start, end = kind.bounds(job, (window["__window"], window["__end"]))
        sums: dict[str, int] = {}
        for time in range(start, end):
            sums[keys[time]] = sums.get(keys[time], 0) + time
        assert (window["n"], window["k"]) == max((n, key) for key, n in sums.items())
    assert len(found) == 6
