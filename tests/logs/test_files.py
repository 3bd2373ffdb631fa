"""Logs that are renamed, cut, copied and replaced: no line is lost, and none is read twice."""

from __future__ import annotations

import gzip
import itertools
import shutil
import tempfile
import time
from collections.abc import Callable, Collection
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from muntin.errors import InputError
from muntin.logs.tail import Batch, FilePosition, Tail
from tests.effort import examples
from tests.logs.reading import LOOKS, NOW, Reader, append, lines_of, squeeze, stream


@pytest.mark.parametrize("pattern", ["app.log", "app.log*"])
def test_rotation_by_rename(tmp_path: Path, log: Path, pattern: str) -> None:
    reader = Reader(stream(tmp_path / pattern))
    assert reader.read() == ["one", "two"]
    append(log, "three\n")
    log.rename(tmp_path / "app.log.1")
    log.write_text("four\n")
    assert sorted(reader.read()) == ["four", "three"]
    # The writer has not noticed yet.
    append(tmp_path / "app.log.1", "late\n")
    assert reader.read() == ["late"]
    (tmp_path / "app.log.1").rename(tmp_path / "app.log.2")
    log.rename(tmp_path / "app.log.1")
    append(tmp_path / "app.log.2", "later\n")
    append(tmp_path / "app.log.1", "five\n")
    assert sorted(reader.read()) == ["five", "later"]
    assert {file.source for file in reader.positions} == {"app.log"}
    assert reader.notes == []


def test_what_was_renamed_keeps_its_place_over_restarts(reader: Reader, log: Path) -> None:
    append(log, "three\n")
    log.rename(log.with_name("app.old"))
    log.write_text("four\n")
    reader.restart()
    assert sorted(reader.read()) == ["four", "three"]
    reader.restart()
    assert reader.read() == []


@pytest.mark.parametrize("away", ["web/old", "archive"])
def test_rotation_into_another_folder(tmp_path: Path, away: str) -> None:
    log, old = tmp_path / "web" / "app.log", tmp_path / away / "app.log.1"
    for folder in (log.parent, old.parent):
        folder.mkdir(exist_ok=True)
    log.write_text("one\n")
    reader = Reader(stream(tmp_path / "web" / "*.log"))
    assert reader.read() == ["one"]
    append(log, "two\n")
    batch = reader.batch()
    append(log, "three\n")
    log.rename(old)
    log.write_text("four\n")
    assert lines_of(batch.lanes) == ["two"]
    assert sorted(reader.read()) == ["four", "three"]
    append(old, "late\n")
    assert reader.read() == ["late"]
    append(log, "five\n")
    log.rename(old.with_name("app.log.2"))
    reader.restart()
    assert reader.read() == ["five"]
    assert reader.notes == []


def test_an_empty_log_is_not_looked_for_elsewhere(tmp_path: Path) -> None:
    """Another file may have its inode by then, and nothing tells them apart."""
    log, other = tmp_path / "web" / "app.log", tmp_path / "other" / "secret.txt"
    for path in (log, other):
        path.parent.mkdir()
    log.write_text("")
    reader = Reader(stream(tmp_path / "web" / "*.log"))
    assert reader.read() == []
    log.rename(other)
    append(other, "password\n")
    assert reader.read() == []


def test_odd_entries_near_a_log_are_passed_over(tmp_path: Path) -> None:
    log, old = tmp_path / "web" / "app.log", tmp_path / "old" / "app.log"
    for path in (log, old):
        path.parent.mkdir()
    for folder in (tmp_path, log.parent, old.parent):
        for name in ("a", "z"):
            (folder / name).symlink_to(folder / name)
    log.write_text("one\n")
    reader = Reader(stream(tmp_path / "web" / "*.log"))
    append(log, "two\n")
    batch = reader.batch()
    log.rename(old)
    assert lines_of(batch.lanes) == ["one", "two"]
    append(old, "three\n")
    assert reader.read() == ["three"]


def test_a_rotated_log_that_nobody_writes_is_let_go(tmp_path: Path, log: Path) -> None:
    reader = Reader(stream(tmp_path / "*.log"))
    assert reader.read() == ["one", "two"]
    old = log.rename(tmp_path / "app.old")
    append(old, "three\n")
    assert reader.read() == ["three"]
    kept = [len(reader.tail.next_batch(NOW + s, True).positions) for s in (3599, 3601)]
    assert kept == [1, 0]
    assert (reader.read(), reader.notes) == ([], [])


