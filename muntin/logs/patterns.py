"""File patterns: `*` within a path part, `{source}` for the part that names the server.

A file of a pattern without `{source}` is a source of its own, named by its path below the
folder that all patterns of the stream share: two growing files must never make each other's
records late.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

_SOURCE = "{source}"


class PathPattern:
    def __init__(self, text: str, below: Path | None = None) -> None:
        if not Path(text).name:
            raise ValueError("the file pattern names no file")
        if text.count(_SOURCE) > 1:
            raise ValueError("the file pattern names {source} more than once")
        if re.search(r"[{}]", text.replace(_SOURCE, "")):
            raise ValueError("the file pattern may only hold {source} in braces")
        if "**" in text:
            raise ValueError("'**' is not possible; '*' matches within one path part")
        self.text = text
        parts = Path(text).parts
        wild = next((i for i, p in enumerate(parts) if "*" in p or _SOURCE in p), len(parts) - 1)
        self.root = Path(*parts[:wild]) if wild else Path()
        self._below = self.root if below is None else below
        self._parts = parts[wild:]
        self._regex = re.compile("/".join(_part_regex(part) for part in self._parts))

    def find(self) -> Iterator[tuple[Path, str]]:
        """Every file that matches now, with its source, in the order of names."""
        for path in sorted(self._walk(self.root, self._parts)):
            source = self.source_of(path)
            if source is not None:
                yield path, source

    def source_of(self, path: Path) -> str | None:
        """The source a path belongs to, or None where the pattern does not match."""
        if not path.is_relative_to(self.root):
            return None
        match = self._regex.fullmatch(path.relative_to(self.root).as_posix())
        if match is None:
            return None
        if _SOURCE in self.text:
            return match["source"]
        below = path.is_relative_to(self._below)
        return (path.relative_to(self._below) if below else path).as_posix()

    def _walk(self, folder: Path, parts: tuple[str, ...]) -> Iterator[Path]:
        glob = parts[0].replace("[", "[[]").replace(_SOURCE, "*")
        for path in folder.glob(glob):
            if len(parts) > 1:
                if path.is_dir():
                    yield from self._walk(path, parts[1:])
            elif path.is_file():
                yield path


def path_patterns(texts: Sequence[str]) -> list[PathPattern]:
    """The patterns of one stream, which give no two files the same name by chance."""
    roots = [PathPattern(text).root for text in texts]
    mixed = len({root.is_absolute() for root in roots}) > 1
    below = Path() if mixed else Path(os.path.commonpath(roots))
    return [PathPattern(text, below) for text in texts]


def described(texts: Sequence[str]) -> str:
    """The patterns as a message names them, with the folder that relative ones start from."""
    quoted = " or ".join(f"'{text}'" for text in texts)
    relative = any(not Path(text).is_absolute() for text in texts)
    return f"{quoted} in {Path.cwd()}" if relative else quoted


def _part_regex(part: str) -> str:
    pieces = re.split(r"(\*|\{source\})", part)
    named = {"*": "[^/]*", _SOURCE: "(?P<source>[^/]+)"}
    return "".join(named.get(piece) or re.escape(piece) for piece in pieces)
