"""Every complete line is handed out exactly once, whatever happens to the files."""

from __future__ import annotations

import gzip
import itertools
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from muntin.errors import InputError
from muntin.logs import watch
from muntin.logs.chunks import LINE, read_chunks
from muntin.logs.tail import Batch, FilePosition, Lane, Tail
from muntin.model import Column, Format, Stream

NOW = 2_000_000_000.0  # long after any file of a test was written


def stream(
    *patterns: Path | str,
    kind: Literal["text", "parquet"] = "text",
    on_bad_row: Literal["skip", "fail"] = "skip",
) -> Stream:
    columns = (Column(LINE, "VARCHAR"),)
    return Stream("logs", tuple(map(str, patterns)), Format(kind), columns, "x", None, on_bad_row)


def lines_of(lanes: Iterable[Lane]) -> list[str]:
    return [
        line
        for lane in lanes
        for order in lane
        for chunk in read_chunks(order, Format("text"), [])
        for line in chunk.fields[LINE].to_pylist()
    ]


class Reader:
    """A tail, and what was read from it so far."""

    def __init__(self, logs: Stream, follow: bool = True, batch_bytes: int = 1 << 20) -> None:
        self.logs, self.follow, self.batch_bytes = logs, follow, batch_bytes
        self.positions: tuple[FilePosition, ...] = ()
        self.notes: list[str] = []
        self.restart()

    def restart(self) -> None:
        self.tail = Tail(self.logs, self.follow, self.positions, self.batch_bytes)

    def batch(self) -> Batch:
        batch = self.tail.next_batch(NOW, in_order=True)
        self.positions = batch.positions
        self.notes += batch.notes
        return batch

    def read(self) -> list[str]:
        return lines_of(self.batch().lanes)

    def read_all(self) -> list[str]:
        found = []
        while True:
            batch = self.batch()
            found += lines_of(batch.lanes)
            if not batch.remaining:
                return found


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "app.log"
    path.write_text("one\ntwo\n")
    return path


@pytest.fixture
def reader(tmp_path: Path, log: Path) -> Reader:
    reader = Reader(stream(tmp_path / "*.log"))
    assert reader.read() == ["one", "two"]
    return reader


def test_growth(reader: Reader, log: Path) -> None:
    assert reader.read() == []
    append(log, "three\n")
    assert reader.read() == ["three"]
    assert reader.notes == []


def test_a_partial_line_waits_until_it_is_complete(reader: Reader, log: Path) -> None:
    append(log, "thr")
    batch = reader.batch()
    assert (batch.lanes, batch.bytes, batch.remaining) == ((), 0, 0)
    append(log, "ee\nfo")
    assert reader.read() == ["three"]
    append(log, "ur\n")
    assert reader.read() == ["four"]


def test_a_partial_line_ends_finite_input(tmp_path: Path, log: Path) -> None:
    append(log, "three")
    reader = Reader(stream(tmp_path / "*.log"), follow=False)
    assert reader.read_all() == ["one", "two", "three"]
    # What is added to that line later belongs to a line that was read.
    append(log, " more\nfour\n")
    reader.restart()
    assert reader.read_all() == ["four"]


def test_new_files_and_new_sources(tmp_path: Path) -> None:
    reader = Reader(stream(tmp_path / "{source}" / "*.log"))
    assert reader.read() == []
    for source in ("web-1", "web-2"):
        (tmp_path / source).mkdir()
        (tmp_path / source / "a.log").write_text(f"{source} a\n")
    batch = reader.batch()
    assert [lane[0].source for lane in batch.lanes] == ["web-1", "web-2"]
    assert lines_of(batch.lanes) == ["web-1 a", "web-2 a"]
    (tmp_path / "web-1" / "b.log").write_text("web-1 b\n")
    assert reader.read() == ["web-1 b"]


def test_an_empty_file_is_nothing_to_read(tmp_path: Path) -> None:
    (tmp_path / "app.log").touch()
    for follow in (True, False):
        reader = Reader(stream(tmp_path / "*.log"), follow)
        batch = reader.batch()
        assert (batch.lanes, batch.remaining, batch.notes) == ((), 0, ())


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
    rewritten = [f"{log} was truncated or rewritten; reading it from the start"]
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


def test_directories_and_dangling_links_are_not_logs(tmp_path: Path, reader: Reader) -> None:
    (tmp_path / "folder.log").mkdir()
    (tmp_path / "link.log").symlink_to(tmp_path / "nowhere")
    assert reader.read() == []
    assert reader.notes == []


