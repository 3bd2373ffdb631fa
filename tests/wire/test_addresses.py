"""Agents are told by address or in files."""

from __future__ import annotations

from pathlib import Path

import pytest

from muntin.errors import InputError
from muntin.wire.addresses import addresses


def test_files_are_read_each_time(tmp_path: Path) -> None:
    listed = tmp_path / "agents.txt"
    listed.write_text("web01:7070\n# none\n\n  web02:7070  # the second\nweb01:7070\n")
    assert addresses(["db:1", str(listed)]) == ["db:1", "web01:7070", "web02:7070"]
    listed.write_text("web03:7070\n")
    assert addresses([str(listed)]) == ["web03:7070"]


def test_mistakes_are_told(tmp_path: Path) -> None:
    listed = tmp_path / "agents.txt"
    with pytest.raises(InputError, match=r"agents\.txt, which lists agents, cannot be read: No"):
        addresses([str(listed)])
    listed.write_text("web01:7070\nweb02\n")
    with pytest.raises(InputError, match=r"line 2: 'web02' is no address; say host:port"):
        addresses([str(listed)])
