"""The one commit that decides: positions, open panes and results of a batch, together.

A batch is over when its checkpoint is committed. The checkpoint names the files with the batch's
results, which are written by then; they become part of the results tables right after, or on
restart if the program died in between. So every batch counts exactly once, whatever was decided
by the clock.

Blocks are appended batch by batch and rewritten as one when they become many.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

import pyarrow as pa

from muntin.errors import StateError
from muntin.fidelity.scoreboard import Source
from muntin.fidelity.timing import Timing
from muntin.kernel.block import Block
from muntin.logs.tail import FilePosition
from muntin.model import Program, Tally
from muntin.run.failures import Failures
from muntin.run.progress import Lateness, Leaving, Progress
from muntin.store import delta
from muntin.windows.choice import Choice
from muntin.windows.ledger import Ledger

VERSION = 5
_SCHEMA = pa.schema(
    [
        ("batch", pa.int64()),
        ("kind", pa.string()),
        ("shape", pa.string()),
        ("payload", pa.binary()),
    ]
)


@dataclass
class Saved:
    """Where a stream stands after a batch."""

    batch: int
    progress: Progress
    positions: tuple[FilePosition, ...]
    shapes: dict[str, str]
    blocks: dict[str, list[Block]] = field(default_factory=dict)
    results: dict[str, str] = field(default_factory=dict)  # files of jobs


class Checkpoint:
    """The checkpoints of one stream."""

    def __init__(self, state: Path, stream: str) -> None:
        self._stream = stream
        self._path = state / "streams" / stream

    def save(self, saved: Saved, whole: bool) -> None:
        """Commits a batch; `whole` says that the blocks stand for all earlier ones too."""
        rows = [("progress", "", _progress_json(saved))]
        for shape, blocks in saved.blocks.items():
            rows += [("block", shape, block.encode()) for block in blocks]
        columns = [[saved.batch] * len(rows), *map(list, zip(*rows, strict=True))]
        table = pa.table(columns, schema=_SCHEMA)
        mode: Literal["append", "overwrite"] = "overwrite" if whole else "append"
        delta.write(self._path, table, self._stream, saved.batch, mode)
        if whole:
            delta.tidy(self._path)

    def load(self, shapes: Collection[str]) -> Saved | None:
        """The newest state with the blocks of these shapes, or None if nothing was saved yet."""
        if not delta.exists(self._path):
            return None
        newest = "batch = (SELECT max(batch) FROM stored)"
        wanted = f"SELECT * FROM stored WHERE kind = 'block' OR {newest} ORDER BY batch"
        rows = delta.read(self._path, wanted).to_pylist()
        saved = _parse_progress(
            next(r["payload"] for r in reversed(rows) if r["kind"] == "progress")
        )
        for row in rows:
            if row["kind"] == "block" and row["shape"] in shapes:
                block = Block.decode(row["payload"], f"saved block of stream '{self._stream}'")
                saved.blocks.setdefault(row["shape"], []).append(block)
        return saved


def choices_in(state: Path, program: Program) -> dict[str, Choice]:
    """How the last run in a state folder computed the windows of each shape."""
    found: dict[str, Choice] = {}
    for stream in program.streams:
        saved = Checkpoint(state, stream).load(())
        found |= saved.progress.choices if saved is not None else {}
    return found


def saved_in(state: Path) -> dict[str, Saved]:
    """Where each stream of a state folder stands, without its blocks."""
    folder = state / "streams"
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    found = {name: Checkpoint(state, name).load(()) for name in names}
    return {name: saved for name, saved in found.items() if saved is not None}


@contextmanager
def locked(state: Path) -> Iterator[None]:
    """Holds a state folder for this process alone."""
    try:
        state.mkdir(parents=True, exist_ok=True)
        handle = os.open(state / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise StateError(f"the state folder {state} cannot be used: {error.strerror}") from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = os.pread(handle, 20, 0).decode(errors="replace").strip()
            holder = f"process {pid}" if pid else "another muntin"
            raise StateError(f"the state folder {state} is in use by {holder}") from None
        os.truncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(handle)


def require_free(state: Path) -> None:
    """Refuses a state folder that is in use or unusable, before anything expensive is begun."""
    with locked(state):
        pass


def _progress_json(saved: Saved) -> bytes:
    p = saved.progress
    return json.dumps(
        {
            "version": VERSION,
            "batch": saved.batch,
            "positions": [asdict(f) for f in saved.positions],
            "shapes": saved.shapes,
            "results": saved.results,
            "sources": {name: asdict(source) for name, source in p.sources.items()},
            "left": [
                [job, kind, [[end, w.revision, w.reason] for end, w in windows.items()]]
                for (job, kind), windows in p.left.items()
            ],
            "left_at": p.left_at,
            "timings": {
                job: [t.windows, t.area, t.misses, t.within_us, list(t.lags.items())]
                for job, t in p.timings.items()
            },
            "emitted": [[job, kind, end] for (job, kind), end in p.emitted.items()],
            "ledger": [tally._asdict() for tally in p.ledger],
            "choices": {shape: asdict(choice) for shape, choice in p.choices.items()},
            "late": {name: asdict(late) for name, late in p.late.items()},
            "failures": p.failures.positions,
            "frame_batch": p.frame_batch,
            "totals": [p.records, p.bad, p.bytes, p.windows],
        }
    ).encode()


def _parse_progress(data: bytes) -> Saved:
    read = json.loads(data)
    if read["version"] != VERSION:
        raise StateError(
            f"the state was written by another version of Muntin (its format is {read['version']}, "
            f"not {VERSION}); use another --state, which reads the files again"
        )
    records, bad, size, windows = read["totals"]
    progress = Progress(
        sources={name: Source(**source) for name, source in read["sources"].items()},
        left={
            (job, kind): {end: Leaving(revision, reason) for end, revision, reason in windows}
            for job, kind, windows in read["left"]
        },
        left_at=read["left_at"],
        timings={
            job: Timing(windows, area, misses, within, dict(lags))
            for job, (windows, area, misses, within, lags) in read["timings"].items()
        },
        emitted={(job, kind): end for job, kind, end in read["emitted"]},
        ledger=Ledger(Tally(**tally) for tally in read["ledger"]),
        choices={shape: Choice(**choice) for shape, choice in read["choices"].items()},
        late={name: Lateness(**late) for name, late in read["late"].items()},
        frame_batch=read["frame_batch"],
        records=records,
        bad=bad,
        bytes=size,
        windows=windows,
        failures=Failures(read.get("failures", {})),
    )
    positions = tuple(FilePosition(**f) for f in read["positions"])
    return Saved(read["batch"], progress, positions, read["shapes"], results=read["results"])


def differences(saved: Mapping[str, str], shapes: Mapping[str, str]) -> Iterator[str]:
    """What became of the jobs of the last run, in words."""
    for name in saved:
        if name not in shapes:
            yield f"job '{name}' is no longer run; its results stay"
        elif saved[name] != shapes[name]:
            yield (
                f"job '{name}' has changed, or shares panes of another size: stored results are "
                "of the old definition, and the new one answers from here on; another --state "
                "reads the files again"
            )
