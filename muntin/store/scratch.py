"""Where temporary files are: in a folder of this machine, wherever the state is.

Each run has a folder of its own in there, which goes with it. One that a killed run has left is
removed by the next: it is known by a lock that ends with its process. Nothing else is touched.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from muntin.errors import InputError

_PREFIX = "muntin-"
_LOCK = "in-use"
_VARIABLES = ("TMPDIR", "SPARK_LOCAL_DIRS")


def require_writable(folder: Path) -> None:
    """Refuses a folder that cannot be made, or written to."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        message = f"--local-dir {folder} cannot be written to: {error.strerror}"
        raise InputError(f"{message}; give a folder of this machine") from error


@contextmanager
def keeping_in(folder: Path) -> Iterator[None]:
    """Has this process and all that it starts, Spark too, keep temporary files in a folder."""
    require_writable(folder)
    _sweep(folder)
    own = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=folder.absolute()))
    handle = _locked(own)
    before = {name: os.environ.get(name) for name in _VARIABLES}
    os.environ.update(dict.fromkeys(_VARIABLES, str(own)))
    tempfile.tempdir = None  # so that it is looked up again
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
        tempfile.tempdir = None
        shutil.rmtree(own, ignore_errors=True)
        os.close(handle)


def _locked(own: Path) -> int:
    """Marks a folder as in use, up to the end of this process at the latest.

    The mark has its name only once it is locked: nobody takes it for one that was left.
    """
    handle = os.open(own / f"{_LOCK}.new", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(handle, fcntl.LOCK_EX)
    (own / f"{_LOCK}.new").rename(own / _LOCK)
    return handle


def _sweep(folder: Path) -> None:
    """Removes what runs have left that are gone."""
    for mark in folder.glob(f"{_PREFIX}*/{_LOCK}"):
        try:
            handle = os.open(mark, os.O_RDWR)
        except OSError:  # another's, or just removed
            continue
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(mark.parent, ignore_errors=True)
        except OSError:  # its run is there
            pass
        finally:
            os.close(handle)
