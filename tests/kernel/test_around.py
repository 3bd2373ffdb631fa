"""The finish of windows: rows of the core to rows of results, and windows that fail."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from muntin.kernel.around import RECORDS, finish_windows
from muntin.kernel.statements import WINDOW, WINDOW_END
from muntin.model.jobs import Around, Job, Output
from muntin.model.shapes import Shape
from muntin.windows.spec import WindowSpec

DAY = 86_400_000_000
SHAPE = Shape("logs", "", (), (), (), pane=DAY)
JOB = Job("j", SHAPE, (WindowSpec(DAY, DAY),), (), (Output("n", "", "BIGINT"),))


def core(*rows: tuple[int, int]) -> pa.Table:
    """Rows of the end of a window and a number."""
    ends, numbers = zip(*rows, strict=True) if rows else ((), ())
    return pa.table(
        {
            WINDOW: pa.array([0] * len(rows), pa.int32()),
            WINDOW_END: pa.array(ends, pa.int64()),
            "__c0_0": pa.array(numbers, pa.int64()),
            RECORDS: pa.array([1.0] * len(rows), pa.float64()),
        }
    )


def finish(sql: str, rows: pa.Table) -> tuple[list[tuple[int, int]], list[str]]:
    around = Around(sql, (), words=(("__c0_0", "clicks"),))
    made, faults = finish_windows(
        replace(JOB, around=around), around, rows, lambda w: ((w[1] - 1) * DAY, w[1] * DAY), str
    )
    assert made.column_names == [WINDOW, WINDOW_END, "n"]
    told = zip(made[WINDOW_END].to_pylist(), made["n"].to_pylist(), strict=True)
    return list(told), [str(fault) for _, fault in faults]


def test_each_window_is_finished_by_itself() -> None:
    rows, _ = finish("SELECT sum(__c0_0)::BIGINT AS n FROM __rows", core((1, 5), (1, 6), (2, 7)))
    assert rows == [(1, 11), (2, 7)]


def test_the_window_is_known() -> None:
    sql = "SELECT epoch(window_end - window_start)::BIGINT AS n FROM __bounds"
    assert finish(sql, core((3, 1)))[0] == [(3, 86_400)]


def test_no_rows_have_the_columns_too() -> None:
    assert finish("SELECT __c0_0 AS n FROM __rows", core()) == ([], [])


def test_a_window_that_fails_is_left_out_and_told_of() -> None:
    sql = "SELECT 12 // __c0_0 AS n FROM __rows"
    rows, faults = finish(sql, core((1, 4), (2, 0), (2, 3), (3, 6)))
    assert rows == [(1, 3), (3, 2)]
    assert faults == [
        "job 'j': the finish failed on the window from 1970-01-02 00:00:00 to 1970-01-03 00:00:00: "
        "Division by zero in expression (12 // clicks); nullif(x, 0) is NULL for zero"
    ]
