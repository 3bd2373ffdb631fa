"""A state as objects under a URL: S3, Google's and Azure's storage, and what speaks like them.

Objects are there as a whole when a request returns, and are never changed: what is added is a new
object. Where two programs must not both succeed, `create` and `exchange` let one of them win.
Requests that fail or stall are made again, for as long as the storage is waited for.
"""

from __future__ import annotations

import configparser
import io
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import obstore
import pyarrow as pa
from obstore import exceptions
from obstore.store import from_url

from muntin.errors import InputError, StateError, StorageError
from muntin.store.patience import Trying, has_answered, unanswered

if TYPE_CHECKING:
    from obstore.store import ObjectStore

PATIENCE = 60.0  # seconds for which a storage that fails or stalls is waited for
_REQUEST = 20.0  # seconds for one request, at the most
_LONGEST_PAUSE = 3.0  # seconds between requests of deltalake
_SIDE_BY_SIDE = 8
_AT_ONCE = 1 << 20  # bytes that are fetched as a whole
_FINAL = (
    FileNotFoundError, PermissionError, exceptions.NotFoundError, exceptions.AlreadyExistsError,
    exceptions.PreconditionError, exceptions.PermissionDeniedError,
    exceptions.UnauthenticatedError, exceptions.InvalidPathError,
)  # fmt: skip
_STATUS = re.compile(r"status code: (\d+ [A-Za-z ]+)")
_CODE = re.compile(r"<Code>(\w+)</Code>")
T = TypeVar("T")


class Tag(NamedTuple):
    """Which version of an object one has: storages compare the one or the other."""

    e_tag: str | None
    version: str | None

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Tag:
        return cls(told["e_tag"], told["version"])


