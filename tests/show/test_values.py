"""Values as text: all digits for programs, few words for people."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from muntin.show.values import cell_text, score_text, window_text
from muntin.store.export import json_text

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("start", "end", "shown"),
    [
        (NOON, NOON + timedelta(minutes=1), "2026-03-01 12:00:00 – 12:01:00"),
        (NOON, NOON + timedelta(days=1), "2026-03-01 12:00:00 – 2026-03-02 12:00:00"),
        (
            NOON,
            NOON + timedelta(milliseconds=250),
            "2026-03-01 12:00:00 – 12:00:00.25",
        ),
        (0, 1_000_000, "0 – 1,000,000"),
    ],
)
def test_windows_in_few_words(start: Any, end: Any, shown: str) -> None:
    assert window_text(start, end) == shown


@pytest.mark.parametrize(
    ("value", "kind", "machine", "people"),
    [
        (None, pa.int64(), "null", ""),
        (True, pa.bool_(), "true", "true"),
        (1234567, pa.int64(), "1234567", "1,234,567"),
        (0.1 + 0.2, pa.float64(), "0.30000000000000004", "0.3"),
        (12345.678, pa.float64(), "12345.678", "12,346"),
        (float("nan"), pa.float64(), '"NaN"', "NaN"),
        (float("inf"), pa.float64(), '"Infinity"', "Infinity"),
        (float("-inf"), pa.float64(), '"-Infinity"', "-Infinity"),
        ([float("nan"), 1.5], pa.list_(pa.float64()), '["NaN", 1.5]', '["NaN", 1.5]'),
        (Decimal("1E+3"), pa.decimal128(10, 2), "1000", "1000"),
        (NOON, pa.timestamp("us", "UTC"), '"2026-03-01T12:00:00Z"', "2026-03-01T12:00:00Z"),
        (date(2026, 3, 1), pa.date32(), '"2026-03-01"', "2026-03-01"),
        (b"\0", pa.binary(), '"AA=="', "AA=="),
        ("a\x1b", pa.string(), '"a\\u001b"', "a\\x1b"),
        ([(1, 2)], pa.map_(pa.int64(), pa.int64()), '{"1": 2}', '{"1": 2}'),
        ({"a": None}, pa.struct({"a": pa.int64()}), '{"a": null}', '{"a": null}'),
        ([1, None], pa.list_(pa.int64()), "[1, null]", "[1, null]"),
    ],
)
def test_values(value: Any, kind: pa.DataType, machine: str, people: str) -> None:
    assert json_text(value, kind) == machine
    assert cell_text(value, kind) == people


def test_scores_say_why_a_window_left_if_it_is_not_complete() -> None:
    c2: dict[str, Any] = {"area": 1.0, "time": 1.0, "space": 1.0, "reason": "complete"}
    assert score_text(c2) == "100 %"
    assert score_text(c2 | {"area": 0.25, "reason": "deadline"}) == "25 % deadline"
    missing = [{"source": "web-1", "panes": 3, "why": "dead"}]
    detail = c2 | {"area": 0.25, "sources": 2, "panes": [1, 0], "missing": missing}
    detail["records"] = [{"source": "web-2", "panes": [1200, 0]}]
    assert score_text(detail) == (
        "25 % complete, time 100 %, space 100 % of 2, panes 1 0, missing web-1 3 dead, "
        "records web-2 1200 0"
    )
