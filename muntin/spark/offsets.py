"""What Spark notes of a frame's batches, beside the state that has read them: both go together.

Spark numbers the batches of a frame, and notes what is in each before it hands it over. A state
that was read up to a number takes lower ones for repetitions. So notes that were lost, or are older
than the state, would have new records taken for old ones. Spark writes to a folder of this machine.
Where the state is under a URL, its notes are copied there before a batch is final, and come from
there when the next program begins.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, cast

from muntin.errors import StateError
from muntin.store import disk, notes
from muntin.store.notes import FOLDER
from muntin.store.storage import LocalFolder, Storage

if TYPE_CHECKING:
    from muntin.store.objects import ObjectStorage


def offsets_in(state: Storage, stream: str, called: str | None = None) -> Offsets:
    """Spark's notes on a stream, which may have been called otherwise so far."""
    if isinstance(state, LocalFolder):
        before = state.path(f"{FOLDER}/{called}")
        offsets = Offsets(state, stream, state.path(f"{FOLDER}/{stream}"))
        if called is not None and before.is_dir() and not offsets.folder.exists():
            before.rename(offsets.folder)
        return offsets
    return CopiedOffsets(cast("ObjectStorage", state), stream, called)


class Offsets:
    """Spark's notes on one stream, in a folder."""

    def __init__(self, state: Storage, stream: str, folder: Path) -> None:
        self.state = state
        self.stream = stream
        self.folder = folder

    @property
    def location(self) -> str:
        """The folder as Spark has to be told: on this machine, whatever else it calls files."""
        return f"file:{self.folder.absolute()}"

    def require_with(self, read: int) -> Iterator[str]:
        """Refuses notes that do not reach the last batch that was read; tells what is missing."""
        there = LocalFolder(self.folder)
        if (refusal := notes.behind(there, self.state, self.stream, read)) is not None:
            raise StateError(refusal)
        if (missing := notes.ahead(there, self.state, self.stream, read)) is not None:
            yield missing

    def sync(self, number: int) -> None:
        """Has what is in a batch on disk before the batch is final."""
        path = self.folder / "offsets" / str(number)
        if path.exists():
            disk.sync([path, *disk.folders(path.parent, Path(self.state.where()))])


class CopiedOffsets(Offsets):
    """Spark's notes on one stream, each with a copy under the URL of the state."""

    def __init__(self, state: ObjectStorage, stream: str, called: str | None) -> None:
        self._scratch = TemporaryDirectory(prefix="muntin-notes-")
        super().__init__(state, stream, Path(self._scratch.name))
        self._copies = state.within(f"{FOLDER}/{stream}")
        self._known = set(self._copies.sizes(""))
        if called is not None and not self._known:
            before = state.within(f"{FOLDER}/{called}")
            for name in before.sizes(""):
                self._copies.put(name, before.read(name))
                self._known.add(name)
        for name in self._known:
            LocalFolder(self.folder).put(name, self._copies.read(name))

    def sync(self, number: int) -> None:
        files = (path for path in self.folder.rglob("[!.]*") if path.is_file())
        there = {str(path.relative_to(self.folder)): path for path in files}
        for name in sorted(there.keys() - self._known):
            content = there[name].read_bytes()
            # Another program that reads the frame would have other records in a batch.
            if self._copies.create(name, content) is None and self._copies.read(name) != content:
                raise StateError(
                    f"stream '{self.stream}': another program has noted batch {number:,} in "
                    f"{self._copies}, so this query stops; one program at a time can use a state"
                )
        self._copies.remove(self._known - there.keys())  # as Spark has done, for old ones
        self._known = set(there)
