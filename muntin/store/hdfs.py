"""Requests to HDFS, which has no conditional writes, but renames that fail where a name is taken.

A file is written under a hidden name in its folder, and gets its own when it is whole. What is
exchanged is never overwritten: `NAME` is followed by `NAME.000000000001` and so on, and the largest
number counts. Both kinds of names are listed to nobody.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from itertools import chain
from pathlib import Path
from threading import Thread
from typing import TypeVar
from uuid import uuid4

from hdfs_native import Client, FileStatus, WriteOptions

from muntin.errors import InputError, MuntinError
from muntin.store.requests import AbsentError, RefusedError, RequestError, Tag, TakenError

_PIECE = 8 << 20  # bytes that are written at once
_KNOCK_SECONDS = 5.0
_ATTEMPTS = 20
_HIDDEN = re.compile(r"\..+\.tmp(\.\d+)?")  # files that are not whole
# Those of ours, which have names that nobody else gives, and those that deltalake makes of tables.
_OURS = re.compile(r"(?:.+/)?\.[^/]+\.[0-9a-f]{32}\.tmp")
_OF_TABLES = re.compile(r".+/(?:_delta_log/\.[^/]+|\.part-[^/]+\.parquet)\.tmp(?:\.\d+)?")
_URL = re.compile(r"hdfs://([\w.-]+)(?::(\d{1,5}))?((?:/[^/]+)+)")
_ODD = re.compile(r"[^A-Za-z0-9_./:+=~-]")
_PASSING = re.compile(
    r"communicating with HDFS|data transfer error|operation failed|SafeMode", re.I
)
_LATER = re.compile(r"(.+)\.(\d{12})")
_SAID = re.compile(r'(?:\w+\(")?([^"\[\n]+)')
_REMOTE = re.compile(r'RPCError\("([\w.$]*?)(\w+)", "((?:[^"\\]|\\[^nt])*)')
# Of several NameNodes the next one is asked at once; who waits, and for how long, is `objects`.
_SETTINGS = {
    "dfs.client.failover.max.attempts": "4",
    "dfs.client.failover.sleep.base.millis": "100",
    "dfs.client.failover.sleep.max.millis": "500",
}
T = TypeVar("T")


class Hdfs:
    """The requests for files under a URL."""

    def __init__(self, url: str, server: str, root: str, seconds: float) -> None:
        self._url = url
        self._server = server
        self._root = root
        self._seconds = seconds

    @staticmethod
    def known(url: str) -> tuple[tuple[str, str], ...]:
        """Nothing: each process has the settings of its machine. A wrong address is refused."""
        host, port, _ = _parts(url)
        _require_plain(url)
        if port is not None:
            _require_listening(host, port)
        return ()

    @classmethod
    def at(cls, url: str, seconds: float, told: Mapping[str, str]) -> Hdfs:
        host, port, path = _parts(url)
        server = f"hdfs://{host}" if port is None else f"hdfs://{host}:{port}"
        _client(server, seconds)
        return cls(url, server, path, seconds)

    def options(self, patience: float) -> dict[str, str] | None:
        _require_plain(self._url)
        return None

    def passing(self, error: BaseException) -> str | None:
        if isinstance(error, MuntinError) or (found := _PASSING.search(str(error))) is None:
            return None
        refused = " (Connection refused)" if "Connection refused" in str(error) else ""
        return f"{self._server} fails, or one of its DataNodes: {found[0]}{refused}"

    def get(self, name: str) -> bytes:
        with self._told():
            return self._read(self._path(name))

    def get_range(self, name: str, start: int, end: int) -> bytes:
        with self._told():
            path = self._path(name)
            file = self._do(lambda client: client.read(path))
            upto = min(end, len(file))  # the library does not look
            return self._wait(lambda: file.read_range(start, upto - start)) if start < upto else b""

    def tagged(self, name: str) -> tuple[bytes, Tag]:
        for _ in range(_ATTEMPTS):
            with self._told():
                numbers = self._versions(name)
            if not numbers:
                raise AbsentError("it is not there")
            with suppress(AbsentError), self._told():  # a newer one may have taken its place
                return self._read(self._path(_version(name, numbers[-1]))), _tag(numbers[-1])
        raise RequestError("others write it all the time")

    def put(self, name: str, data: bytes | Path) -> None:
        with self._told():
            self._write(name, data, overwrite=True)

    def create(self, name: str, data: bytes) -> Tag:
        with self._told():
            self._write(name, data, overwrite=False)
        return _tag(0)

    def exchange(self, name: str, data: bytes, tag: Tag) -> Tag:
        with self._told():
            before = self._versions(name)
            if not before or _tag(before[-1]) != tag:
                raise TakenError("it is another one by now")
            number = before[-1] + 1
            self._write(_version(name, number), data, overwrite=False)
            # Of who was asleep before that, the number may have been taken, and be gone again; but
            # then there is a larger one, since the largest never goes.
            if self._versions(name)[-1:] != [number]:
                raise TakenError("it is another one by now")
            for each in before:
                if each:  # the first one stays, so that nobody makes it again
                    with suppress(OSError, RuntimeError):
                        self._delete(_version(name, each))
        return _tag(number)

    def size(self, name: str) -> int:
        with self._told():
            path = self._path(name)
            found = self._do(lambda client: client.get_file_info(path))
            if found.isdir:
                raise FileNotFoundError(path)
            return found.length

    def listed(self, folder: str) -> tuple[list[str], list[str]]:
        with self._told():
            found = self._list(folder)
        names = [_last(each) for each in found if not each.isdir and not _is_own(_last(each))]
        return names, [_last(each) for each in found if each.isdir]

    def sizes(self, folder: str) -> dict[str, int]:
        start = f"{self._path(folder)}/"
        with self._told():
            every = self._list(folder, recursive=True)
        files = (each for each in every if not each.isdir and not _is_own(_last(each)))
        return {each.path.removeprefix(start): each.length for each in files}

    def delete(self, names: Sequence[str]) -> None:
        with self._told():
            for name in names:
                self._delete(name)

    def sweep(self, folders: Sequence[str], before: float) -> None:
        with self._told():
            here = (each for each in self._list("") if not each.isdir)
            for each in chain(here, *map(self._files, folders)):
                name = each.path.removeprefix(f"{self._root}/")
                is_left = _OURS.fullmatch(name) or _OF_TABLES.fullmatch(name)
                if is_left and each.modification_time < 1000 * before:
                    self._delete(name)

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root

    def _delete(self, name: str) -> None:
        self._do(lambda client: client.delete(self._path(name)))

    def _read(self, path: str) -> bytes:
        file = self._do(lambda client: client.read(path))
        starts = range(0, len(file), _PIECE)
        sizes = (min(_PIECE, len(file) - start) for start in starts)
        reads = (partial(file.read_range, at, size) for at, size in zip(starts, sizes, strict=True))
        return b"".join(map(self._wait, reads))

    def _write(self, name: str, data: bytes | Path, overwrite: bool) -> None:
        """Has a file there as a whole or not at all."""
        path = self._path(name)
        folder, _, last = name.rpartition("/")
        hidden = f"{folder}/.{last}.{uuid4().hex}.tmp".lstrip("/")
        try:
            self._fill(self._path(hidden), data)
            try:
                self._do(lambda client: client.rename(self._path(hidden), path, overwrite))
            except FileNotFoundError as error:  # what was written, by who has the state now
                raise RequestError("what was written was removed meanwhile") from error
        except (OSError, RuntimeError) as error:
            if not isinstance(error, TimeoutError):
                with suppress(OSError, RuntimeError):
                    self._delete(hidden)
            raise

    def _fill(self, path: str, data: bytes | Path) -> None:
        file = self._do(lambda client: client.create(path, WriteOptions(overwrite=True)))
        for piece in _pieces(data):
            self._wait(partial(file.write, piece))
        self._wait(file.close)

    def _list(self, folder: str, recursive: bool = False) -> list[FileStatus]:
        path = self._path(folder)
        with suppress(FileNotFoundError):
            every = self._do(lambda client: list(client.list_status(path, recursive)))
            return [each for each in every if each.path != path]  # which a file is to itself
        return []

    def _files(self, folder: str) -> Iterator[FileStatus]:
        """All files in a folder, which is listed piece by piece: the whole may take long."""
        for each in self._list(folder):
            if each.isdir:
                yield from self._files(f"{folder}/{_last(each)}")
            else:
                yield each

    def _versions(self, name: str) -> list[int]:
        """The numbers of an object, the largest last."""
        folder, _, last = name.rpartition("/")
        numbers = []
        for found in map(_last, self._list(folder)):
            if found == last:
                numbers.append(0)
            elif (later := _LATER.fullmatch(found)) is not None and later[1] == last:
                numbers.append(int(later[2]))
        return sorted(numbers)

    def _do(self, request: Callable[[Client], T]) -> T:
        client = _client(self._server, self._seconds)
        return self._wait(lambda: request(client))

    def _wait(self, call: Callable[[], T]) -> T:
        """What the library gives, or a TimeoutError: it waits for who stalls without an end.

        What it says of bugs of its own are no errors that anybody would expect.
        """
        done = Future[T]()

        def run() -> None:
            try:
                done.set_result(call())
            except Exception as error:
                done.set_exception(error)
            except BaseException as error:
                done.set_exception(RuntimeError(str(error)))

        Thread(target=run, name="muntin-hdfs", daemon=True).start()
        try:
            return done.result(self._seconds)
        except TimeoutError:
            _client.cache_clear()  # the next request has a connection of its own
            raise

    @contextmanager
    def _told(self) -> Iterator[None]:
        """What HDFS says, as errors of requests."""
        try:
            yield
        except FileNotFoundError as error:
            raise AbsentError("it is not there") from error
        except FileExistsError as error:
            raise TakenError("it is there already") from error
        except TimeoutError as error:
            raise RequestError(f"{self._server} does not answer") from error
        except OSError as error:
            raise RequestError(f"{self._server} cannot be reached: {_words(error)}") from error
        except RuntimeError as error:
            said = _REMOTE.match(str(error))
            if said is None:
                raise RequestError(f"HDFS says {_words(error)}") from error
            if said[2] == "AccessControlException":
                why = _plain(said[3]).partition(", inode")[0]
                raise RefusedError(f"HDFS refuses it: {why}") from error
            raise RequestError(f"HDFS says {said[2]}: {_plain(said[3])}") from error


def _parts(url: str) -> tuple[str, int | None, str]:
    """Host, port and path of a URL."""
    parts = _URL.fullmatch(url)
    if parts is None:
        raise InputError(
            f"{url} is no place for a state: give hdfs://HOST:PORT/PATH, with the address of the "
            "NameNode, which fs.defaultFS has in core-site.xml"
        )
    return parts[1], int(parts[2]) if parts[2] else None, parts[3]


def _require_plain(url: str) -> None:
    """Refuses names that deltalake finds no table by: what would be escaped in URLs."""
    if (odd := _ODD.search(url)) is not None:
        raise InputError(
            f"{url}: tables on HDFS cannot be in folders with '{odd[0]}' in their names, which are "
            "those of the path and of jobs; use letters from A to Z, digits and -._"
        )


@lru_cache(64)
def _require_listening(host: str, port: int) -> None:
    """Refuses an address where nobody is, which would be waited for later."""
    try:
        socket.create_connection((host, port), _KNOCK_SECONDS).close()
    except OSError as error:
        raise InputError(
            f"hdfs://{host}:{port} cannot be reached: {error.strerror or error}; the address is "
            "that of the NameNode, which fs.defaultFS has in core-site.xml"
        ) from error


@lru_cache(64)
def _client(server: str, seconds: float) -> Client:
    """One a process for each file system, with the settings in HADOOP_CONF_DIR."""
    wait = {"dfs.client.socket-timeout": f"{1000 * seconds:.0f}"}
    try:
        return Client(server, {**_SETTINGS, **wait})
    except (OSError, RuntimeError, ValueError) as error:
        raise InputError(
            f"{server} cannot be used: {_words(error)}; give hdfs://HOST:PORT/PATH, or have "
            "HADOOP_CONF_DIR name a folder whose hdfs-site.xml says which NameNodes that is"
        ) from error


def _version(name: str, number: int) -> str:
    return f"{name}.{number:012}" if number else name


def _tag(number: int) -> Tag:
    return Tag(None, str(number))


def _pieces(data: bytes | Path) -> Iterator[bytes]:
    if isinstance(data, Path):
        with data.open("rb") as file:
            while piece := file.read(_PIECE):
                yield piece
        return
    for start in range(0, len(data), _PIECE):
        yield data[start : start + _PIECE]


def _last(found: FileStatus) -> str:
    return found.path.rpartition("/")[2]


def _is_own(name: str) -> bool:
    return bool(_HIDDEN.fullmatch(name) or _LATER.fullmatch(name))


def _words(error: Exception) -> str:
    """What the library says, without the values that it prints beside."""
    said = _SAID.match(str(error))
    return said[1].rstrip(": ") if said is not None else type(error).__name__


def _plain(said: str) -> str:
    return said.replace('\\"', "'").rstrip("\\")