def test_an_unreadable_file_is_told_once(
    tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other.log"
    other.write_text("other\n")
    deny(monkeypatch, log)
    reader = Reader(stream(tmp_path / "*.log"))
    assert reader.read() == ["other"]
    append(log, "more\n")
    assert reader.read() == []
    assert reader.notes == [f"{log} cannot be read: Permission denied"]
    monkeypatch.undo()
    assert reader.read() == ["one", "two", "more"]


def test_an_unreadable_file_does_not_hold_up_finite_input(
    tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deny(monkeypatch, log)
    reader = Reader(stream(tmp_path / "*.log"), follow=False)
    assert reader.read_all() == []
    assert reader.notes == [f"{log} cannot be read: Permission denied"]


@pytest.mark.parametrize("follow", [True, False])
def test_an_unreadable_file_is_refused_where_the_stream_says_so(
    tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch, follow: bool
) -> None:
    deny(monkeypatch, log)
    reader = Reader(stream(tmp_path / "*.log", on_bad_row="fail"), follow)
    with pytest.raises(InputError, match="cannot be read: Permission denied"):
        reader.read()


def deny(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    """Tests may run as root, to whom nothing is denied."""
    real: Any = Path.open

    def denied(self: Path, mode: str = "r", **options: Any) -> Any:
        if self == path and mode == "rb":
            raise PermissionError(13, "Permission denied")
        return real(self, mode, **options)

    monkeypatch.setattr(Path, "open", denied)


def test_restarts_give_exactly_the_rest(tmp_path: Path, log: Path) -> None:
    lines = [f"line {n}" for n in range(50)]
    log.write_text("".join(f"{line}\n" for line in lines))
    reader = Reader(stream(tmp_path / "*.log"), batch_bytes=37)
    found = []
    for _ in range(40):
        found += reader.read()
        reader.restart()
    assert found == lines


def test_a_batch_keeps_to_its_size_and_sources_advance_alike(tmp_path: Path) -> None:
    sizes = {"a": 80_000, "b": 40_000, "c": 400}
    for source, size in sizes.items():
        (tmp_path / f"{source}.log").write_text("0123456\n" * (size // 8))
    reader = Reader(stream(tmp_path / "{source}.log"), batch_bytes=30_000)
    left = sum(sizes.values())
    while left:
        batch = reader.batch()
        assert 0 < batch.bytes <= 30_000
        left -= batch.bytes
        assert batch.remaining == left
        read = {lane[0].source: lane[-1].end for lane in batch.lanes}
        assert batch.behind == {source for source, end in read.items() if end < sizes[source]}
        assert read.get("c", 400) == 400  # a little is read at once
    assert reader.read() == []


def test_backlogs_are_read_in_proportion(tmp_path: Path) -> None:
    for source, size in {"a": 80, "b": 40}.items():
        (tmp_path / f"{source}.log").write_text("x" * 999_999 + "\n")
        with (tmp_path / f"{source}.log").open("ab") as file:
            file.truncate(size * 1_000_000)  # sparse, and never read here
    tail = Tail(stream(tmp_path / "{source}.log"), follow=False, batch_bytes=12_000_000)
    batch = tail.next_batch(NOW, in_order=True)
    least = 1 << 20
    shared = 12_000_000 - 2 * least
    ends = [lane[0].end for lane in batch.lanes]
    assert ends == [least + shared * 2 // 3, least + shared // 3]
    assert batch.behind == {"a", "b"}


def test_many_sources_share_a_small_batch(tmp_path: Path) -> None:
    for n in range(30):
        (tmp_path / f"{n}.log").write_text("0123456\n" * 10)
    reader = Reader(stream(tmp_path / "{source}.log"), batch_bytes=10)
    batch = reader.batch()
    assert (len(batch.lanes), batch.bytes) == (30, 30)
    assert len(lines_of(batch.lanes) + reader.read_all()) == 300


def test_in_order_gives_one_lane_a_source_oldest_file_first(tmp_path: Path) -> None:
    for source in ("a", "b"):
        for name, modified in (("1.log", 30), ("2.log", 10), ("3.log", 20)):
            path = tmp_path / f"{source}-{name}"
            path.write_text("0123456\n" * 100)
            os.utime(path, (modified, modified))
    logs = stream(tmp_path / "{source}-*.log")
    lanes = Tail(logs, follow=False).next_batch(NOW, in_order=True).lanes
    assert [[Path(order.path).name for order in lane] for lane in lanes] == [
        ["a-2.log", "a-3.log", "a-1.log"],
        ["b-2.log", "b-3.log", "b-1.log"],
    ]
    tail = Tail(logs, follow=False, lane_bytes=100, lanes=4)
    batch = tail.next_batch(NOW, in_order=False)
    assert all(len(lane) == 1 for lane in batch.lanes)
    assert len(lines_of(batch.lanes)) == 600
    assert max(lane[0].end - lane[0].start for lane in batch.lanes) <= 1200


def test_gzip_is_read_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "old.log.gz"
    path.write_bytes(gzip.compress(b"one\ntwo\n"))
    modified = path.stat().st_mtime
    logs = stream(tmp_path / "*.log.gz")
    tail = Tail(logs, follow=True)
    assert tail.next_batch(modified + 1.9, in_order=True).lanes == ()
    batch = tail.next_batch(modified + 2.1, in_order=True)
    assert lines_of(batch.lanes) == ["one", "two"]
    assert (batch.bytes, batch.remaining) == (8 * path.stat().st_size, 0)
    assert tail.next_batch(NOW, in_order=True).lanes == ()
    with path.open("ab") as file:
        file.write(gzip.compress(b"three\n"))
    tail = Tail(logs, follow=True, positions=batch.positions)
    assert lines_of(tail.next_batch(NOW, in_order=True).lanes) == ["three"]


def test_a_clock_that_runs_ahead_does_not_hide_a_file(tmp_path: Path) -> None:
    path = tmp_path / "old.log.gz"
    path.write_bytes(gzip.compress(b"one\n"))
    os.utime(path, (NOW + 3600, NOW + 3600))
    tail = Tail(stream(tmp_path / "*.log.gz"), follow=True)
    assert tail.next_batch(NOW, in_order=True).lanes == ()
    assert lines_of(tail.next_batch(NOW + 2, in_order=True).lanes) == ["one"]


def write_parquet(path: Path, rows: list[int], groups_of: int = 10) -> None:
    pa.parquet.write_table(pa.table({"n": rows}), path, row_group_size=groups_of)


def rows_of(lanes: Iterable[Lane]) -> list[int]:
    return [
        n
        for lane in lanes
        for order in lane
        for chunk in read_chunks(order, Format("parquet"), ["n"])
        for n in chunk.fields["n"].to_pylist()
    ]


@pytest.mark.parametrize("follow", [True, False])
def test_parquet_is_cut_between_row_groups(tmp_path: Path, follow: bool) -> None:
    path = tmp_path / "a.parquet"
    write_parquet(path, list(range(100)))
    reader = Reader(stream(tmp_path / "*.parquet", kind="parquet"), follow)
    reader.batch_bytes = path.stat().st_size // 4
    found = []
    for _ in range(10):
        reader.restart()
        batch = reader.batch()
        assert batch.bytes <= reader.batch_bytes
        found += rows_of(batch.lanes)
    assert found == list(range(100))
    logs = stream(tmp_path / "*.parquet", kind="parquet")
    lanes = Tail(logs, follow, lane_bytes=1, lanes=5).next_batch(NOW, in_order=False).lanes
    assert len(lanes) >= 5
    assert rows_of(lanes) == list(range(100))


def test_parquet_in_the_making_is_told_and_read_later(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(b"PAR1 to be continued")
    reader = Reader(stream(tmp_path / "*.parquet", kind="parquet"))
    assert reader.batch().lanes == reader.batch().lanes == ()
    (note,) = reader.notes
    assert note.startswith(f"{path} cannot be read: ")
    write_parquet(path, [1, 2])
    assert rows_of(reader.batch().lanes) == [1, 2]
    assert reader.notes == [note]
    write_parquet(path, [3])
    assert rows_of(reader.batch().lanes) == [3]
    assert reader.notes[1:] == [f"{path} was truncated or rewritten; reading it from the start"]


def test_finite_input_is_what_was_there_first(tmp_path: Path, log: Path) -> None:
    log.write_text("one\ntwo\nthree\n")
    reader = Reader(stream(tmp_path / "*.log"), follow=False, batch_bytes=4)
    assert reader.read() == ["one"]
    append(log, "four\n")
    (tmp_path / "new.log").write_text("new\n")
    assert reader.read_all() == ["two", "three"]
    reader.restart()
    assert reader.read_all() == ["four", "new"]


def test_finite_input_is_found_after_rotation(tmp_path: Path, log: Path) -> None:
    reader = Reader(stream(tmp_path / "*.log"), follow=False, batch_bytes=4)
    assert reader.read() == ["one"]
    log.rename(tmp_path / "app.log.1")
    log.write_text("newer\n")
    assert reader.read_all() == ["two"]
    assert reader.notes == []


def test_finite_input_that_goes_away_is_told(tmp_path: Path, log: Path) -> None:
    reader = Reader(stream(tmp_path / "*.log"), follow=False, batch_bytes=4)
    assert reader.read() == ["one"]
    log.unlink()
    batch = reader.batch()
    assert (batch.lanes, batch.remaining, batch.notes) == (
        (),
        0,
        (f"{log} was removed before it was read",),
    )


@pytest.mark.parametrize("text", ["", "one\n", "all different\n"])
def test_finite_input_that_is_rewritten_is_told_and_not_read_twice(
    tmp_path: Path, log: Path, text: str
) -> None:
    log.write_text("one\ntwo\nthree\n")
    reader = Reader(stream(tmp_path / "*.log"), follow=False, batch_bytes=5)
    assert reader.read() == ["one", "two"]
    log.write_text(text)
    batch = reader.batch()
    told = (f"{log} was cut or rewritten before it was read",)
    assert (batch.lanes, batch.remaining, batch.notes) == ((), 0, told)


def test_patterns_must_match_something(tmp_path: Path) -> None:
    tail = Tail(stream(tmp_path / "*.log", "/nowhere/at/all"), follow=False)
    expected = f"stream 'logs': no file matches '{tmp_path}/\\*.log' or '/nowhere/at/all'"
    with pytest.raises(InputError, match=f"{expected}$"):
        tail.require_files()
    with pytest.raises(InputError, match=f"no file matches 'none/x' in {Path.cwd()}$"):
        Tail(stream("none/x"), follow=False).require_files()


def test_who_follows_is_told_that_nothing_matches_yet(tmp_path: Path, log: Path) -> None:
    reader = Reader(stream(tmp_path / "*.lgo"))
    assert (reader.read(), reader.read()) == ([], [])
    (told,) = reader.notes
    assert told == f"stream 'logs': no file matches '{tmp_path}/*.lgo' yet; waiting for one"
    log.rename(tmp_path / "app.lgo")
    assert reader.read() == ["one", "two"]


def test_a_file_that_two_patterns_match_is_read_once(tmp_path: Path, log: Path) -> None:
    reader = Reader(stream(tmp_path / "*.log", tmp_path / "app.*"))
    assert reader.read() == ["one", "two"]
    assert reader.read() == []


def test_files_that_did_not_change_are_not_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(20):
        (tmp_path / f"{n}.log").write_text(f"{n}\n")
    reader = Reader(stream(tmp_path / "*.log"), batch_bytes=1)
    reader.read()

    def opened(*_: object) -> None:
        raise AssertionError("opened")

    for name in ("holds", "last_line_end"):
        monkeypatch.setattr(watch, name, opened)
    assert reader.read_all() == []


class Rotation(RuleBasedStateMachine):
    """Two servers that write and rotate as they like, and a reader that may crash at any time.

    The oracle: no line is read twice, and every complete line is read that nobody took away
    before it could be. Only truncation, deletion and renaming a log that was never seen take
    lines away.
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
        self.rotated: dict[str, Path] = {}
        self.numbers = itertools.count()
        self.complete: set[str] = set()
        self.takeable: set[str] = set()
        self.found: list[str] = []
        self.saved: tuple[FilePosition, ...] = ()
        self.planned: Batch | None = None
        self.crash()

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            self.drain()
            shutil.rmtree(self.folder)

    @rule(server=servers, count=st.integers(0, 12), tail=st.sampled_from(["", "par"]))
    def write(self, server: str, count: int, tail: str) -> None:
        self._append(self._log(server), count, tail)

    @rule(server=servers, count=st.integers(0, 3))
    def write_to_the_rotated(self, server: str, count: int) -> None:
        if server in self.rotated:
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

    @rule()
    def read(self) -> None:
        if self.planned is None:
            return
        for lane in self.planned.lanes:
            for order in lane:
                with suppress(InputError):
                    self.found += lines_of([(order,)])
        self.saved = self.planned.positions
        self.unseen -= self.seen
        self.planned = None

    @rule()
    def crash(self) -> None:
        """What was planned but not read is planned again."""
        self.planned = None
        logs = stream(self.folder / "{source}" / self.pattern)
        self.tail = Tail(logs, True, self.saved, self.batch_bytes)

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

    def _take_away(self, log: Path) -> None:
        self.takeable |= set(_complete_lines(log)) - set(self.found)


def _complete_lines(log: Path) -> list[str]:
    return log.read_text().split("\n")[:-1]


TestRotation = Rotation.TestCase
TestRotation.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
