"""Consoles to print on. Colours are for terminals alone, whatever the environment asks for.

On a terminal NO_COLOR turns them off. What goes into a file or a pipe is not broken into lines:
somebody may search it.
"""

from __future__ import annotations

import os
import sys
from typing import TextIO

from rich.console import Console
from rich.table import Table

_UNBOUND = 1_000_000  # places, more than any line has
_UNCUT = 1000  # places of a line in a file or a pipe; a table may be told line by line beyond that


def console(out: TextIO) -> Console:
    """A console on a stream."""
    return Console(file=out, highlight=False, width=_width(out), force_terminal=_is_terminal(out))


def fits(table: Table, console: Console) -> bool:
    """Whether a console has room for a table of which nothing is broken into lines."""
    unbound = console.options.update(max_width=_UNBOUND)
    return console.measure(table, options=unbound).maximum <= console.width


def messages() -> Console:
    """A console for what is not output, wherever standard error goes when it is used."""
    to = sys.stderr
    return Console(stderr=True, highlight=False, width=_width(to), force_terminal=_is_terminal(to))


def keep_help_plain() -> None:
    """Has the help of options, which Typer prints, follow the same rule."""
    if not (sys.stdout.isatty() and sys.stderr.isatty()):
        os.environ["_TYPER_FORCE_DISABLE_TERMINAL"] = "1"


def _width(out: TextIO) -> int | None:
    """None where Rich finds out how much room there is."""
    return None if out.isatty() else _UNCUT


def _is_terminal(out: TextIO) -> bool | None:
    """Rich finds out itself what a terminal can do."""
    return None if out.isatty() else False
