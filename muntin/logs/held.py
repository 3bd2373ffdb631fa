"""Files that are kept open, so that it is known what one had got when its name was removed.

Nobody can look at a file without a name. Of one that is open the size can still be told, and so
whether all of it was read.
"""

from __future__ import annotations

import os
import resource
from contextlib import suppress
from weakref import finalize

from muntin.logs.files import Key
from muntin.logs.sightings import Sighting


class Held:
    """Open files, of which those that were written last are kept if they become too many."""

    def __init__(self, most: int | None = None) -> None:
        """At most a quarter of the files that the process may have open, unless it is told."""
        allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4
        self._most = allowed if most is None else most
        self._open: dict[Key, int] = {}
        self._modified: dict[Key, int] = {}
        finalize(self, _close, self._open)

    def keep(self, f: Sighting) -> None:
        """Keeps a file open from now on, or takes that it was written."""
        if f.key not in self._open:
            with suppress(OSError):  # whoever reads it tells why
                number = os.open(f.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
                self._open[f.key] = number
                stat = os.fstat(number)
                if (stat.st_dev, stat.st_ino) != f.key:
                    self.let_go(f.key)
                    return
        self._modified[f.key] = f.modified
        if len(self._open) > self._most:
            self.let_go(min(self._open, key=lambda key: self._modified[key]))

    def last_size(self, key: Key) -> int | None:
        """How large a file was when its name was removed, if that is known: it was kept open."""
        number = self._open.get(key)
        if number is None:
            return None
        try:
            stat = os.fstat(number)
        except OSError:  # of a file system that is gone too
            return None
        return stat.st_size if stat.st_nlink == 0 else None

    def let_go(self, key: Key) -> None:
        self._modified.pop(key, None)
        number = self._open.pop(key, None)
        if number is not None:
            os.close(number)


def _close(files: dict[Key, int]) -> None:
    for number in files.values():
        os.close(number)
