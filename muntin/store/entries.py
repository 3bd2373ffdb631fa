"""Entries of a Delta table's log that this program writes itself, where it knows what comes before.

A library that opens a table and reads its log takes milliseconds for what is one small file, and a
thousand jobs have a thousand tables. An entry is there as a whole or not at all, and where somebody
else was first, none is written.
"""

from __future__ import annotations

import json
import os
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
from deltalake import Schema

from muntin.store.log import folder_of

Action = Mapping[str, Any]
CHECKSUM = "muntin.crc32"  # in the first line of an entry, of all lines behind it


def create(path: Path, schema: pa.Schema, settings: Mapping[str, str]) -> bool:
    """Makes an empty table; False where its columns need more of a reader than any one has."""
    if any(pa.types.is_timestamp(kind) and kind.tz is None for kind in _kinds(schema)):
        return False
    protocol = {"minReaderVersion": 1, "minWriterVersion": 2}
    table: dict[str, Any] = {
        "id": str(uuid4()),
        "name": None,
        "description": None,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": Schema.from_arrow(schema).to_json(),
        "partitionColumns": [],
        "createdTime": _now(),
        "configuration": dict(settings),
    }
    folder_of(path).mkdir(parents=True, exist_ok=True)
    return _write(path, 0, "CREATE TABLE", {"protocol": protocol}, {"metaData": table})


def add(
    path: Path, version: int, files: Sequence[Mapping[str, Any]], writer: str, batch: int
) -> bool:
    """Makes files part of a table as entry `version`, if the one before is the newest."""
    if version < 1 or not _entry(path, version - 1).exists():
        return False
    added = [{"add": {"partitionValues": {}, "dataChange": True, **file}} for file in files]
    done = {"appId": writer, "version": batch}
    return _write(path, version, "WRITE", *added, {"txn": done})


def _write(path: Path, version: int, operation: str, *actions: Action) -> bool:
    """Writes an entry that is not there yet; False if somebody has written one."""
    lines = "".join(f"{json.dumps(action)}\n" for action in actions)
    told = {"timestamp": _now(), "operation": operation, "engineInfo": "muntin"}
    first = json.dumps({"commitInfo": {**told, CHECKSUM: zlib.crc32(lines.encode())}})
    hidden = folder_of(path) / f"_commit_{uuid4()}.json.tmp"
    try:
        hidden.write_text(f"{first}\n{lines}")
        os.link(hidden, _entry(path, version))  # which replaces nothing
    except FileExistsError:
        return False
    finally:
        with suppress(FileNotFoundError):
            hidden.unlink()
    return True


def _entry(path: Path, version: int) -> Path:
    return folder_of(path) / f"{version:020}.json"


def _now() -> int:
    return int(time.time() * 1000)


def _kinds(schema: pa.Schema) -> Iterator[pa.DataType]:
    """The types of columns, and of what these are made of."""
    left = list(schema.types)
    while left:
        kind = left.pop()
        yield kind
        left += [kind.field(number).type for number in range(kind.num_fields)]
