"""Who uses a state: one process at a time, as long as it is there.

Loads nothing that takes long, so that a folder in use is refused before anything is begun.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Protocol, cast

from muntin.errors import MuntinError, StateError
from muntin.store.holder import Holder
from muntin.store.storage import LocalFolder, Place, Storage, storage_of

if TYPE_CHECKING:
    from muntin.store.objects import ObjectStorage

_LOCK = "lock"
_MOST_TOLD = 200  # bytes of who holds a folder
_LOOK_SECONDS = 0.5  # for which who takes a lock waits for those who only look


class Held(Protocol):
    """What keeps other processes out."""

    def require_there(self) -> None:
        """Refuses to go on once the state is gone, or another's."""

    def close(self) -> None:
        """Lets others have it."""


class StateHold:
    """A state that this process holds. Its queries share it; other processes are refused."""

    def __init__(self, state: Place, alone: bool = False) -> None:
        """`alone` refuses a state that this process holds already."""
        storage = storage_of(state)
        self._key = _key(storage)
        with _holding:
            held, count = _held.get(self._key, (None, 0))
            if alone and held is not None:
                raise StateError(_in_use(storage, str(Holder.own())))
            self._held = held if held is not None else _taken(storage)
            _held[self._key] = self._held, count + 1
        self._released = False

    def require_there(self) -> None:
        """Refuses to go on once the state is gone, or another's."""
        self._held.require_there()

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
            held, count = _held.pop(self._key)
            if count > 1:
                _held[self._key] = held, count - 1
            else:
                held.close()


class _Lock:
    """The lock of a folder, which is a file in it."""

    def __init__(self, state: Path) -> None:
        self._state = state.absolute()
        require_usable(state)
        self._handle = take_lock(state, _LOCK, str(Holder.own()))

    def require_there(self) -> None:
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

    def close(self) -> None:
        os.close(self._handle)


_holding = Lock()
_held: dict[str, tuple[Held, int]] = {}  # the states of this process, and how many hold each


def _key(storage: Storage) -> str:
    if isinstance(storage, LocalFolder):
        return str(storage.path().resolve())
    return storage.where()


def _taken(storage: Storage) -> Held:
    if isinstance(storage, LocalFolder):
        return _Lock(storage.path())
    from muntin.store.lease import Lease

    return Lease(cast("ObjectStorage", storage))


@contextmanager
def locked(state: Place) -> Iterator[StateHold]:
    """Holds a state folder for one run alone."""
    hold = StateHold(state, alone=True)
    try:
        yield hold
    finally:
        hold.release()


def require_free(state: Place) -> None:
    """Refuses a state that is in use or unusable, before anything expensive is begun.

    Makes nothing that is not there.
    """
    storage = storage_of(state)
    if not isinstance(storage, LocalFolder):
        from muntin.store import lease

        with _holding:
            if _key(storage) in _held:
                raise StateError(_in_use(storage, str(Holder.own())))
        lease.require_free(cast("ObjectStorage", storage))
        return
    require_usable(storage)
    lock = storage.path() / _LOCK
    if not lock.exists():
        _require_folder(storage.path())
    elif (holder := _holder_of(lock)) is not None:
        raise StateError(_in_use(storage.path(), holder))
    elif not os.access(lock, os.W_OK):
        raise StateError(_unusable(storage.path(), f"{lock} cannot be written to"))


def _holder_of(lock: Path) -> str | None:
    """Who has a lock, if somebody does. It is not written to, and shared for a moment at most."""
    try:
        handle = os.open(lock, os.O_RDONLY)
    except OSError as error:
        raise StateError(_unusable(lock.parent, f"{lock}: {error.strerror}")) from error
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _told_in(handle)
    finally:
        os.close(handle)
    return None


def _told_in(handle: int) -> str:
    told = os.pread(handle, _MOST_TOLD, 0).decode(errors="replace").strip()
    return told or "another muntin"


def require_usable(place: Place) -> None:
    """Refuses a state folder whose name is no text, as result tables are named by URLs; one of
    another program; and one that has a file where a folder is needed.
    """
    storage = storage_of(place)
    if not isinstance(storage, LocalFolder):
        return
    state = storage.path()
    try:
        str(state.absolute()).encode()
    except UnicodeEncodeError:
        reason = "its name is not UTF-8, which result tables need; give another --state"
        raise StateError(_unusable(state, reason)) from None
    require_own(state, {_LOCK, "streams", "results"}.__contains__)
    for folder in (state / "streams", state / "results"):
        inside = folder.iterdir() if folder.is_dir() else ()
        for path in (folder, *inside):
            if path.is_file():
                reason = f"{path} is a file, where a state has a folder; move it away"
                raise StateError(_unusable(state, reason))


def _require_folder(state: Path) -> None:
    """Refuses a state folder that could not be made."""
    there = next(path for path in (state.absolute(), *state.absolute().parents) if path.exists())
    if not there.is_dir():
        raise StateError(_unusable(state, f"{there} is no folder"))
    if not os.access(there, os.W_OK | os.X_OK):
        raise StateError(_unusable(state, f"{there} cannot be written to"))


def take_lock(folder: Path, name: str, holder: str) -> int:
    """The open file of that name, which no other process has; the folder is made if need be.

    Others are told who holds it. It is let go when the file is closed, or the process ends.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder / name, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise StateError(_unusable(folder, f"{error.filename}: {error.strerror}")) from error
    until = time.monotonic() + _LOOK_SECONDS
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if time.monotonic() < until:  # somebody may just be looking who has it
                time.sleep(_LOOK_SECONDS / 10)
                continue
            other = _told_in(handle)
            os.close(handle)
            raise StateError(_in_use(folder, other)) from None
    os.truncate(handle, 0)
    os.pwrite(handle, f"{holder}\n".encode(), 0)
    return handle


def require_own(folder: Path, is_own: Callable[[str], bool]) -> None:
    """Refuses a folder that has files, and none of those that are known by their names."""
    try:
        names = {path.name for path in folder.iterdir()} - {"lost+found"}
    except OSError:
        return  # told of when it is used
    if names and not any(map(is_own, names)):
        reason = (
            f"{folder / min(names)} is none of a state's files; give a folder of its own, or a "
            "new one"
        )
        raise StateError(_unusable(folder, reason))


def _in_use(state: Path | Storage, holder: str) -> str:
    return f"the state folder {state} is in use by {holder}; stop it, or use another --state"


def _unusable(state: Path, why: str) -> str:
    return f"the state folder {state} cannot be used: {why}"
