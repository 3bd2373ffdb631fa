"""File patterns: `*` within a path part, `{source}` for the part that names the server.

A file of a pattern without `{source}` is a source of its own, named by its path below the
folder that all patterns of the stream share: two growing files must never make each other's
records late.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from stat import S_ISDIR, S_ISREG

from muntin.errors import as_text
from muntin.logs.files import is_absence

_SOURCE = "{source}"


@dataclass
class Walk:
    """What one search has found: files with their sources, links among these, and folders."""

    files: list[tuple[str, str]] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)
    in_place: list[str] = field(default_factory=list)  # folders where the pattern has files
    denied: list[Denied] = field(default_factory=list)


@dataclass(frozen=True)
class Denied:
    """What cannot be looked at, the source it belongs to or else its own name, and why."""

    path: str
    source: str
    reason: str


class PathPattern:
    def __init__(
        self, text: str, below: Path | None = None, source: str | None = None, before: str = ""
    ) -> None:
        """Files are sources of their own, or all of them `source`, if the text names none.

        What sources are called begins with what stands `before` them.
        """
        if not Path(text).name:
            raise ValueError("the file pattern names no file")
        if text.count(_SOURCE) > 1:
            raise ValueError("the file pattern names {source} more than once")
        if re.search(r"[{}]", text.replace(_SOURCE, "")):
            raise ValueError("the file pattern may only hold {source} in braces")
        if "**" in text:
            raise ValueError("'**' is not possible; '*' matches within one path part")
        self.text = text
        self._source = source
        self._before = before
        names = Path(text).parts
        wild = next((i for i, p in enumerate(names) if "*" in p or _SOURCE in p), len(names) - 1)
        self.root = Path(*names[:wild]) if wild else Path()
        self._below = self.root if below is None else below
        self._names = names[wild:]
        self._regex = re.compile("/".join(_name_regex(name) for name in self._names))
        self._wild = [
            re.compile(_name_regex(name)) if "*" in name or _SOURCE in name else None
            for name in self._names
        ]

    def find(self) -> Iterator[tuple[Path, str]]:
        """Every file that matches now, with its source, in the order of names."""
        for path, source in self.walk().files:
            yield Path(path), source

    def walk(self) -> Walk:
        """The same with paths as text, the folders that were looked into, and links among files."""
        walk = Walk()
        self._look_into(str(self.root), 0, walk)
        return walk

    def source_of(self, path: Path) -> str | None:
        """The source a path belongs to, or None where the pattern does not match."""
        if not path.is_relative_to(self.root):
            return None
        match = self._regex.fullmatch(path.relative_to(self.root).as_posix())
        if match is None:
            return None
        if _SOURCE in self.text:
            return self._before + as_text(match["source"])
        if self._source is not None:
            return self._before + self._source
        below = path.is_relative_to(self._below)
        return self._before + as_text((path.relative_to(self._below) if below else path).as_posix())

    def _look_into(self, folder: str, depth: int, walk: Walk) -> None:
        walk.folders.append(folder)
        last = depth + 1 == len(self._names)
        try:
            matching = self._matching(folder, depth)
        except OSError as error:
            if not is_absence(error):
                reason = error.strerror or str(error)
                walk.denied.append(Denied(folder, self._folder_source(folder, depth), reason))
            return
        for name, is_folder, is_file, is_link in matching:
            path = name if folder == "." else f"{folder.rstrip('/')}/{name}"
            if last and is_file:
                walk.files.append((path, self._source_named(path)))
                walk.links += [path] if is_link else []
            elif last and is_folder:
                walk.in_place.append(path)
            elif is_folder:
                self._look_into(path, depth + 1, walk)

    def _matching(self, folder: str, depth: int) -> list[tuple[str, bool, bool, bool]]:
        """What of a folder matches one part: its name, and what it is behind its links."""
        regex, matches = self._wild[depth], []
        if regex is None:
            name, path = self._names[depth], os.path.join(folder, self._names[depth])  # noqa: PTH118
            mode = os.stat(path).st_mode  # noqa: PTH116
            return [(name, S_ISDIR(mode), S_ISREG(mode), os.path.islink(path))]  # noqa: PTH114
        with os.scandir(folder) as entries:
            for entry in entries:
                if regex.fullmatch(entry.name):
                    with suppress(OSError):
                        kind = entry.is_dir(), entry.is_file(), entry.is_symlink()
                        matches.append((entry.name, *kind))
        return sorted(matches)

    def _folder_source(self, folder: str, depth: int) -> str:
        """The source of all files in a folder, or the folder's own name if that is not told."""
        inside = _below(str(self.root), folder)
        match = re.fullmatch("/".join(map(_name_regex, self._names[:depth])), inside)
        if match is not None and "source" in match.re.groupindex:
            return self._before + as_text(match["source"])
        return self._before + as_text(f"{_below(str(self._below), folder).rstrip('/')}/")

    def _source_named(self, path: str) -> str:
        """The same as `source_of` for a path that a walk has found."""
        if _SOURCE in self.text:
            match = self._regex.fullmatch(_below(str(self.root), path))
            assert match is not None  # as each of its parts has
            return self._before + as_text(match["source"])
        if self._source is not None:
            return self._before + self._source
        return self._before + as_text(_below(str(self._below), path))


def path_patterns(
    texts: Sequence[str], source: str | None = None, before: str = ""
) -> list[PathPattern]:
    """The patterns of one stream, which give no two files the same name by chance."""
    roots = [PathPattern(text).root for text in texts]
    mixed = len({root.is_absolute() for root in roots}) > 1
    below = Path() if mixed else Path(os.path.commonpath(roots))
    return [PathPattern(text, below, source, before) for text in texts]


def described(texts: Sequence[str]) -> str:
    """The patterns as a message names them, with the folder that relative ones start from."""
    quoted = " or ".join(f"'{text}'" for text in texts)
    relative = any(not Path(text).is_absolute() for text in texts)
    return f"{quoted} in {Path.cwd()}" if relative else quoted


def unmatched(patterns: Sequence[PathPattern]) -> str:
    """What is known of why patterns match nothing, to follow the words that say so."""
    told = []
    for pattern in patterns:
        walk = pattern.walk()
        told += [f"{denied.path} cannot be read: {denied.reason}" for denied in walk.denied]
        if walk.in_place:
            inside = f"'{pattern.text}/*.log'"
            told.append(f"{walk.in_place[0]} is a folder; name the files in it, as in {inside}")
        elif pattern.text.startswith("~"):
            told.append("'~' stands for itself; write out the folder that is meant")
        elif not walk.denied and not pattern.root.exists():
            told.append(f"there is no folder {pattern.root}")
    return "".join(f"; {each}" for each in dict.fromkeys(told))


def _below(folder: str, path: str) -> str:
    """A path as it is called in a folder, or all of it if it is not in there."""
    inside = folder.rstrip("/") + "/"
    return path.removeprefix(inside) if folder != "." else path


def _name_regex(name: str) -> str:
    tokens = re.split(r"(\*|\{source\})", name)
    named = {"*": "[^/]*", _SOURCE: "(?P<source>[^/]+)"}
    return "".join(named.get(token) or re.escape(token) for token in tokens)
