"""The folders in which files of a stream may change, watched through the system's events.

Patterns name files by paths that may lead through links; events name real paths. Here one is
turned into the other.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from muntin.logs.events import Events
from muntin.logs.patterns import PathPattern, Walk

_HOPS_AT_MOST = 8  # of links to links


class Folders:
    """Tells which files have changed, as long as events can be trusted."""

    def __init__(self, patterns: Sequence[PathPattern], events: Events) -> None:
        self._events = events
        self._roots = {str(pattern.root): _identity(str(pattern.root)) for pattern in patterns}
        self._aliases: dict[str, set[str]] = {}  # real folder -> as paths of files name it
        self._links: dict[str, set[str]] = {}  # real path -> files that are links by way of it
        self._real: dict[str, tuple[tuple[int, int] | None, str]] = {}
        self._watched: set[str] = set()  # folders, as paths of files name them
        self._stale = True  # whether files may have come to folders before these were watched
        self._untold: set[str] = set()  # files whose change no event has told of yet

    def changed(self) -> set[str] | None:
        """Paths of files that may have changed since this was last asked; None: any of them."""
        told = self._events.changed()
        names: set[str] = set()
        anything, self._stale = self._stale, False
        for root, known in self._roots.items():
            now = _identity(root)
            if now != known:
                self._roots[root], anything = now, True
        for path in told:
            folder, name = os.path.split(path)
            anything |= path in self._aliases or os.path.isdir(path)  # noqa: PTH112
            names.update(_join(alias, name) for alias in self._aliases.get(folder, ()))
            names.update(self._links.get(path, ()))
        self._untold -= names
        return None if anything else names

    def follow(self, walks: Sequence[Walk], others: Iterable[str]) -> str | None:
        """Watches the folders of all files that were found, and of `others` that are not matched.

        Returns why that cannot be, if it cannot.
        """
        before, self._aliases, self._links = set(self._aliases), {}, {}
        folders = {folder for walk in walks for folder in walk.folders}
        folders |= {_folder(path) for path in others}
        for folder in folders:
            if _identity(folder) is not None:
                self._aliases.setdefault(self._resolved(folder), set()).add(folder)
        for link in (link for walk in walks for link in walk.links):
            for hop in _hops(link):
                self._links.setdefault(hop, set()).add(link)
                self._aliases.setdefault(_folder(hop), set())
        self._stale = bool(set(self._aliases) - before)
        self._watched = {alias for aliases in self._aliases.values() for alias in aliases}
        return self._events.watch(self._aliases)

    def expect(self, paths: Collection[str]) -> str | None:
        """Takes files that have changed, of which events must have told or be about to.

        Returns why events are of no use, if those expected before have not come.
        """
        untold = min(self._untold, default=None)
        self._untold = {path for path in paths if _folder(path) in self._watched}
        return None if untold is None else f"nothing told of a change to {untold}"

    def know(self, paths: Iterable[str]) -> None:
        """Takes files that were found by themselves, perhaps where nobody watches yet."""
        links = {link for several in self._links.values() for link in several}
        self._stale |= any(
            _folder(path) not in self._watched or (os.path.islink(path) and path not in links)  # noqa: PTH114
            for path in paths
        )

    def close(self) -> None:
        self._events.close()

    def _resolved(self, folder: str) -> str:
        """The real path of a folder, which is looked up again when it is another folder."""
        identity = _identity(folder)
        known = self._real.get(folder)
        if known is None or known[0] != identity:
            known = self._real[folder] = identity, os.path.realpath(folder)
        return known[1]


def _folder(path: str) -> str:
    return os.path.dirname(path) or "."  # noqa: PTH120


def _identity(folder: str) -> tuple[int, int] | None:
    with suppress(OSError):
        stat = os.stat(folder)  # noqa: PTH116
        return stat.st_dev, stat.st_ino
    return None


def _join(folder: str, name: str) -> str:
    return name if folder == "." else f"{folder.rstrip('/')}/{name}"


def _hops(link: str) -> list[str]:
    """The real paths by way of which a link leads to its file, the file's own included."""
    hops: list[str] = []
    at = link
    for _ in range(_HOPS_AT_MOST):
        folder, name = os.path.split(at)
        at = os.path.join(os.path.realpath(folder or "."), name)  # noqa: PTH118
        hops.append(at)
        try:
            at = str(Path(at).parent / os.readlink(at))  # noqa: PTH115
        except OSError:
            break
    return hops
