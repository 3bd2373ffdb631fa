"""What an agent is told on its own server: which streams it can read, and where their files are."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from muntin.errors import InputError
from muntin.model import Stream


@dataclass(frozen=True)
class AgentSettings:
    """`paths` by stream are all that an agent ever opens, whatever a pipeline says."""

    name: str
    state: Path
    paths: Mapping[str, tuple[str, ...]]
    most_waiting: int = 64 << 20  # bytes of deliveries that are not final
    streams: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def local(self, stream: Stream) -> Stream:
        """A pipeline's stream with this server's files."""
        paths = self.paths.get(stream.name)
        if paths is None:
            known = ", ".join(sorted(self.paths)) or "none"
            raise InputError(
                f"agent '{self.name}' has no stream '{stream.name}'; its settings have: {known}"
            )
        return replace(stream, patterns=paths, source=self.name)


def read_settings(path: Path, name: str, state: Path) -> AgentSettings:
    """The settings in a TOML file: a table `[streams.NAME]` with `paths` for each stream."""
    try:
        told = tomllib.loads(path.read_text())
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is no TOML: {error}") from error
    streams = told.get("streams")
    if not isinstance(streams, dict) or not streams:
        raise InputError(f"{path} has no stream; it needs a table such as [streams.clicks]")
    paths = {stream: _paths(path, stream, table) for stream, table in streams.items()}
    return AgentSettings(name, state, paths, streams=streams)


def _paths(path: Path, stream: str, table: object) -> tuple[str, ...]:
    paths = table.get("paths") if isinstance(table, dict) else None
    paths = [paths] if isinstance(paths, str) else paths
    if not paths or not isinstance(paths, list) or not all(isinstance(p, str) for p in paths):
        raise InputError(f'{path}: [streams.{stream}] needs paths = ["/var/log/…"]')
    return tuple(paths)
