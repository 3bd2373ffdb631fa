"""Requests to S3, Google's and Azure's storage, and to what speaks like them."""

from __future__ import annotations

import configparser
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import obstore
from obstore import exceptions
from obstore.store import from_url

from muntin.errors import InputError, StateError
from muntin.store.patience import unanswered
from muntin.store.requests import (
    LONGEST_PAUSE,
    SECONDS,
    AbsentError,
    RefusedError,
    RequestError,
    Tag,
    TakenError,
)

if TYPE_CHECKING:
    from obstore.store import ObjectStore

_STATUS = re.compile(r"status code: (\d+ [A-Za-z ]+)")
_CODE = re.compile(r"<Code>(\w+)</Code>")
_NO_SECRETS = ("aws_region", "aws_endpoint", "aws_allow_http")
_PROFILE = {
    "aws_access_key_id": "aws_access_key_id",
    "aws_secret_access_key": "aws_secret_access_key",
    "aws_session_token": "aws_session_token",
    "region": "aws_region",
    "endpoint_url": "aws_endpoint",
}


class Bucket:
    """The requests for objects under a URL."""

    def __init__(self, url: str, store: ObjectStore, config: Mapping[str, str]) -> None:
        self._url = url
        self._store = store
        self._config = config

    @staticmethod
    def known(url: str) -> tuple[tuple[str, str], ...]:
        """What is no secret of what this process knows, for those that may not know it."""
        config = _config(url, {})
        return tuple((k, config[k]) for k in _NO_SECRETS if k in config)

    @classmethod
    def at(cls, url: str, seconds: float, told: Mapping[str, str]) -> Bucket:
        """With what this process knows, and was told, of the storage."""
        config = _config(url, told)
        is_plain = config.get("aws_allow_http") == "true"
        try:
            store = from_url(
                url,
                config=cast("Any", {k: v for k, v in config.items() if k != "aws_allow_http"}),
                client_options={"timeout": f"{seconds:g}s", "allow_http": is_plain},
                retry_config={"max_retries": 0},
            )
        except (exceptions.BaseError, OSError, ValueError) as error:
            raise InputError(f"{url} cannot be used: {_reason(error)}") from error
        return cls(url, store, config)

    def options(self, patience: float) -> dict[str, str] | None:
        return {
            **self._config,
            "timeout": f"{min(SECONDS, patience):g}s",
            "retry_timeout": f"{patience:g}s",
            "max_retries": "100",
            "backoff_config.max_backoff": f"{LONGEST_PAUSE:g}s",
        }

    def passing(self, error: BaseException) -> str | None:
        return None  # it has waited, as the options say

    def get(self, name: str) -> bytes:
        with _told():
            return bytes(obstore.get(self._store, name).bytes())

    def get_range(self, name: str, start: int, end: int) -> bytes:
        with _told():
            return bytes(obstore.get_range(self._store, name, start=start, end=end))

    def tagged(self, name: str) -> tuple[bytes, Tag]:
        with _told():
            result = obstore.get(self._store, name)
            return bytes(result.bytes()), Tag.of(cast("Mapping[str, Any]", result.meta))

    def put(self, name: str, data: bytes | Path) -> None:
        with _told():
            obstore.put(self._store, name, data)

    def create(self, name: str, data: bytes) -> Tag:
        return self._decide(name, data, "create")

    def exchange(self, name: str, data: bytes, tag: Tag) -> Tag:
        return self._decide(name, data, {k: v for k, v in tag._asdict().items() if v is not None})

    def _decide(self, name: str, data: bytes, mode: Any) -> Tag:
        with _told():
            made = obstore.put(self._store, name, data, mode=mode, use_multipart=False)
        if not any(tag := Tag.of(cast("Mapping[str, Any]", made))):
            place = f"{self._url}/{name}"
            raise StateError(f"{place}: the storage has no tags to tell versions by")
        return tag

    def size(self, name: str) -> int:
        with _told():
            return int(obstore.head(self._store, name)["size"])

    def listed(self, folder: str) -> tuple[list[str], list[str]]:
        with _told():
            found = obstore.list_with_delimiter(self._store, folder or None)
        names = [_last(meta["path"]) for meta in found["objects"]]
        return names, [_last(path) for path in found["common_prefixes"]]

    def sizes(self, folder: str) -> dict[str, int]:
        with _told():
            found = obstore.list(self._store, folder).collect()
        start = f"{folder}/" if folder else ""
        return {meta["path"].removeprefix(start): meta["size"] for meta in found}

    def delete(self, names: Sequence[str]) -> None:
        with _told():
            obstore.delete(self._store, names)

    def sweep(self, folders: Sequence[str], before: float) -> None:
        """Nothing is left: what was not put as a whole is not there."""


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


@contextmanager
def _told() -> Iterator[None]:
    """What a storage says, as errors of requests."""
    try:
        yield
    except (exceptions.AlreadyExistsError, exceptions.PreconditionError) as error:
        raise TakenError("it is there already") from error
    except (FileNotFoundError, exceptions.NotFoundError) as error:
        raise AbsentError(_reason(error)) from error
    except (
        PermissionError, exceptions.PermissionDeniedError, exceptions.UnauthenticatedError,
        exceptions.InvalidPathError,
    ) as error:  # fmt: skip
        raise RefusedError(_reason(error)) from error
    except (exceptions.BaseError, OSError) as error:
        is_final = _is_refused(error) or _status(error) == "404"
        raise (RefusedError if is_final else RequestError)(_reason(error)) from error


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
    if isinstance(error, FileNotFoundError | exceptions.NotFoundError):
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
