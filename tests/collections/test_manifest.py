"""What a collection leaves in its folder, and that it is opened as it was left."""

from __future__ import annotations

from datetime import date
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


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            ("user", 60_000_000, ByHash(3), None),
            "by hash into 2, and now by hash into 3; .* as it was",
        ),
        (("user", 60_000_000, ByRange((1,)), None), r"by hash into 2, and now by range at \[1\]"),
        (("id", 60_000_000, None, None), "with other key: 'user', and now 'id'"),
        (("user", 1_000_000, None, None), "with other steps: 1 minute, and now 1 second"),
        (("user", 60_000_000, None, pa.int64()), "with other keys: texts, and now whole numbers"),
    ],
)
def test_what_has_changed_between_runs_is_told(given: Any, message: str) -> None:
    with pytest.raises(StateError, match=message):
        BY_HASH.require("it", *given)


def test_what_is_as_it_was_is_taken() -> None:
    BY_HASH.require("it", "user", 60_000_000, ByHash(2), None)
    BY_HASH.require("it", "user", 60_000_000, None, pa.string())


@pytest.mark.parametrize("text", ["", "{}", '{"version": 2}', "[1]"])
def test_what_cannot_be_read_is_told(text: str, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(StateError, match=r"x.json cannot be read .*; take this folder away"):
        Manifest.read(tmp_path, "x")
