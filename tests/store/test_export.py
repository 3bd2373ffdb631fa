"""Values as text for programs; a table of them beside those for people is in tests/show."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from muntin.store.export import json_text, text

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def test_times_are_told_in_utc() -> None:
    vienna = NOON.astimezone(timezone(timedelta(hours=1)))
    assert text(vienna, pa.timestamp("us")) == "2026-03-01T12:00:00Z"
    assert text(None, pa.string()) == ""
    assert text('say "x"', pa.string()) == 'say "x"'


@given(st.text() | st.integers() | st.floats(allow_nan=False, allow_infinity=False))
def test_programs_read_back_what_was_written(value: Any) -> None:
    assert json.loads(json_text(value, pa.null())) == value
