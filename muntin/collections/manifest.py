"""What a collection leaves in its folder: how it is partitioned, and what was written."""

from __future__ import annotations

import json
import os
from base64 import b64decode, b64encode
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from muntin.collections.keys import ByHash, ByRange, Partitioner, name_of
from muntin.collections.rows import Size, from_ipc, to_ipc
from muntin.errors import InputError, StateError
from muntin.units import describe

_VERSION = 1


@dataclass(frozen=True)
class Written:
    """A dataset, and where it was written."""

    name: str
    step: int
    path: str
    sizes: tuple[Size, ...]


@dataclass(frozen=True)
class Manifest:
    key: str
    type: pa.DataType
    step: int
    partitioner: Partitioner
    schema: dict[str, Any] | None
    pieces: tuple[Written, ...]

    def write(self, folder: Path, name: str) -> None:
        """Leaves the former one or this one as a whole, whatever happens."""
        bounds = list(self.partitioner.bounds) if isinstance(self.partitioner, ByRange) else []
        keys = to_ipc(pa.table({"bounds": pa.array(bounds, self.type)})).to_pybytes()
        document = {
            "version": _VERSION,
            "key": self.key,
            "step": self.step,
            "hash": self.partitioner.count if isinstance(self.partitioner, ByHash) else None,
            "bounds": b64encode(keys).decode(),
            "schema": self.schema,
            "pieces": [
                {"name": p.name, "step": p.step, "path": p.path, "sizes": p.sizes}
                for p in self.pieces
            ],
        }
        path = _path(folder, name)
        beside = path.with_suffix(".new")
        with beside.open("w") as file:
            json.dump(document, file)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)

    @staticmethod
    def read(folder: Path, name: str) -> Manifest | None:
        """What was left there, or None; StateError where it cannot be read."""
        path = _path(folder, name)
        try:
            text = path.read_text()
        except FileNotFoundError:
            return None
        try:
            found = json.loads(text)
            if found["version"] != _VERSION:
                raise ValueError(f"it is of version {found['version']}")
            bounds = from_ipc(b64decode(found["bounds"])).column(0)
            by_hash = found["hash"]
            return Manifest(
                found["key"],
                bounds.type,
                found["step"],
                ByRange(tuple(bounds.to_pylist())) if by_hash is None else ByHash(by_hash),
                found["schema"],
                tuple(
                    Written(p["name"], p["step"], p["path"], tuple(Size(*s) for s in p["sizes"]))
                    for p in found["pieces"]
                ),
            )
        except (ValueError, KeyError, TypeError, pa.ArrowInvalid) as error:
            raise StateError(
                f"{path} cannot be read ({error}); take this folder away to begin anew"
            ) from None

    def require(
        self, whose: str, key: str, step: int, partitioner: Partitioner | None, ordered: bool
    ) -> None:
        """Raises StateError unless a collection is as it was when this was left.

        Without a partitioner, it is one whose ranges are fitted (`ordered`).
        """
        for what, was, is_ in (
            ("key", f"'{self.key}'", f"'{key}'"),
            ("steps", describe(self.step), describe(step)),
            ("partitions", self.partitioner.text, self._text(partitioner, ordered)),
        ):
            if was != is_:
                raise StateError(
                    f"{whose} was left with other {what}: {was}, and now {is_}; what is in its "
                    "folder cannot be read so; open it as it was, or give it another folder or name"
                )

    def _text(self, partitioner: Partitioner | None, ordered: bool) -> str:
        """What a collection would part keys by, in the words that it would be left with."""
        if partitioner is None:
            fits = isinstance(self.partitioner, ByRange) or not ordered
            return self.partitioner.text if fits else "by range"
        try:
            return partitioner.typed(self.type, "").text
        except InputError:
            return f"{partitioner.text}, which are not {name_of(self.type)}"


def _path(folder: Path, name: str) -> Path:
    safe = "".join(c if c.isalnum() or c in "-_." else f"%{ord(c):x}" for c in name)
    return folder / f"{safe}.json"
