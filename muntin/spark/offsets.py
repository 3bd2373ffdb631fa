"""What Spark notes of a frame's batches, beside the state that has read them: both go together.

Spark numbers the batches of a frame, and notes what is in each before it hands it over. A state
that was read up to a number takes lower ones for repetitions. So notes that were lost, or are older
than the state, would have new records taken for old ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from muntin.errors import StateError
from muntin.store import disk


@dataclass(frozen=True)
class Offsets:
    """Spark's notes on one stream of a state folder."""

    state: Path
    stream: str

    @property
    def folder(self) -> Path:
        return self.state / "spark" / self.stream

    @property
    def location(self) -> str:
        """The folder as Spark has to be told: on this machine, whatever else it calls files."""
        return f"file:{self.folder.absolute()}"

    def take_over(self, called: str) -> None:
        """Goes on with the notes on a stream that was called otherwise."""
        before = Offsets(self.state, called).folder
        if before.is_dir() and not self.folder.exists():
            before.rename(self.folder)

    def require_with(self, read: int) -> Iterator[str]:
        """Refuses notes that do not reach the last batch that was read; tells what is missing."""
        noted, done = _last(self.folder / "offsets"), _last(self.folder / "commits")
        if noted < read:
            there = f"go up to batch {noted:,}" if noted >= 0 else "are gone"
            raise StateError(
                f"stream '{self.stream}': Spark's notes in {self.folder} {there}, but the state "
                f"has read batch {read:,}, so new records would be taken for old ones; put back "
                f"notes and state of the same time, or remove both {self.folder} and "
                f"{self.state / 'streams' / self.stream} to read the frame from its start"
            )
        if done > read:
            since = f"batch {read:,}" if read >= 0 else "none"
            yield (
                f"stream '{self.stream}': Spark has handed over batches up to {done:,}, and the "
                f"state has read {since}; it was lost or is older, and the records between are "
                f"missing; remove {self.folder} too to read the frame from its start"
            )

    def sync(self, number: int) -> None:
        """Has what is in a batch on disk before the batch is final."""
        path = self.folder / "offsets" / str(number)
        if path.exists():
            disk.sync([path, *disk.folders(path.parent, self.state)])


def _last(folder: Path) -> int:
    """The largest number that a file has for a name, or -1."""
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    return max((int(name) for name in names if name.isdigit()), default=-1)