def test_rotation_between_planning_and_reading(reader: Reader, log: Path) -> None:
    append(log, "three\n")
    batch = reader.batch()
    log.rename(log.with_name("app.old"))
    log.write_text("four\n")
    assert lines_of(batch.lanes) == ["three"]
    assert reader.read() == ["four"]


def test_renamed_behind_a_link(tmp_path: Path) -> None:
    (tmp_path / "pods").mkdir()
    target = tmp_path / "pods" / "0.log"
    target.write_text("one\n")
    (tmp_path / "web.log").symlink_to(target)
    reader = Reader(stream(tmp_path / "*.log"))
    assert reader.read() == ["one"]
    append(target, "two\n")
    target.rename(tmp_path / "pods" / "0.log.1")
    target.write_text("three\n")
    assert sorted(reader.read()) == ["three", "two"]


def truncate(log: Path, text: str) -> None:
    log.write_text(text)


def replace_inode(log: Path, text: str) -> None:
    log.unlink()
    log.write_text(text)  # often with the inode that has just become free


@pytest.mark.parametrize("again", [truncate, replace_inode])
@pytest.mark.parametrize("text", ["new\n", "new, and longer than it was\n", "n1\nn2\nn3\n"])
def test_truncation_starts_again(
    reader: Reader, log: Path, again: Callable[[Path, str], None], text: str
) -> None:
    inode = log.stat().st_ino
    again(log, text)
    assert reader.read() == text.splitlines()
    lost = "what it got since it was read is lost"
    rewritten = [f"{log} was truncated or rewritten; reading it from the start; {lost}"]
    assert reader.notes == (rewritten if log.stat().st_ino == inode else [])
    assert reader.read() == []


def test_a_copy_made_before_truncation_goes_on_where_the_log_was(tmp_path: Path, log: Path) -> None:
    reader = Reader(stream(tmp_path / "app.log*"))
    assert reader.read() == ["one", "two"]
    append(log, "three\n")
    shutil.copyfile(log, tmp_path / "app.log.1")
    log.write_text("four\n")
    assert sorted(reader.read()) == ["four", "three"]
    assert reader.notes == []


def test_a_log_replaced_by_a_longer_copy_goes_on(reader: Reader, log: Path) -> None:
    """As rsync does on every run."""
    for text in ("three\n", "four\n"):
        copy = log.with_name(".app.log.tmp")
        copy.write_text(log.read_text() + text)
        copy.replace(log)
        assert reader.read() == text.splitlines()
    assert reader.notes == []


def test_an_inode_used_again_by_another_source(tmp_path: Path) -> None:
    """The file system hands out freed inodes; we make sure by renaming over."""
    for source in ("a", "b"):
        (tmp_path / source).mkdir()
    old = tmp_path / "a" / "app.log"
    old.write_text("one\ntwo\n")
    reader = Reader(stream(tmp_path / "{source}" / "*.log"))
    assert reader.read() == ["one", "two"]
    new = old.rename(tmp_path / "b" / "app.log")
    new.write_text("other\n")
    batch = reader.batch()
    assert [lane[0].source for lane in batch.lanes] == ["b"]
    assert lines_of(batch.lanes) == ["other"]
    assert reader.notes == [f"{old} is gone; source 'a' has ended"]


def test_a_source_that_disappears_is_told_once(reader: Reader, log: Path) -> None:
    log.unlink()
    assert reader.read() == []
    assert reader.read() == []
    assert reader.notes == [f"{log} is gone; source 'app.log' has ended"]
    log.write_text("back\n")
    assert reader.read() == ["back"]


def test_bytes_lost_with_a_file_are_told(tmp_path: Path, log: Path) -> None:
    reader = Reader(stream(tmp_path / "*.log"), batch_bytes=4)
    assert reader.read() == ["one"]
    log.unlink()
    assert reader.read() == []
    assert reader.notes == [f"{log} is gone; 4 bytes of it were not read"]


def test_old_logs_may_go_without_a_word(reader: Reader, log: Path) -> None:
    log.rename(log.with_name("app.old"))
    log.write_text("three\n")
    assert reader.read() == ["three"]
    log.with_name("app.old").unlink()
    assert reader.read() == []
    assert reader.notes == []
    assert len(reader.positions) == 1


