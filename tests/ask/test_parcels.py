"""Answers are the same when they come out of their parcels."""

from __future__ import annotations

import json
from decimal import Decimal

import pyarrow as pa
import pytest

from muntin.ask.answering import PastRows, Range
from muntin.ask.keeping import Read
from muntin.ask.parcels import as_json, packed, unpacked
from muntin.errors import WireError
from muntin.fidelity.score import C2, Missing, Reason

SCORE = C2(Reason.OPEN, 0.5, 1.0, 1.0, 2, ((2, 3), (1, 3)), (Missing("b", "awaited", 3),))
ANSWER = PastRows(
    pa.table({"k": ["a", None], "n": pa.array([Decimal(1), Decimal(2)], pa.decimal128(38, 0))}),
    (Range("j", "now", 0, 60_000_000, 2, SCORE, Read(1, 2, 3, 4, 5, 6, 7)),),
    ("something to say",),
)


def test_an_answer_comes_out_as_it_was() -> None:
    assert unpacked(packed(ANSWER)) == ANSWER
    assert ANSWER.c2.area == 0.5


def test_json_has_rows_ranges_and_notes() -> None:
    told = json.loads(as_json(ANSWER))
    assert told["rows"] == [{"k": "a", "n": 1}, {"k": None, "n": 2}]
    assert told["ranges"][0]["end"] == "1970-01-01T00:01:00+00:00"
    assert told["ranges"][0]["c2"]["missing"] == [{"source": "b", "why": "awaited", "panes": 3}]
    assert told["notes"] == ["something to say"]


def test_other_bytes_are_refused() -> None:
    with pytest.raises(WireError, match="no answer"):
        unpacked(b"nothing of the kind")
