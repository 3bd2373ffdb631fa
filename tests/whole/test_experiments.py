"""The experiments in their smallest form show what the large ones do."""

from __future__ import annotations

from math import comb
from pathlib import Path

import pytest

from benchmarks.experiments import balance, blocks, clicks, goodput, overhead, words
from benchmarks.experiments.plots import Line, Panel, draw
from benchmarks.experiments.policies import POLICIES, lines


def test_goodput_is_higher_where_stopped_servers_are_noticed(tmp_path: Path) -> None:
    setting = goodput.Setting(servers=2, stopped=1)
    without, with_ = goodput.both(tmp_path, setting)
    assert with_.panes_per_second >= 1.5 * without.panes_per_second
    assert without.lag == pytest.approx(goodput.WITHIN)
    assert with_.lag < without.lag / 10


def test_words_of_some_servers_are_not_the_words_of_all(tmp_path: Path) -> None:
    setting = words.Setting(servers=4, words=60, windows=1, shares=(50,))
    found = words.measure(tmp_path, setting)
    errors = {p: found.line(p, setting.shares, words.frequency_errors).ys for p in POLICIES}
    assert max(errors["random"][0], errors["spatial"][0]) < errors["temporal"][0]
    latency = lines(setting.shares, found.latency)
    assert latency["spatial"].ys[0] < 0.8 * latency["temporal"].ys[0]


def test_users_are_seen_in_samples_not_in_slices(tmp_path: Path) -> None:
    setting = clicks.Setting(servers=3, users=60, hours=2, shares=(40,))
    found = clicks.measure(tmp_path, setting)
    (seen,), (sliced,) = (found.line(p, (40,), clicks.users_seen).ys for p in ("random", "spatial"))
    assert seen > sliced
    (error,), (worse,) = (
        found.line(p, (40,), clicks.session_errors).ys for p in ("random", "spatial")
    )
    assert error < worse


def test_histograms_of_whole_servers_never_fail(tmp_path: Path) -> None:
    setting = blocks.Setting(servers=4, hours=12, shares=(30,))
    found = blocks.measure(tmp_path, setting)
    failed = {p: found.line(p, (30,), blocks.failures).ys[0] for p in POLICIES}
    assert failed["temporal"] == 0.0
    assert min(failed["spatial"], failed["random"]) > 0
    (missing,) = found.line("temporal", (30,), blocks.missing).ys
    assert 0 < missing <= 0.7


def test_jobs_are_spread_as_evenly_as_published(tmp_path: Path) -> None:
    """As evenly as independent choices would be; published are 99.5 % where chance gives 99.3."""
    for jobs, (most, share) in balance.FEWER.items():
        one = 1 / balance.NODES
        chance = sum(comb(jobs, n) * one**n * (1 - one) ** (jobs - n) for n in range(most))
        for each in balance.shares(jobs, 3):
            assert each == sorted(each), "whoever has fewer than 2 roots has fewer than 3"
            assert each[most - 1] == pytest.approx(chance, abs=0.01)
            assert each[most - 1] > share - 0.005
    told = list(balance.run(tmp_path, None, quick=True))
    assert [line.split(" | ")[0] for line in told[2::2]] == ["| 500", "| 1,000", "| 2,000"]


def test_scoring_is_timed_once(tmp_path: Path) -> None:
    setting = overhead.Setting(servers=10, records=2, batch_panes=30)
    window, bounds = overhead.WINDOWS["sliding"], overhead.BOUNDS["bounded"]
    for cost in overhead.measure(tmp_path / "logs", setting, window, bounds).values():
        assert cost.windows > 2
        assert 0 < cost.scoring < cost.seconds


def test_plots_are_small(tmp_path: Path) -> None:
    line = Line([10, 50, 100], [3.0, 2.0, 1.0], [0.1, 0.2, 0.0])
    draw(tmp_path / "x.png", "a title", [Panel("a", "x", "y", {"one": line, "two": line})] * 3)
    assert 0 < (tmp_path / "x.png").stat().st_size < 60_000
