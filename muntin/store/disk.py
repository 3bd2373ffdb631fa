"""What has been written reaches the disk, so that not even a power cut takes it back.

A file that is new needs its folder synced too, or its name may be gone. Syncs wait for the disk and
not for each other, so those that belong together are made side by side.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from muntin.errors import StateError

_SIDE_BY_SIDE = 8
_threads = ThreadPoolExecutor(_SIDE_BY_SIDE, thread_name_prefix="muntin-sync")


def sync(paths: Iterable[Path]) -> None:
    """Returns when all of these files and folders are on disk, as they are now."""
    each = list(dict.fromkeys(paths))
    if len(each) == 1:
        _sync(each[0])
    else:
        list(_threads.map(_sync, each))


def folders(path: Path, upto: Path) -> list[Path]:
    """A folder, those that it is in, and the one that has `upto`: whose names have to be synced."""
    above = [folder for folder in path.parents if folder.is_relative_to(upto)]
    return list(dict.fromkeys((path, *above, upto, upto.parent)))


def _sync(path: Path) -> None:
    try:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        raise StateError(f"{path} cannot be written: {error.strerror}") from error
