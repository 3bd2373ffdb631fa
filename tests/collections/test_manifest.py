"""What a collection leaves in its folder, and that it is opened as it was left."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from muntin.collections.keys import ByHash, ByRange
from muntin.collections.manifest import Manifest, Written
from muntin.collections.rows import Size
from muntin.errors import StateError

PIECE = Written("a #1", 300, "file:/x/rdd-1", (Size(1, 20), Size(0, 0)))
BY_HASH = Manifest("user", pa.string(), 60_000_000, ByHash(2), {"fields": []}, (PIECE,))
BY_RANGE = Manifest("day", pa.date32(), 60_000_000, ByRange((date(2026, 3, 1),)), None, ())


@pytest.mark.parametrize("manifest", [BY_HASH, BY_RANGE])
def test_what_is_left_is_found(manifest: Manifest, tmp_path: Path) -> None:
    assert Manifest.read(tmp_path, "shop/1") is None
    manifest.write(tmp_path, "shop/1")
    assert Manifest.read(tmp_path, "shop/1") == manifest
    assert [path.name for path in tmp_path.iterdir()] == ["shop%2f1.json"]


BY_TIME = Manifest(
    "at",
    pa.timestamp("us", "UTC"),
    60_000_000,
    ByRange((datetime(2026, 3, 1, tzinfo=UTC),)).typed(pa.timestamp("us", "UTC"), "it"),
    None,
    (),
)


@pytest.mark.parametrize(
    ("left", "given", "message"),
    [
        (
            BY_HASH,
            ("user", 60_000_000, ByHash(3), False),
            "by hash into 2, and now by hash into 3; .* as it was",
        ),
        (
            BY_HASH,
            ("user", 60_000_000, ByRange(("b",)), False),
            r"by hash into 2, and now by range at \['b'\]",
        ),
        (
            BY_HASH,
            ("user", 60_000_000, ByRange((1,)), False),
            r"by hash into 2, and now by range at \[1\], which are not texts",
        ),
        (BY_HASH, ("user", 60_000_000, None, True), "by hash into 2, and now by range; what is"),
        (BY_RANGE, ("day", 60_000_000, ByHash(2), False), r"by range at .*, and now by hash into"),
        (BY_HASH, ("id", 60_000_000, ByHash(2), False), "other key: 'user', and now 'id'"),
        (BY_HASH, ("user", 1_000_000, ByHash(2), False), "steps: 1 minute, and now 1 second"),
    ],
)
def test_what_has_changed_between_runs_is_told(left: Manifest, given: Any, message: str) -> None:
    with pytest.raises(StateError, match=message):
        left.require("it", *given)


def test_what_is_as_it_was_is_taken(tmp_path: Path) -> None:
    BY_HASH.require("it", "user", 60_000_000, ByHash(2), ordered=False)
    BY_RANGE.require("it", "day", 60_000_000, None, ordered=True)
    BY_TIME.write(tmp_path, "x")
    found = Manifest.read(tmp_path, "x")
    assert found is not None
    for zone in (UTC, None, timezone(timedelta(0))):  # what names no zone is UTC
        given = ByRange((datetime(2026, 3, 1, tzinfo=zone),))
        found.require("it", "at", 60_000_000, given, ordered=False)


@pytest.mark.parametrize("text", ["", "{}", '{"version": 2}', "[1]"])
def test_what_cannot_be_read_is_told(text: str, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(StateError, match=r"x.json cannot be read .*; take this folder away"):
        Manifest.read(tmp_path, "x")