@dataclass(frozen=True)
class ObjectStorage:
    """The objects under a URL, with credentials from where other programs look for them, too."""

    url: str
    patience: float = PATIENCE
    told: tuple[tuple[str, str], ...] = ()  # what is no secret, for processes that may not know it
    begins: bool = field(default=False, compare=False)  # made by a command, from what it was given
    appends = False
    needs_sync = False

    @classmethod
    def at(cls, url: str) -> ObjectStorage:
        """The storage as this process knows it, wherever it is sent."""
        known = _config(url, {})
        told = tuple((k, known[k]) for k in _NO_SECRETS if k in known)
        return cls(url, told=told, begins=True)

    def __reduce__(self) -> tuple[type[ObjectStorage], tuple[Any, ...]]:
        """Whoever is sent it is in the middle of a run."""
        return ObjectStorage, (self.url, self.patience, self.told)

    def __str__(self) -> str:
        return self.url

    def where(self, name: str = "") -> str:
        return f"{self.url}/{name}" if name else self.url

    def within(self, folder: str) -> ObjectStorage:
        return replace(self, url=f"{self.url}/{folder}")

    def options(self) -> dict[str, str] | None:
        """What deltalake is to know, of a storage that has been reached: it says less if not."""
        if self.begins and not has_answered(self.url):
            self.size("_delta_log")
        pause, request = f"{_LONGEST_PAUSE:g}s", f"{min(_REQUEST, self.patience):g}s"
        return {
            **_config(self.url, dict(self.told)),
            "timeout": request,
            "retry_timeout": f"{self.patience:g}s",
            "max_retries": "100",
            "backoff_config.max_backoff": pause,
        }

    @property
    def _store(self) -> ObjectStore:
        return _opened(self.url, min(_REQUEST, self.patience), self.told)

    def read(self, name: str) -> bytes:
        return bytes(self._do("read", name, lambda: obstore.get(self._store, name).bytes()))

    def read_all(self, names: Sequence[str]) -> Iterator[bytes]:
        if len(names) < 2:
            yield from map(self.read, names)
            return
        with ThreadPoolExecutor(_SIDE_BY_SIDE, thread_name_prefix="muntin-read") as threads:
            for start in range(0, len(names), _SIDE_BY_SIDE):
                yield from threads.map(self.read, names[start : start + _SIDE_BY_SIDE])

    def read_range(self, name: str, start: int, end: int) -> bytes:
        """The bytes of an object between two places."""
        get = lambda: obstore.get_range(self._store, name, start=start, end=end)  # noqa: E731
        return bytes(self._do("read", name, get))

    def open(self, name: str) -> pa.NativeFile:
        size = self.size(name)
        if size is None or size <= _AT_ONCE:
            return pa.BufferReader(self.read(name))
        return pa.PythonFile(_Ranges(self, name, size), mode="r")

    def put(self, name: str, data: bytes) -> None:
        self._do("written", name, lambda: obstore.put(self._store, name, data))

    def append(self, name: str, data: bytes) -> int:
        raise NotImplementedError("objects are never changed")

    def create(self, name: str, data: bytes) -> Tag | None:
        """Makes an object that nobody has made yet, and returns its tag; None if there is one.

        What is made has to differ from what others make, so that after a lost answer it is known
        whose it is.
        """
        return self._decide(name, data, "create")

    def exchange(self, name: str, data: bytes, tag: Tag) -> Tag | None:
        """Puts an object in the place of one with this tag; None if there is another by now."""
        return self._decide(name, data, {k: v for k, v in tag._asdict().items() if v is not None})

    def _decide(self, name: str, data: bytes, mode: Any) -> Tag | None:
        try:
            put = lambda: obstore.put(self._store, name, data, mode=mode, use_multipart=False)  # noqa: E731
            made: Mapping[str, Any] = self._do("written", name, put)
        except _LostError:
            found = self.tagged(name)  # which may be ours, if it was its answer that was lost
            return found[1] if found is not None and found[0] == data else None
        if not any(tag := Tag.of(made)):
            raise StateError(f"{self.where(name)}: the storage has no tags to tell versions by")
        return tag

    def tagged(self, name: str) -> tuple[bytes, Tag] | None:
        """An object with its tag, if there is one."""

        def get() -> tuple[bytes, Tag]:
            result = obstore.get(self._store, name)
            return bytes(result.bytes()), Tag.of(cast("Mapping[str, Any]", result.meta))

        try:
            return self._do("read", name, get)
        except StateError as error:
            if _is_missing(error.__cause__):
                return None
            raise

    @contextmanager
    def output(self, name: str) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(prefix="muntin-") as folder:
            path = Path(folder) / Path(name).name
            yield path
            if path.exists():
                self._do("written", name, lambda: obstore.put(self._store, name, path))

    def names(self, folder: str) -> list[str]:
        return sorted(_last(meta["path"]) for meta in self._listed(folder)["objects"])

    def folders(self, folder: str) -> list[str]:
        return sorted(map(_last, self._listed(folder)["common_prefixes"]))

    def _listed(self, folder: str) -> Mapping[str, Any]:
        list_ = lambda: obstore.list_with_delimiter(self._store, folder or None)  # noqa: E731
        return cast("Mapping[str, Any]", self._do("listed", folder, list_))

    def size(self, name: str) -> int | None:
        try:
            return int(self._do("read", name, lambda: obstore.head(self._store, name))["size"])
        except StateError as error:
            if _is_missing(error.__cause__):
                return None
            raise

    def sizes(self, folder: str) -> dict[str, int]:
        found = self._do("listed", folder, lambda: obstore.list(self._store, folder).collect())
        start = f"{folder}/" if folder else ""
        return dict(sorted((meta["path"].removeprefix(start), meta["size"]) for meta in found))

    def remove(self, names: Iterable[str]) -> None:
        several = list(names)
        if several:
            try:
                self._do("removed", several[0], lambda: obstore.delete(self._store, several))
            except StateError as error:
                if not _is_missing(error.__cause__):
                    raise

    def sync(self, names: Iterable[str]) -> None:
        """Nothing is left to do: a request returns when an object will stay."""

    def above(self, folder: str) -> list[str]:
        return []

    def _do(self, done: str, name: str, request: Callable[[], T]) -> T:
        """Makes a request until it succeeds, is refused, or the storage was waited for enough."""
        trying = Trying(self.url, self.patience, self.begins)
        while True:
            try:
                with trying.watched():
                    answer = request()
            except (exceptions.AlreadyExistsError, exceptions.PreconditionError) as error:
                raise _LostError(f"{self.where(name)} is there already") from error
            except (exceptions.BaseError, OSError) as error:
                reason = _reason(error)
                if isinstance(error, _FINAL) or _is_refused(error) or _status(error) == "404":
                    trying.answered()
                elif trying.failed(str(error), reason):
                    continue
                kind = StateError if _is_missing(error) else StorageError
                raise kind(f"{self.where(name)} cannot be {done}: {reason}") from error
            trying.answered()
            return answer


