"""Who uses a state folder: one process at a time, as long as the folder is there.

Loads nothing that takes long, so that a folder in use is refused before anything is begun.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

from muntin.errors import MuntinError, StateError

_LOCK = "lock"


class StateHold:
    """A state folder that this process holds. Its queries share it; other processes are refused."""

    def __init__(self, state: Path, alone: bool = False) -> None:
        """`alone` refuses a folder that this process holds already."""
        self._state = state.absolute()
        self._key = state.resolve()
        with _holding:
            handle, count = _held.get(self._key, (None, 0))
            if alone and handle is not None:
                raise StateError(_in_use(state, f"process {os.getpid()}"))
            self._handle = handle if handle is not None else _lock(state)
            _held[self._key] = self._handle, count + 1
        self._released = False

    def require_there(self) -> None:
        """Refuses to go on once the folder was removed, or another one is in its place."""
        try:
            found = (self._state / _LOCK).stat()
        except OSError:
            found = None
        if found is None or not os.path.samestat(found, os.fstat(self._handle)):
            raise StateError(
                f"the state folder {self._state} was removed or replaced while this run "
                "used it, so the run stops; start it again, which reads the logs from where the "
                "state that is there then says"
            )

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Looks for the folder first, and again after an error, which then has another reason."""
        self.require_there()
        try:
            yield
        except MuntinError:
            self.require_there()
            raise

    def release(self) -> None:
        """Lets go, once; the last one to do so frees the folder."""
        with _holding:
            if self._released:
                return
            self._released = True
            handle, count = _held.pop(self._key)
            if count > 1:
                _held[self._key] = handle, count - 1
            else:
                os.close(handle)


_holding = Lock()
_held: dict[Path, tuple[int, int]] = {}  # the locks of this process, and how many hold each


@contextmanager
def locked(state: Path) -> Iterator[StateHold]:
    """Holds a state folder for one run alone."""
    hold = StateHold(state, alone=True)
    try:
        yield hold
    finally:
        hold.release()


def require_free(state: Path) -> None:
    """Refuses a state folder that is in use or unusable, before anything expensive is begun.

    Makes nothing that is not there.
    """
    require_usable(state)
    if (state / _LOCK).exists():
        with locked(state):
            pass
    else:
        _require_folder(state)


def require_usable(state: Path) -> None:
    """Refuses a state folder whose name is no text, as result tables are named by URLs; one of
    another program; and one that has a file where a folder is needed.
    """
    try:
        str(state.absolute()).encode()
    except UnicodeEncodeError:
        reason = "its name is not UTF-8, which result tables need; give another --state"
        raise StateError(_unusable(state, reason)) from None
    foreign = _foreign(state)
    if foreign is not None:
        reason = f"{foreign} is none of a state's files; give a folder of its own, or a new one"
        raise StateError(_unusable(state, reason))
    for folder in (state / "streams", state / "results"):
        inside = folder.iterdir() if folder.is_dir() else ()
        for path in (folder, *inside):
            if path.is_file():
                reason = f"{path} is a file, where a state has a folder; move it away"
                raise StateError(_unusable(state, reason))


def _foreign(state: Path) -> Path | None:
    """Something in a folder that was never a state: it belongs to somebody else."""
    try:
        names = {path.name for path in state.iterdir()} - {"lost+found"}
    except OSError:
        return None  # told of when it is used
    known = names & {_LOCK, "streams", "results"}
    return None if known or not names else state / min(names)


def _require_folder(state: Path) -> None:
    """Refuses a state folder that could not be made."""
    there = next(path for path in (state.absolute(), *state.absolute().parents) if path.exists())
    if not there.is_dir():
        raise StateError(_unusable(state, f"{there} is no folder"))
    if not os.access(there, os.W_OK | os.X_OK):
        raise StateError(_unusable(state, f"{there} cannot be written to"))


def _lock(state: Path) -> int:
    """The open lock of a state folder, which no other process has."""
    require_usable(state)
    try:
        state.mkdir(parents=True, exist_ok=True)
        handle = os.open(state / _LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise StateError(_unusable(state, f"{error.filename}: {error.strerror}")) from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        pid = os.pread(handle, 20, 0).decode(errors="replace").strip()
        os.close(handle)
        raise StateError(_in_use(state, f"process {pid}" if pid else "another muntin")) from None
    os.truncate(handle, 0)
    os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
    return handle


def _in_use(state: Path, holder: str) -> str:
    return f"the state folder {state} is in use by {holder}; stop it, or use another --state"


def _unusable(state: Path, why: str) -> str:
    return f"the state folder {state} cannot be used: {why}"
