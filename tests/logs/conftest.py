"""A log of two lines, and one who has read them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.logs.reading import Reader, stream


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "app.log"
    path.write_text("one\ntwo\n")
    return path


@pytest.fixture
def reader(tmp_path: Path, log: Path) -> Reader:
    reader = Reader(stream(tmp_path / "*.log"))
    assert reader.read() == ["one", "two"]
    return reader


@pytest.fixture(autouse=True)
def complete_at_once(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Histories of rotation go by faster than files settle."""
    if "TestRotation" in request.node.nodeid:
        monkeypatch.setattr("muntin.logs.register._SETTLED_SECONDS", 0.0)