class Rotation(RuleBasedStateMachine):
    """Two servers that write and rotate as they like, and a reader that may crash at any time.

    The oracle: no line is read twice, and every complete line is read that nobody took away
    before it could be. Only truncation, deletion and renaming or compressing a log that was never
    seen, or was empty when it was, take lines away. Of those that were seen and not read, it is
    told that they are lost.
    """

    servers = st.sampled_from(["web-1", "web-2"])

    @initialize(pattern=st.sampled_from(["app.log", "app.log*"]), batch_bytes=st.integers(1, 200))
    def start(self, pattern: str, batch_bytes: int) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="rotation"))
        for server in ("web-1", "web-2"):
            (self.folder / server).mkdir()
        self.pattern, self.batch_bytes = pattern, batch_bytes
        self.unseen: set[int] = set()  # inodes of files that are new since the last look
        self.seen: set[int] = set()  # of these, those that were planned
        self.hidden: set[int] = set()  # inodes renamed away before anybody saw them
        self.empty: set[int] = set()  # inodes of files that had nothing at the last look
        self.rotated: dict[str, Path] = {}
        self.numbers = itertools.count()
        self.complete: set[str] = set()
        self.takeable: set[str] = set()
        self.found: list[str] = []
        self.saved: tuple[FilePosition, ...] = ()
        self.planned: Batch | None = None
        self.copied: dict[str, tuple[Path, int]] = {}  # copies, with the inodes of their logs
        self.looked_at: set[str] = set()  # lines that were there at the last look
        self.owed: dict[str, set[str]] = {}  # lines of servers that are to be told as lost
        self.told: set[str] = set()
        self.crash()

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            self.drain()
            untold = {s: lines for s, lines in self.owed.items() if s not in self.told}
            assert set().union(*untold.values()) <= set(self.found)
            shutil.rmtree(self.folder)

    @rule(server=servers, count=st.integers(0, 12), tail=st.sampled_from(["", "par"]))
    def write(self, server: str, count: int, tail: str) -> None:
        self._append(self._log(server), count, tail)

    @rule(server=servers, count=st.integers(0, 3))
    def write_to_the_rotated(self, server: str, count: int) -> None:
        if server in self.rotated and self.rotated[server].exists():
            self._append(self.rotated[server], count, "")

    @rule(server=servers)
    def rename(self, server: str) -> None:
        log = self._log(server)
        if log.exists():
            inode = log.stat().st_ino
            if self.pattern == "app.log" and inode in self.unseen:
                self.hidden.add(inode)
                self._take_away(log)
            self.rotated[server] = log.rename(self._aside(server))

    @rule(server=servers, keep=st.booleans(), count=st.integers(0, 12))
    def truncate(self, server: str, keep: bool, count: int) -> None:
        """Copies the log first; the copy keeps what was not read if the pattern matches it."""
        log = self._log(server)
        if log.exists():
            kept = keep and self.pattern == "app.log*"
            if not kept:
                self._take_away(log)
            shutil.copyfile(log, self._aside(server) if kept else log.with_name("copy"))
            log.write_text("")
            self._renew(log.stat().st_ino)
            self._append(log, count, "")

    @rule(server=servers)
    def compress(self, server: str) -> None:
        """Compresses what was rotated last, or the log at once."""
        path = self.rotated.pop(server, None)
        if path is None:
            self.rename(server)
            path = self.rotated.pop(server, None)
        if path is not None and path.exists():
            inode = path.stat().st_ino
            if inode in self.hidden or self._is_new_to_all(path):
                self._take_away(path)
            elif self.pattern == "app.log" and inode in self.empty:
                # Nothing of it is known by which the compressed file could be recognised.
                self._take_away(path)
                self.owed[server].update(set(_complete_lines(path)) - set(self.found))
            # The last line of a compressed file counts, if it has an end or not.
            last = {path.read_text().rpartition("\n")[2]} - {""}
            self.complete |= last
            self.takeable |= last
            squeeze(path)

    @rule(server=servers)
    def copy(self, server: str) -> None:
        """The first half of copytruncate."""
        log = self._log(server)
        if log.exists():
            self.copied[server] = self._aside(server), log.stat().st_ino
            shutil.copyfile(log, self.copied[server][0])

    @rule(server=servers)
    def cut(self, server: str) -> None:
        """The second half: what was written between is taken away.

        A copy of a log that was replaced meanwhile is not known as one of the new log.
        """
        log, (copy, inode) = self._log(server), self.copied.pop(server, (None, 0))
        if copy is not None and copy.exists() and log.exists():
            is_known = self.pattern == "app.log*" and inode == log.stat().st_ino
            kept = _complete_lines(copy) if is_known else []
            whole = set(_complete_lines(log))
            if not set(_complete_lines(copy)) <= whole:
                return  # it is another log by now
            self._take_away(log, set(kept))
            log.write_text("")
            self._renew(log.stat().st_ino)

    @rule(server=servers)
    def delete_oldest(self, server: str) -> None:
        old = sorted(
            (self.folder / server).glob("app.log.*"), key=lambda path: path.stat().st_mtime
        )
        for path in old[:1]:
            self._take_away(path)
            path.unlink()

    @rule(server=servers, count=st.integers(0, 3))
    def replace(self, server: str, count: int) -> None:
        log = self._log(server)
        if log.exists():
            copy = log.with_name("next")
            text = log.read_text()
            self._append(copy, 0, text)
            copy.replace(log)
            self._append(log, count, "")

    @rule(server=servers)
    def delete(self, server: str) -> None:
        log = self._log(server)
        if log.exists():
            self._take_away(log)
            log.unlink()

    @rule()
    def plan(self) -> None:
        self.read()
        self.seen = set(self.unseen)
        self.planned = self.tail.next_batch(time.time(), in_order=True)
        logs = [path for path in self.folder.glob("*/app.log*") if not path.stat().st_size]
        self.empty = {path.stat().st_ino for path in logs}
        self.looked_at = {
            line for path in self.folder.glob(f"*/{self.pattern}") for line in _complete_lines(path)
        }

    @rule()
    def read(self) -> None:
        if self.planned is None:
            return
        for lane in self.planned.lanes:
            for order in lane:
                try:
                    self.found += lines_of([(order,)])
                except InputError:
                    self.told.add(order.source)
        self.told |= {loss.source for loss in self.planned.lost}
        self.saved = self.planned.positions
        self.unseen -= self.seen
        self.planned = None

    @rule()
    def crash(self) -> None:
        """What was planned but not read is planned again."""
        self.planned = None
        self.looked_at, self.owed = set(), {}
        logs = stream(self.folder / "{source}" / self.pattern)
        self.tail = Tail(logs, True, self.saved, self.batch_bytes, events=LOOKS.events())

    @rule()
    def drain(self) -> None:
        """Whatever is left can be read in the end."""
        self.plan()
        while self.planned is not None and (self.planned.lanes or self.planned.remaining):
            self.plan()
        assert self.complete - set(self.found) <= self.takeable

    @invariant()
    def nothing_twice_and_nothing_in_part(self) -> None:
        if hasattr(self, "found"):
            assert len(self.found) == len(set(self.found))
            assert set(self.found) <= self.complete

    def _log(self, server: str) -> Path:
        return self.folder / server / "app.log"

    def _aside(self, server: str) -> Path:
        return self.folder / server / f"app.log.{next(self.numbers)}"

    def _append(self, log: Path, count: int, tail: str) -> None:
        new = not log.exists()
        tail += f"{next(self.numbers)} " if tail == "par" else ""
        append(log, "".join(f"line {next(self.numbers)}\n" for _ in range(count)) + tail)
        inode = log.stat().st_ino
        if new:
            self._renew(inode)
        self.complete |= set(_complete_lines(log))
        if inode in self.hidden:
            self._take_away(log)

    def _renew(self, inode: int) -> None:
        self.unseen.add(inode)
        self.seen.discard(inode)
        self.hidden.discard(inode)

    def _take_away(self, log: Path, kept: Collection[str] = ()) -> None:
        gone = set(_complete_lines(log)) - set(self.found) - set(kept)
        self.takeable |= gone
        elsewhere = {
            line
            for path in log.parent.glob("app.log*")
            if path != log
            for line in _complete_lines(path)
        }
        self.owed.setdefault(log.parent.name, set()).update(gone & self.looked_at - elsewhere)

    def _is_new_to_all(self, path: Path) -> bool:
        return self.pattern == "app.log" and path.stat().st_ino in self.unseen


def _complete_lines(log: Path) -> list[str]:
    text = gzip.decompress(log.read_bytes()) if log.suffix == ".gz" else log.read_bytes()
    return text.decode().split("\n")[:-1]


TestRotation = Rotation.TestCase
TestRotation.settings = settings(examples(60), stateful_step_count=30)
