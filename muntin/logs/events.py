"""What the file system tells of changes, so that files nobody writes cost nothing.

Events may be missing: file systems of other machines have none, kernels limit how many folders are
watched and drop events that nobody fetches in time. So events only say where to look at once;
all files are looked at now and then, and where an event has been missing, every time.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from watchfiles._rust_notify import RustNotify

_WATCHERS_AT_MOST = 4  # each has a thread, and is asked by itself
_WAIT_MS = 1
# File systems that may change without this machine's kernel knowing.
_REMOTE = frozenset(
    ["nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "lustre", "virtiofs", "vboxsf"]
)


class Events(Protocol):
    """Tells which paths in folders have changed."""

    def watch(self, folders: Collection[str]) -> str | None:
        """Watches these folders from now on; returns why it cannot, if it cannot."""

    def changed(self) -> set[str]:
        """The paths in the folders that have changed since this was last asked."""

    def close(self) -> None:
        """Watches nothing any more."""


class FileEvents:
    """Events of the operating system, through watchfiles. Folders are given by their real paths."""

    def __init__(self) -> None:
        self._watchers: list[RustNotify] = []
        self._folders: set[str] = set()

    def watch(self, folders: Collection[str]) -> str | None:
        from watchfiles._rust_notify import RustNotify  # slow to load, and seldom needed

        wanted = set(folders)
        added = wanted - self._folders
        if len(self._watchers) >= _WATCHERS_AT_MOST and added:
            self.close()
            added = wanted
        self._folders = wanted
        if not added:
            return None
        remote = _remote(added)
        if remote is not None:
            return remote
        there = [folder for folder in sorted(added) if Path(folder).is_dir()]
        try:
            watcher = RustNotify(there, False, False, 0, False, True)
        except UnicodeEncodeError:
            return "a folder has a name that is not UTF-8"
        except (OSError, RuntimeError) as error:
            return f"the system watches no more folders: {error}"
        self._watchers.append(watcher)
        return None

    def changed(self) -> set[str]:
        paths: set[str] = set()
        for watcher in self._watchers:
            try:
                told = watcher.watch(_WAIT_MS, _WAIT_MS, _WAIT_MS, None)
            except RuntimeError:  # of a path that is not UTF-8: anything may have changed
                paths |= self._folders
                continue
            if told == "signal":
                raise KeyboardInterrupt
            if not isinstance(told, str):
                paths.update(path for _, path in told)
        return paths

    def close(self) -> None:
        for watcher in self._watchers:
            watcher.close()
        self._watchers, self._folders = [], set()


def _remote(folders: Collection[str]) -> str | None:
    """Which folder is on a file system that others may change, if the system says so."""
    kinds = _kinds_by_device()
    for folder in folders if kinds else ():
        with suppress(OSError):
            device = Path(folder).stat().st_dev
            kind = kinds.get((os.major(device), os.minor(device)), "")
            if kind in _REMOTE or kind.startswith("fuse."):
                return f"{folder} is on {kind}, which tells of no changes"
    return None


def _kinds_by_device() -> dict[tuple[int, int], str]:
    """The kinds of the file systems that are mounted here (proc_pid_mountinfo(5))."""
    kinds: dict[tuple[int, int], str] = {}
    with suppress(OSError, ValueError):
        for line in Path("/proc/self/mountinfo").read_text().splitlines():
            before, _, after = line.partition(" - ")
            major, minor = before.split()[2].split(":")
            kinds[int(major), int(minor)] = after.split()[0]
    return kinds
