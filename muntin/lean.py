"""Processes that stay beside others for months, with nothing in them that they do not need.

The command line has libraries for options and tables, and Arrow and DuckDB load pandas wherever it
is installed: a third of an agent's memory, for nothing. So `muntin agent` and `muntin relay` end by
becoming another program, with the same process id.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any, NoReturn

from muntin.errors import MuntinError, as_text

Options = Mapping[str, Any]  # values of JSON

# One heap for all threads, Arrow's memory in it too: what one has freed, another takes.
_MEMORY = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "1"}


def become(module: str, options: Options) -> NoReturn:
    """Goes on as `python -m module`, which is given the options by `started`."""
    here = Path.cwd() in [Path(folder).absolute() for folder in sys.path]
    words = [sys.executable, *([] if here else ["-P"]), "-m", module, json.dumps(options)]
    os.execve(sys.executable, words, {**_MEMORY, **os.environ})


def started(serve: Callable[[Options], None]) -> None:
    """Serves with the options that were given; errors of ours are a message."""
    try:
        serve(json.loads(sys.argv[1]))
    except MuntinError as error:
        _tell("error:", "1;31", str(error))
        sys.exit(1)


def note(text: str) -> None:
    """Something a user should know."""
    _tell("note:", "33", text)


def hide(modules: Sequence[str]) -> None:
    """From here on these seem not to be installed, to whoever would load them if they are."""
    sys.meta_path.insert(0, _Hidden(frozenset(modules)))


class _Hidden:
    def __init__(self, modules: frozenset[str]) -> None:
        self._modules = modules

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name in self._modules:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None


def _tell(word: str, colour: str, text: str) -> None:
    """The word is in colour on a terminal, as on the command line."""
    if sys.stderr.isatty() and not os.environ.get("NO_COLOR"):
        word = f"\x1b[{colour}m{word}\x1b[0m"
    print(word, as_text(text), file=sys.stderr, flush=True)
