"""Consoles without colours in files and pipes; what a process prints is in tests/test_cli.py."""

from __future__ import annotations

import io

import pytest
from rich.text import Text

from muntin.show.terminal import console


@pytest.mark.parametrize("width", [None, 1000])
def test_a_stream_that_is_no_terminal_gets_no_colours(
    monkeypatch: pytest.MonkeyPatch, width: int | None
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    out = io.StringIO()
    plain = console(out, width)
    plain.print(Text("a", "bold red"))
    assert out.getvalue() == "a\n"
    assert width is None or plain.width == width
