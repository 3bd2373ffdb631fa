"""A record of a wrong time costs at most itself, and what is late is missing from the score."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import muntin as mt
from muntin.fidelity.score import Missing, State
from muntin.run.inline import windows_inline
from tests.effort import examples
from tests.oracle import stream_time
from tests.whole.test_bounds import Run, told

PROGRAM = (
    "CREATE STREAM s (t BIGINT) FROM '{folder}/{{source}}.log' FORMAT json TIMESTAMP t "
    "SLACK {slack} SECONDS; CREATE JOB j AS SELECT count(*) AS c FROM s WINDOW {window};"
)


def scored(
    folder: Path,
    times: Sequence[int],
    window: str,
    slack: int = 0,
    batch: int = 1 << 20,
    piece: int = 1 << 20,
) -> list[tuple[int, int, int, Any, str]]:
    """Of a finite log: start, count, late records, area and reason of every window."""
    (folder / "a.log").write_text("".join(json.dumps({"t": t}) + "\n" for t in times))
    program = mt.sql(PROGRAM.format(folder=folder, slack=slack, window=window))
    return [
        (r.start // 1_000_000, r.rows["c"][0].as_py(), r.counts.late, r.c2.area, str(r.c2.reason))
        for windows in windows_inline(program, batch_bytes=batch, piece_bytes=piece)
        for r in windows.results()
    ]


@pytest.mark.parametrize("size", [1, 40, 1 << 20])
def test_one_record_from_the_future_makes_nothing_late(tmp_path: Path, size: int) -> None:
    times = [1000, 1001, 1002, 1010, 50_000, 1011, 1020, 1021, 1030]
    assert scored(tmp_path, times, "10 SECONDS", 0, size, size) == [
        (1000, 3, 0, 1.0, "complete"),
        (1010, 2, 0, 1.0, "complete"),
        (1020, 2, 0, 1.0, "complete"),
        (1030, 1, 0, 1.0, "complete"),
        (50_000, 1, 0, 1.0, "complete"),
    ]


def test_one_record_from_the_future_makes_nothing_late_live(tmp_path: Path) -> None:
    run = Run(tmp_path, "10 SECONDS", idle=100)
    run.write("a", 1001, 1002, 40_000, 1003, at=1003)
    assert run.at(1003) == []
    run.write("a", 1009, 1011, at=1011)
    assert told(run.at(1011)) == [(1000, 4, "complete", 0)]
    run.write("a", 1012, 1021, at=1021)
    assert told(run.at(1021)) == [(1010, 2, "complete", 0)]
    assert run.loop.progress.late == {}
    assert run.notes[1:] == []  # the first says that there is no file yet


def test_a_first_record_from_the_future_makes_nothing_late(tmp_path: Path) -> None:
    run = Run(tmp_path, "10 SECONDS", idle=100)
    run.write("a", 40_000, 1001, 1002, 1003, at=1003)
    assert run.at(1003) == []
    run.write("a", 1011, at=1011)
    assert told(run.at(1011)) == [(1000, 3, "complete", 0)]


def test_a_leap_that_more_records_confirm_is_believed_and_told(tmp_path: Path) -> None:
    run = Run(tmp_path, "10 SECONDS", idle=100)
    run.write("a", 1001, 1002, 1003, at=1003)
    run.at(1003)
    run.write("a", 8201, 8202, at=1004)
    run.at(1004)
    assert run.notes[1:] == []
    run.write("a", 8203, at=1005)
    run.at(1005)
    assert run.notes[1:] == [
        "source 'a' of stream 's' leaps ahead by 2 hours, from 1970-01-01 00:16:43 to "
        "1970-01-01 02:16:43: what it still writes of the time between is late; see whether its "
        "clock is right"
    ]
    run.write("a", 1006, 1007, at=1007)
    run.at(1007)
    (result,) = run.at(1011)
    assert (result.counts.read, result.counts.late) == (5, 2)
    assert (result.c2.area, str(result.c2.reason)) == (0.0, "exhausted")


def test_many_records_that_come_at_once_are_no_leap(tmp_path: Path) -> None:
    """However far a batch goes: one record follows the other."""
    run = Run(tmp_path, "1 MINUTE", idle=3600)
    run.write("a", *range(90), at=90)
    run.at(90)
    run.write("a", *range(90, 590), at=91)
    run.at(91)
    assert run.notes[1:] == []
    run.write("a", *range(590, 700), *range(900, 1000), at=92)
    run.at(92)
    (note,) = run.notes[1:]
    assert "leaps ahead by 203 seconds, from 1970-01-01 00:11:39 to 1970-01-01 00:15:02" in note


def test_gaps_of_quiet_servers_are_not_told(tmp_path: Path) -> None:
    run = Run(tmp_path, "10 SECONDS", idle=10_000)
    run.write("a", 100, 200, 201, 202, 300, 301, 302, 990, 991, 992, at=1000)
    run.at(1000)
    for now in (1600, 2200, 2800):  # one line every ten minutes
        run.write("a", now, at=now)
        assert {left[2] for left in told(run.at(now))} <= {"complete"}
    assert run.notes[1:] == []


def test_a_quiet_server_holds_nothing_up(tmp_path: Path) -> None:
    """One line every ten minutes is no leap, as it was silent for as long."""
    run = Run(tmp_path, "10 SECONDS", idle=10_000)
    run.write("quiet", 1001, at=1001)
    run.write("busy", *range(1001, 1601), at=1600)
    run.at(1600)
    run.write("quiet", 1601, at=1601)
    run.write("busy", 1601, at=1601)
    assert [left[2] for left in told(run.at(1601))] == ["complete"] * 60


@examples(30)
@given(
    times=st.lists(st.integers(0, 90) | st.sampled_from([400, 401, 5000]), min_size=1, max_size=12),
    slack=st.sampled_from([0, 20]),
    window=st.sampled_from([(20, 20, 20), (20, 20, 5), (30, 10, 10)]),
    piece=st.sampled_from([1, 60, 1 << 20]),
)
def test_scores_equal_counting(
    times: list[int], slack: int, window: tuple[int, int, int], piece: int
) -> None:
    """In one batch, so that no window has left when something comes too late for it."""
    length, slide, pane = window
    text = f"{length} SECONDS EVERY {slide} SECONDS PANE {pane} SECONDS"
    with tempfile.TemporaryDirectory() as folder:
        found = scored(Path(folder), times, text, slack, piece=piece)
    marks = [stream_time(times[: n + 1], slack) - slack for n in range(len(times))]
    expected: list[tuple[int, int, int, Any, str]] = []
    starts = {s for t in times for s in range(t // slide * slide, t - length, -slide)}
    for start in sorted(starts):
        end = start + length
        late = {n for n, t in enumerate(times) if start <= t < end
                and marks[n] // pane * pane >= end}  # fmt: skip
        there = [n for n, t in enumerate(times) if start <= t < end and n not in late]
        panes = [p for p in range(start // pane, end // pane) if p >= min(times) // pane]
        spoiled = {times[n] // pane for n in late}
        area = 1 - len(spoiled) / len(panes)
        reason = "exhausted" if spoiled else "complete"
        if there:
            expected.append((start, len(there), len(late), pytest.approx(area), reason))
    assert found == expected


def test_a_window_that_leaves_late_records_out_says_so(tmp_path: Path) -> None:
    """The window of before has left, one that overlaps it holds them, and one does not."""
    run = Run(tmp_path, "20 SECONDS EVERY 10 SECONDS", idle=100)
    run.write("b", 1000, 1001, 1002, at=1002)
    run.write("a", 1000, 1001, 1015, 1016, 1031, 1003, 1013, 1032, at=1032)
    run.at(1032)
    run.write("b", 1041, at=1041)
    found = {result.start // 1_000_000: result for result in run.at(1041)}
    assert {start: r.counts.late for start, r in found.items()} == {990: 1, 1000: 2, 1010: 1}
    c2 = found[1000].c2
    assert c2.missing == (Missing("a", "late", 2),)
    assert (c2.area, c2.time, c2.space) == (0.5, 1.0, 0.5)
    assert [[State(int(cell)).name for cell in row] for row in c2.cells] == [
        ["LATE", "LATE"], ["MERGED", "MERGED"],
    ]  # fmt: skip
    assert "< late" in c2.drawing()


def test_with_revise_late_records_make_nothing_incomplete(tmp_path: Path) -> None:
    run = Run(tmp_path, "10 SECONDS REVISE", idle=100)
    run.write("a", 1000, 1001, 1011, at=1011)
    assert told(run.at(1011)) == [(1000, 2, "complete", 0)]
    run.write("a", 1002, at=1012)
    assert told(run.at(1012)) == [(1000, 3, "complete", 1)]
