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


@pytest.mark.parametrize("pieces", [1, 3])
@pytest.mark.parametrize("call", ["list(x)", "string_agg(x)", "list(DISTINCT x)"])
def test_a_list_that_is_too_long_ends_there_with_a_note(
    tmp_path: Path, call: str, pieces: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "MOST_LISTED", 2)
    rows = [(1, 0.0), (2, 0.0), (3, 0.0), (4, 1.0), (5, 1.0)]
    notes: list[str] = []
    found = asked(tmp_path, call, rows, pieces, key="y", note=notes.append)
    texts = call.startswith("string")
    assert found == {0.0: "1,2" if texts else [1, 2], 1.0: "4,5" if texts else [4, 5]}
    name = call.partition("(")[0]
    assert notes == [
        f"job 'j': {name} of the window from 1970-01-01 00:00:00 to 1970-01-02 00:00:00, y = 0.0 "
        f"ends after 2 of 3 values; {name}(x ORDER BY y LIMIT n) takes more or fewer"
    ]


@pytest.mark.parametrize(
    ("call", "wanted"),
    [
        ("list(x LIMIT 2)", [3, 1]),
        ("list(x ORDER BY y DESC, x LIMIT 3)", [1, 3, 2]),
        ("string_agg(x, '-' ORDER BY x LIMIT 2)", "1-1"),
        ("array_agg(DISTINCT x ORDER BY x DESC LIMIT 2)", [3, 2]),
        ("list(x ORDER BY y LIMIT 100)", [2, 3, 3, 1, 1]),
    ],
)
def test_a_limit_that_is_asked_for_is_not_told_of(tmp_path: Path, call: str, wanted: Any) -> None:
    assert asked(tmp_path, call, ROWS, 3, note=pytest.fail) == wanted


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
