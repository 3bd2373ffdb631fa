"""Lists are in the order that is asked for, the same in any pieces, and have a limit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest

from muntin.kernel import lists
from tests.kernel.asking import asked, by_window

ROWS: list[tuple[int, float | None]] = [(3, 1.0), (1, None), (2, 0.5), (3, 0.5), (1, 2.0)]


@pytest.mark.parametrize("pieces", [1, 2, 5])
@pytest.mark.parametrize(
    ("call", "wanted"),
    [
        ("list(x)", [3, 1, 2, 3, 1]),
        ("array_agg(y)", [1.0, None, 0.5, 0.5, 2.0]),
        ("list(x ORDER BY y)", [2, 3, 3, 1, 1]),
        ("list(x ORDER BY y DESC NULLS FIRST)", [1, 1, 3, 2, 3]),
        ("list(x ORDER BY x, y DESC)", [1, 1, 2, 3, 3]),
        ("list(DISTINCT x)", [1, 2, 3]),
        ("list(DISTINCT x ORDER BY x DESC)", [3, 2, 1]),
        ("list(x) FILTER (WHERE y > 0.5)", [3, 1]),
        ("list(x) FILTER (WHERE y > 9)", None),
        ("string_agg(x, '-')", "3-1-2-3-1"),
        ("group_concat(y ORDER BY x)", "2.0,0.5,1.0,0.5"),
        ("listagg(DISTINCT x, ' ')", "1 2 3"),
        ("max(x, 2)", [3, 3]),
        ("min(y, 3)", [0.5, 0.5, 1.0]),
        ("max(x, 100)", [3, 3, 2, 1, 1]),
        ("arg_max(x, y, 2)", [1, 3]),
        ("arg_min(y, x, 2)", [2.0, 0.5]),
        ("approx_top_k(x, 2)", [1, 3]),
        ("approx_top_k(y, 1)", [0.5]),
    ],
)
def test_lists_are_in_order(tmp_path: Path, call: str, wanted: Any, pieces: int) -> None:
    assert asked(tmp_path, call, ROWS, pieces) == wanted


@pytest.mark.parametrize("call", ["list(x)", "string_agg(x)", "list(DISTINCT x)"])
def test_a_list_that_is_too_long_costs_its_row_alone(
    tmp_path: Path, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "MOST_LISTED", 2)
    rows = [(1, 0.0), (2, 0.0), (3, 0.0), (4, 1.0), (5, 1.0)]
    found = asked(tmp_path, call, rows, pieces=2, key="y")
    assert found == {1.0: "4,5" if call.startswith("string") else [4, 5]}


@pytest.mark.parametrize("call", ["list(x)", "max(x, 2)", "stddev(x)", "bit_xor(x)"])
def test_sliding_windows_are_merged_from_panes(tmp_path: Path, call: str) -> None:
    rows = [(n * 7 % 5, 0.0) for n in range(60)]
    found = by_window(tmp_path, call, rows, 20, 3)
    for start, value in found.items():
        inside = [x for x, _ in rows[max(0, start) : start + 20]]
        row = duckdb.execute(f"SELECT {call} FROM (SELECT unnest({inside}) AS x)").fetchone()
        assert row is not None
        assert value == pytest.approx(row[0]) if isinstance(value, float) else value == row[0]
    assert len(found) == 26