class _Ranges(io.RawIOBase):
    """A large object, of which what is asked for is fetched: often its end alone."""

    def __init__(self, storage: ObjectStorage, name: str, size: int) -> None:
        super().__init__()
        self._storage = storage
        self._name = name
        self._size = size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        begin = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        self._at = begin + offset
        return self._at

    def read(self, size: int = -1) -> bytes:
        end = self._size if size < 0 else min(self._size, self._at + size)
        if end <= self._at:
            return b""
        data = self._storage.read_range(self._name, self._at, end)
        self._at = end
        return data


class _LostError(StateError):
    """Another program has written first."""


@lru_cache(256)
def _opened(url: str, seconds: float, told: tuple[tuple[str, str], ...]) -> ObjectStore:
    """One client a process for each storage."""
    config = _config(url, dict(told))
    is_plain = config.get("aws_allow_http") == "true"
    try:
        return from_url(
            url,
            config=cast("Any", {k: v for k, v in config.items() if k != "aws_allow_http"}),
            client_options={"timeout": f"{seconds:g}s", "allow_http": is_plain},
            retry_config={"max_retries": 0},
        )
    except (exceptions.BaseError, OSError, ValueError) as error:
        raise InputError(f"{url} cannot be used: {_reason(error)}") from error


_NO_SECRETS = ("aws_region", "aws_endpoint", "aws_allow_http")


def _config(url: str, told: Mapping[str, str]) -> dict[str, str]:
    """What the environment and profiles say of S3, and what this process was told of it.

    Other storages are asked for with what their libraries find by themselves.
    """
    if not url.startswith(("s3://", "s3a://")):
        return {}
    known = {} if "AWS_ACCESS_KEY_ID" in os.environ else _profile()
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    known |= {"aws_region": region} if region else {}
    known |= {"aws_endpoint": endpoint} if endpoint else {}
    known |= told
    if known.get("aws_endpoint", "").startswith("http://"):
        known["aws_allow_http"] = "true"
    return known


_PROFILE = {
    "aws_access_key_id": "aws_access_key_id",
    "aws_secret_access_key": "aws_secret_access_key",
    "aws_session_token": "aws_session_token",
    "region": "aws_region",
    "endpoint_url": "aws_endpoint",
}


def _profile() -> dict[str, str]:
    """The keys of AWS_PROFILE, or of the default profile, as other programs read them."""
    name, told = os.environ.get("AWS_PROFILE", "default"), dict[str, str]()
    for variable, file, section in (
        ("AWS_CONFIG_FILE", "config", name if name == "default" else f"profile {name}"),
        ("AWS_SHARED_CREDENTIALS_FILE", "credentials", name),
    ):
        parser = configparser.ConfigParser(interpolation=None)
        try:
            parser.read(os.environ.get(variable) or Path.home() / ".aws" / file)
        except configparser.Error as error:
            # What the error says has the line in it, which may be a secret.
            where = f"{type(error).__name__} in ~/.aws/{file}, or where {variable} says"
            raise InputError(f"the profiles of AWS cannot be read: {where}") from None
        if parser.has_section(section):
            values = parser[section]
            told |= {ours: values[key] for key, ours in _PROFILE.items() if key in values}
    if "AWS_PROFILE" in os.environ and "aws_access_key_id" not in told:
        raise InputError(
            f"AWS_PROFILE is {name}, but no profile of that name has keys; for others, run "
            f"`aws configure export-credentials --profile {name} --format env`"
        )
    return told


def _last(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


def _is_missing(error: BaseException | None) -> bool:
    return isinstance(error, FileNotFoundError | exceptions.NotFoundError)


def _is_refused(error: Exception) -> bool:
    """Whether credentials are refused. Of lists and tokens the library does not say so itself."""
    status = _status(error)
    return status in ("401", "403") or (status == "400" and "token request" in str(error))


def _status(error: Exception) -> str:
    found = _STATUS.search(str(error))
    return "" if found is None else found[1][:3]


def _reason(error: Exception) -> str:
    """Why a storage refuses, in a few words."""
    said = str(error)
    code = _CODE.search(said)
    if code is not None and code[1] == "NoSuchBucket":
        return "there is no such bucket; make one, or give another --state"
    if _is_missing(error):
        return "it is not there"
    if _is_refused(error) or isinstance(
        error, PermissionError | exceptions.PermissionDeniedError | exceptions.UnauthenticatedError
    ):
        return "the storage refuses these credentials"
    if (status := _STATUS.search(said)) is not None:
        return f"the storage answers {status[1].strip()}"
    if "timed out" in said or "error sending request" in said or "onnect" in said:
        return unanswered(said)
    return next(iter(said.strip().splitlines()), type(error).__name__)
