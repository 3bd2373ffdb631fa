"""A verdict that never says wrong is worth nothing."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Any

import pytest

from tests.faults.jobs import Asked
from tests.faults.kinds import _is_worker
from tests.faults.past import Range
from tests.faults.processes import End
from tests.faults.servers import Cell
from tests.faults.told import left_empty
from tests.faults.trial import Struck
from tests.faults.verdict import Window, deviations, in_vain

TRUTH = {
    "a": defaultdict(Cell, {10: Cell({1, 2}), 11: Cell({3, 9}, late={9: 12_000})}),
    "b": defaultdict(Cell, {10: Cell({1, 2, 3}, destroyed={3})}),
}
WHOLE = {("a", 10): [1, 2], ("a", 11): [3], ("b", 10): [1, 2]}


def window(
    cells: dict[tuple[str, int], list[int]],
    missing: dict[str, int] | None = None,
    sources: tuple[int, ...] = (),
    area: float | None = None,
) -> Window:
    told = [{"source": name, "why": "lost", "panes": n} for name, n in (missing or {}).items()]
    area = (0.5 if told else 1.0) if area is None else area
    c2: dict[str, Any] = {"area": area, "reason": "complete", "missing": told}
    c2["panes"] = [{"sources": number, "panes": 1} for number in sources]
    rows = [
        {"server": server, "second": second, "c": len(numbers), "n": sum(numbers),
         "numbers": numbers, "c2": c2}
        for (server, second), numbers in cells.items()
    ]  # fmt: skip
    return Window("j", 10, 12, 0, rows)


# What was late or destroyed may be there.
@pytest.mark.parametrize("more", [{}, {("b", 10): [1, 2, 3]}, {("a", 11): [3, 9]}])
def test_the_truth_is_right(more: dict[tuple[str, int], list[int]]) -> None:
    assert list(deviations(window(WHOLE | more), TRUTH)) == []


@pytest.mark.parametrize(
    ("change", "missing", "told"),
    [
        ({("a", 10): [1]}, {}, "a lacks records of 1 seconds, 0 named: 10: 2"),
        ({("a", 10): [1]}, {"b": 2}, "a lacks records of 1 seconds, 0 named: 10: 2"),
        ({("a", 10): [1], ("a", 11): []}, {"a": 1}, "a lacks records of 2 seconds, 1 named"),
        ({("a", 11): [3, 3]}, {"a": 2}, "a at 11 counts 1 records twice: 3"),
        ({("a", 11): [3, 4]}, {"a": 2}, "a at 11 has 1 records that nobody wrote: 4"),
        ({("a", 12): [3]}, {"a": 2}, "a at 12 is outside"),
    ],
)
def test_what_is_wrong_is_told(
    change: dict[tuple[str, int], list[int]], missing: dict[str, int], told: str
) -> None:
    assert any(told in each for each in deviations(window(WHOLE | change, missing), TRUTH))


def test_panes_have_the_sources_that_lack_nothing() -> None:
    lacks = WHOLE | {("a", 10): [1]}
    assert list(deviations(window(lacks, {"a": 1}, (1, 2)), TRUTH)) == []
    (told,) = deviations(window(lacks, {"a": 1}, (2, 1)), TRUTH)
    assert told == "at 10 it has 2 sources, and only 1 lack nothing"


def test_what_is_complete_names_nothing() -> None:
    (told,) = deviations(window(WHOLE, {"a": 1}, area=1.0), TRUTH)
    assert told == "it is complete, and names what is missing"


def test_what_is_late_for_its_second_is_not_late_for_a_window_that_ends_later() -> None:
    cell = Cell({1, 2}, late={2: 11_500})
    assert (cell.wanted(11), cell.wanted(12)) == ({1}, {1, 2})


def test_what_is_late_for_its_second_has_to_be_where_its_server_is_whole() -> None:
    truth = {"a": defaultdict(Cell, {10: Cell({1, 2}, late={2: 11_500}), 11: Cell({3})})}
    (told,) = deviations(window({("a", 10): [1], ("a", 11): [3]}), truth)
    assert told == "a lacks records of 1 seconds, 0 named: 10: 2"
    assert list(deviations(window({("a", 10): [1]}, {"a": 1}, (1, 0)), truth)) == []


def test_what_is_named_in_vain_is_counted() -> None:
    assert in_vain(window(WHOLE | {("a", 10): [1]}, {"a": 2, "b": 1}), TRUTH) == 2


def test_what_is_named_may_be_missing() -> None:
    assert list(deviations(window({("a", 10): [1]}, {"a": 2, "b": 1}), TRUTH)) == []


@pytest.mark.parametrize(
    ("window", "hurries", "hides"),
    [
        ((98, 100), True, True),
        ((118, 120), True, True),
        ((127, 129), True, False),  # of which something is there when clocks are right again
        ((70, 72), True, False),  # which left long before
        ((98, 100), False, False),  # which waits for what is written
    ],
)
def test_windows_with_a_bound_may_be_empty_by_a_clock_that_is_ahead(
    window: tuple[int, int], hurries: bool, hides: bool
) -> None:
    """Seed 18-0: clocks were 20 s ahead, and windows left of which nothing was written yet."""
    jump = Struck("clock jumps", "+20.0 s", seconds=6.0, at=100.0, ahead=20.0)
    assert jump.hides(window, "shop-1", hurries) == hides


def _asked(numbers: dict[tuple[str, int], list[int]], missing: dict[str, int]) -> Range:
    rows = window(numbers, missing).rows
    score = {**rows[0]["c2"], "panes": ()}
    return Range("j", 10, 12, 0, rows, score=score, whole={"a"})


def test_a_range_has_what_was_late_unless_it_says_so() -> None:
    """What came too late for its window is named from then on, if nothing went unread."""
    late = WHOLE | {("a", 11): [3, 9]}
    assert list(deviations(_asked(late, {}), TRUTH)) == []
    (told,) = deviations(_asked(WHOLE, {}), TRUTH)
    assert told == "a lacks records of 1 seconds, 0 named: 11: 9"
    assert list(deviations(_asked(WHOLE, {"a": 1}), TRUTH)) == []


def test_panes_of_a_range_may_be_longer() -> None:
    nothing = _asked({("b", 10): [1, 2]}, {"a": 1})
    assert any("lacks records of 2 seconds, 1 named" in each for each in deviations(nothing, TRUTH))
    assert list(deviations(replace(nothing, pane=60), TRUTH)) == []


SAID = """\
hurried: 2026-11-18 02:32:26 – 02:32:28, 0 rows, lag 4.0 s, 0 % deadline
hurried: 2026-11-18 02:32:34 – 02:32:36 and 1 before, 0 rows, lag 4.0 s, 0 % exhausted
hurried: 2026-11-18 02:32:40 – 02:32:42, revision 1, 0 rows, lag 4.0 s, 50 % deadline
hurried: 2026-11-18 02:32:50 – 02:32:52, 0 rows, lag 2.0 s, 100 % complete
hurried: 2026-11-18 02:32:54 – 02:32:56, 10 rows, lag 2.0 s, 50 % deadline
hurried: 2026-11-18 02:32:58 – 02:33:00 and 3 before, 2 rows, lag 2.0 s, 50 % deadline
other: 2026-11-18 02:32:26 – 02:32:28, 0 rows, lag 4.0 s, 0 % deadline
"""


def test_windows_without_rows_are_known_by_what_the_run_has_said() -> None:
    """Seed 17-1: the driver was stopped up to a deadline, by which nothing had been read."""
    job = Asked("hurried", "shop", 2, 2, " WITHIN 3 SECONDS")
    (windows,) = left_empty(SAID, [job]).values()
    first = 1794969146
    assert windows == {(first + s, first + s + 2) for s in (0, 8)}


def test_a_program_may_end_at_its_start_while_the_master_is_away() -> None:
    """Seed 19-5: it was killed, and started again before there was a master."""
    master = Struck("kill -9 Spark master", "master", seconds=2.0, bars="program", at=100.0)
    assert master.explains(End(103.0, "program", 1, "", began=101.5))
    assert not master.explains(End(103.0, "program", 1, "", began=40.0))  # it had been running
    assert not master.explains(End(110.0, "program", 1, "", began=103.0))
    assert not master.explains(End(103.0, "relay", 1, "", began=101.5))


def test_a_java_process_is_no_python_worker() -> None:
    """Seed 19-5: it was killed in place of one, as it is told which daemon to start."""
    java = "/usr/bin/java -Dspark.python.daemon.module=muntin.spark.daemon org.apache.spark"
    assert not _is_worker(java)
    assert _is_worker("/venv/bin/python -m muntin.spark.daemon pyspark.worker")
