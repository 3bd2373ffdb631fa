"""The one commit that decides: positions, open panes and results of a batch, together.

A batch is over when its checkpoint is committed. The checkpoint carries the batch's results
too; they are published to the results tables right after, and again on restart if the program
died in between. So every batch counts exactly once, whatever was decided by the clock.

Blocks are appended batch by batch and rewritten as one when they become many.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import pyarrow as pa

from muntin.errors import StateError
from muntin.kernel.block import decode, encode
from muntin.logs.tail import FilePosition
from muntin.model import Job, Tally
from muntin.pipeline import Lateness, Progress, Source
from muntin.store import delta
from muntin.windows.ledger import Ledger

VERSION = 1
_SCHEMA = pa.schema(
    [("batch", pa.int64()), ("kind", pa.string()), ("job", pa.string()), ("payload", pa.binary())]
)


@dataclass
class Saved:
    """Where a stream stands after a batch."""

    batch: int
    progress: Progress
    positions: tuple[FilePosition, ...]
    shapes: dict[str, str]
    blocks: dict[str, list[bytes]] = field(default_factory=dict)
    results: dict[str, pa.Table] = field(default_factory=dict)


class Checkpoint:
    """The checkpoints of one stream."""

    def __init__(self, state: Path, stream: str) -> None:
        self._path = state / "streams" / stream

    def save(self, saved: Saved, whole: bool) -> None:
        """Commits a batch; `whole` says that the blocks stand for all earlier ones too."""
        rows = [("progress", "", _progress_json(saved))]
        rows += [("block", job, b) for job, blocks in saved.blocks.items() for b in blocks]
        rows += [("result", job, encode(table)) for job, table in saved.results.items()]
        kinds, jobs, payloads = zip(*rows, strict=True)
        columns = [[saved.batch] * len(rows), list(kinds), list(jobs), list(payloads)]
        table = pa.table(columns, schema=_SCHEMA)
        delta.write(self._path, table, saved.batch, "overwrite" if whole else "append")
        if whole:
            delta.tidy(self._path)

    def load(self) -> Saved | None:
        """The newest state, or None where nothing was saved yet."""
        if not delta.exists(self._path):
            return None
        newest = "batch = (SELECT max(batch) FROM stored)"
        wanted = f"SELECT * FROM stored WHERE kind = 'block' OR {newest} ORDER BY batch"
        rows = delta.read(self._path, wanted).to_pylist()
        saved = _parse_progress(
            next(r["payload"] for r in reversed(rows) if r["kind"] == "progress")
        )
        for row in rows:
            if row["kind"] == "block":
                saved.blocks.setdefault(row["job"], []).append(row["payload"])
            elif row["kind"] == "result":
                name = f"unpublished results of job {row['job']}"
                saved.results[row["job"]] = decode(row["payload"], name)
        return saved


def shape(job: Job) -> str:
    """What has to be equal for a job to go on with the blocks it left."""
    return repr((job.stream, job.window, job.where, job.keys, job.parts))


@contextmanager
def locked(state: Path) -> Iterator[None]:
    """Holds a state folder for this process alone."""
    try:
        state.mkdir(parents=True, exist_ok=True)
        handle = os.open(state / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise StateError(f"the state folder {state} cannot be used: {error.strerror}") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise StateError(f"the state folder {state} is in use by another muntin") from None
    finally:
        os.close(handle)


def _progress_json(saved: Saved) -> bytes:
    p = saved.progress
    return json.dumps(
        {
            "version": VERSION,
            "batch": saved.batch,
            "positions": [asdict(f) for f in saved.positions],
            "shapes": saved.shapes,
            "sources": {name: source.stream_time for name, source in p.sources.items()},
            "emitted_us": p.emitted_us,
            "ledger": [asdict(tally) for tally in p.ledger],
            "late": {name: asdict(late) for name, late in p.late.items()},
            "totals": [p.records, p.bad, p.bytes, p.windows],
        }
    ).encode()


def _parse_progress(data: bytes) -> Saved:
    read = json.loads(data)
    if read["version"] != VERSION:
        message = f"the state was written by another version ({read['version']}, not {VERSION})"
        raise StateError(message)
    records, bad, size, windows = read["totals"]
    progress = Progress(
        sources={name: Source(time) for name, time in read["sources"].items()},
        emitted_us=read["emitted_us"],
        ledger=Ledger(Tally(**tally) for tally in read["ledger"]),
        late={name: Lateness(**late) for name, late in read["late"].items()},
        records=records,
        bad=bad,
        bytes=size,
        windows=windows,
    )
    positions = tuple(FilePosition(**f) for f in read["positions"])
    return Saved(read["batch"], progress, positions, read["shapes"])


def keep_known(saved: Saved, jobs: Mapping[str, Job]) -> Sequence[str]:
    """Drops what belongs to jobs that changed or are gone; returns what was dropped, in words."""
    notes = []
    for name in list(saved.shapes):
        if name not in jobs:
            notes.append(f"job '{name}' is no longer run; its results stay")
        elif saved.shapes[name] != shape(jobs[name]):
            notes.append(f"job '{name}' has changed; its open windows start again from here")
        else:
            continue
        saved.blocks.pop(name, None)
    return notes
