"""Consoles without colours in files and pipes; what a process prints is in tests/test_cli.py."""

from __future__ import annotations

import io

import pytest
from rich.text import Text

from muntin.show.terminal import console


def test_a_stream_that_is_no_terminal_gets_no_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    out = io.StringIO()
    console(out).print(Text("a", "bold red"))
    assert out.getvalue() == "a\n"


def test_lines_that_go_into_a_pipe_are_not_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    out = io.StringIO()
    console(out).print("word " * 60)
    assert out.getvalue().count("\n") == 1
