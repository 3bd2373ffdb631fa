"""Safe points on disk: from where an agent goes on after each of its deliveries.

A delivery is handed out only once its safe point is written. So whichever delivery turns out to be
the last that a pipeline has made final, an agent that was killed goes on right behind it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import msgspec

from muntin.errors import StateError
from muntin.fidelity.scoreboard import Source
from muntin.kernel.reading import Reading
from muntin.logs.files import FilePosition
from muntin.store import tape
from muntin.windows.ledger import Grid

_Value = TypeVar("_Value")
_WORTH_REWRITING = 1 << 20  # bytes


@dataclass(frozen=True)
class SafePoint:
    """Where a stream stands after a delivery: what was read, and what of it was not shipped."""

    sequence: int = 0
    positions: tuple[FilePosition, ...] = ()
    sources: Mapping[str, Source] = field(default_factory=dict)
    readings: Mapping[str, Reading] = field(default_factory=dict)  # tallies of open panes
    blocks: Mapping[str, bytes] = field(default_factory=dict)  # open panes, by shape
    begins: Mapping[str, int] = field(default_factory=dict)
    """By shape: the position before which it is not made any more."""
    grids: Mapping[str, Grid] = field(default_factory=dict)  # that shapes had


class SafeLog:
    """The safe points of one stream for one pipeline, the newest last."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.pipeline = ""  # whose deliveries these are; nobody's, if there are none
        self._points: list[tuple[int, bytes]] = []  # as they were written: others go on changing
        self._size = 0
        if path.exists():
            head, *points = tape.read(path)
            self.pipeline = _decoded(head, str, path)
            self._points = [(_decoded(data, SafePoint, path).sequence, data) for data in points]

    def after(self, sequence: int) -> SafePoint | None:
        """The safe point behind a delivery, if it is known."""
        found = (data for number, data in self._points if number == sequence)
        return next((_decoded(data, SafePoint, self._path) for data in found), None)

    def begin(self, pipeline: str, point: SafePoint) -> None:
        """Starts over, for another pipeline or from another place."""
        self.pipeline = pipeline
        self._points = [(point.sequence, msgspec.msgpack.encode(point))]
        self._rewrite()

    def add(self, point: SafePoint) -> None:
        """Writes the safe point of the next delivery."""
        data = msgspec.msgpack.encode(point)
        self._points.append((point.sequence, data))
        self._size = tape.add(self._path, [data])

    def forget(self, before: int) -> None:
        """Drops safe points behind which nobody goes on any more."""
        self._points = [point for point in self._points if point[0] >= before]
        if self._size > _WORTH_REWRITING * len(self._points):
            self._rewrite()

    def _rewrite(self) -> None:
        points = (data for _, data in self._points)
        self._size = tape.create(self._path, [msgspec.msgpack.encode(self.pipeline), *points])


def _decoded(record: bytes, kind: type[_Value], path: Path) -> _Value:
    try:
        return msgspec.msgpack.decode(record, type=kind)
    except msgspec.MsgspecError as error:
        raise StateError(f"{path} is of another version of Muntin; remove it") from error
