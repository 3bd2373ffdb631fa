"""What an agent is told on its own server: which streams it can read, and where their files are."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from muntin.durations import parse_duration
from muntin.errors import InputError
from muntin.logs.patterns import PathPattern
from muntin.model.streams import Stream
from muntin.wire.process import room

KIND = "an agent"
_CLAUSES = ("format", "timestamp", "slack")
_FORMATS = ("json", "csv", "parquet", "combined", "common", "regex", "text")


@dataclass(frozen=True)
class StreamSettings:
    """`paths` are all that is ever opened. FORMAT, TIMESTAMP and SLACK are in the words of SQL."""

    paths: tuple[str, ...]
    clauses: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Limits:
    """What an agent takes of its server, and what it takes from pipelines."""

    memory: int = 512 << 20  # bytes, with the libraries that it has loaded
    cpu: float = 1.0  # the share of a core
    allow_code: bool = False  # whether it runs jobs in Python

    def __post_init__(self) -> None:
        room(self.memory, KIND)
        if not 0 < self.cpu <= 64:
            raise InputError(f"--cpu {self.cpu:g} is no share of a core, as 0.5 is")

    @property
    def room(self) -> int:
        """What is left beside libraries."""
        return room(self.memory, KIND)

    @property
    def waiting(self) -> int:
        """Bytes of deliveries that are not final, above which nothing is read."""
        return self.room // 4

    @property
    def open(self) -> int:
        """Bytes of open panes in memory; what is more goes to disk."""
        return self.room // 4


@dataclass(frozen=True)
class AgentSettings:
    """What one agent is told, on its command line and in its file."""

    name: str
    state: Path
    streams: Mapping[str, StreamSettings]
    limits: Limits = Limits()

    def local(self, stream: Stream) -> Stream:
        """A pipeline's stream with this server's files."""
        paths = self.require(stream.name).paths
        return replace(stream, patterns=paths, source=self.name, agents=())

    def clauses(self, stream: str) -> dict[str, str]:
        """What is said of a stream, in the words of SQL."""
        return dict(self.require(stream).clauses)

    def slack_us(self, stream: str) -> int | None:
        """The slack of a stream; None if nothing is said of it."""
        told = self.require(stream).clauses.get("SLACK")
        return None if told is None else parse_duration(told)

    def require(self, stream: str) -> StreamSettings:
        """What is said of a stream; refuses one of which nothing is."""
        if stream not in self.streams:
            known = ", ".join(sorted(self.streams)) or "none"
            raise InputError(
                f"agent '{self.name}' has no stream '{stream}'; its settings have: {known}"
            )
        return self.streams[stream]


def read_settings(
    path: Path, name: str, state: Path, limits: Limits | None = None
) -> AgentSettings:
    """The settings in a TOML file: a table `[streams.NAME]` with `paths` for each stream."""
    if not name.strip():
        raise InputError("--name is empty; it is what this server is called among the sources")
    try:
        told = tomllib.loads(path.read_text())
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is no TOML: {error}") from error
    streams = told.get("streams")
    if not isinstance(streams, dict) or not streams:
        raise InputError(f"{path} has no stream; it needs a table such as [streams.clicks]")
    known = {stream: _stream(path, stream, table) for stream, table in streams.items()}
    return AgentSettings(name, state, known, limits or Limits())


def _stream(path: Path, stream: str, table: object) -> StreamSettings:
    if "/" in stream:
        raise InputError(f"{path}: '{stream}' is no name of a stream here, as a file is named so")
    told = dict(table) if isinstance(table, dict) else {}
    for name in told.keys() - {"paths", *_CLAUSES}:
        known = ", ".join(("paths", *_CLAUSES))
        raise InputError(f"{path}: [streams.{stream}] has '{name}'; known are {known}")
    paths = told.pop("paths", None)
    paths = [paths] if isinstance(paths, str) else paths
    if not paths or not isinstance(paths, list) or not all(isinstance(p, str) for p in paths):
        raise InputError(f'{path}: [streams.{stream}] needs paths = ["/var/log/…"]')
    for pattern in paths:
        _require_pattern(path, stream, pattern)
    for name, text in told.items():
        if not isinstance(text, str):
            raise InputError(f"{path}: {name} of [streams.{stream}] is no text in quotes")
    _require_clauses(f"{path}: {{}} of [streams.{stream}]", told)
    clauses = {name.upper(): told[name] for name in _CLAUSES if name in told}
    return StreamSettings(tuple(paths), clauses)


def _require_clauses(where: str, told: Mapping[str, str]) -> None:
    """Refuses what no pipeline could take; the rest of the clauses is for these to check."""
    kind = told.get("format", "json").split(maxsplit=1)[:1]
    if not kind or kind[0].lower() not in _FORMATS:
        known = ", ".join(_FORMATS)
        raise InputError(f"{where.format('format')} is '{told['format']}'; known are {known}")
    if not told.get("timestamp", "t").strip():
        raise InputError(f"{where.format('timestamp')} is empty; name the column of the time")
    try:
        parse_duration(told.get("slack", "0 SECONDS"))
    except ValueError as error:
        raise InputError(f"{where.format('slack')}: {error}; write it as '5 SECONDS'") from error


def _require_pattern(path: Path, stream: str, pattern: str) -> None:
    try:
        PathPattern(pattern)
    except ValueError as error:
        raise InputError(f"{path}: paths of [streams.{stream}]: {error}") from error
    if "{source}" in pattern:
        message = "an agent is one source, by its --name; write * in the place of {source}"
        raise InputError(f"{path}: paths of [streams.{stream}]: {message}")
