"""Bytes are read once, whatever file they are in, and those that nobody can read are lost."""

from __future__ import annotations

import gzip
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from muntin.fidelity.losses import Loss
from muntin.logs.tail import Batch
from tests.logs.reading import NOW, Reader, append, lines_of, squeeze, stream

LONG = "".join(f"2026-03-01 12:00:{n:02} line {n}\n" for n in range(40))  # more than a fingerprint


def numbers(lines: list[str]) -> list[int]:
    return [int(line.rpartition(" ")[2]) for line in lines]


class Log:
    """A log of numbered lines that is rotated."""

    def __init__(self, folder: Path, name: str = "access.log") -> None:
        self.path = folder / name
        self.count = 0

    def write(self, lines: int) -> None:
        text = [f"2026-03-01 12:00:00 GET /index.html 200 {self.count + n}\n" for n in range(lines)]
        append(self.path, "".join(text))
        self.count += lines


@pytest.fixture
def access(tmp_path: Path) -> Log:
    log = Log(tmp_path)
    log.write(30)
    return log


def follow(folder: Path, pattern: str = "access.log*") -> Reader:
    reader = Reader(stream(folder / pattern))
    assert numbers(reader.read()) == list(range(30))
    return reader


@contextmanager
def nobody() -> Iterator[Path]:
    """A folder, in which the process may do what anybody may: root is denied nothing."""
    folder = Path(tempfile.mkdtemp(prefix="nobody"))
    folder.chmod(0o777)
    user = os.geteuid()
    try:
        if user == 0:
            os.seteuid(65534)
        yield folder
    finally:
        os.seteuid(user)
        for path in [folder, *folder.rglob("*")]:
            path.chmod(0o777)
        shutil.rmtree(folder)


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("look_between", [False, True])
def test_a_copy_made_by_copytruncate_is_the_same_bytes(
    tmp_path: Path, access: Log, restart: bool, look_between: bool
) -> None:
    reader = follow(tmp_path)
    access.write(5)
    shutil.copyfile(access.path, tmp_path / "access.log.1")
    found = reader.read() if look_between else []
    if restart:
        reader.restart()
    access.path.write_text("")
    access.write(3)
    found += reader.read()
    found += reader.read()
    assert sorted(numbers(found)) == list(range(30, 38))
    assert all(note.endswith("reading it from the start") for note in reader.notes)
    reader.restart()
    assert reader.read() == []


def test_a_copy_that_stays_is_read_once(tmp_path: Path, access: Log) -> None:
    reader = follow(tmp_path)
    shutil.copyfile(access.path, tmp_path / "access.log.bak")
    assert reader.read() == []
    access.write(2)
    assert numbers(reader.read()) == [30, 31]
    reader.restart()
    assert reader.read() == []
    access.path.unlink()
    assert reader.read() == []


def test_what_begins_alike_is_no_copy_once_it_goes_on(tmp_path: Path) -> None:
    one, two = tmp_path / "app.log", tmp_path / "app-debug.log"
    for path in (one, two):
        path.write_text("starting\n")
    reader = Reader(stream(tmp_path / "*.log"))
    assert reader.read() == ["starting"]
    append(one, "one\n")
    append(two, "two\n")
    assert sorted(reader.read()) == ["one", "two"]
    append(two, "three\n")
    assert reader.read() == ["three"]


def test_servers_may_write_the_same(tmp_path: Path) -> None:
    for name in ("web-1.log", "web-2.log", "web-10.log"):
        (tmp_path / name).write_text(LONG)
    for named in ("*.log", "{source}.log"):
        assert len(Reader(stream(tmp_path / named)).read()) == 120


def test_finite_input_with_copies_is_read_once_and_told(tmp_path: Path, access: Log) -> None:
    copy = tmp_path / "access.log.1"
    shutil.copyfile(access.path, copy)
    shutil.copyfile(access.path, tmp_path / "keep")
    packed = squeeze(tmp_path / "keep", tmp_path / "access.log.2.gz")
    reader = Reader(stream(tmp_path / "access.log*"), follow=False)
    assert numbers(reader.read_all()) == list(range(30))
    told = {f"{path} is a copy of {access.path}, and is read once" for path in (copy, packed)}
    assert set(reader.notes) == told


Rotate = Callable[[Log], None]


def compress_at_once(log: Log) -> None:
    squeeze(log.path.rename(log.path.with_name("access.log.1")))


def compress_with_a_date(log: Log) -> None:
    squeeze(log.path.rename(log.path.with_name("access.log-20260301")))


def compress_before_the_end(log: Log) -> None:
    squeeze(log.path.rename(log.path.with_name("access-20260301.log")))


def shift_and_compress(log: Log) -> None:
    compress_at_once(log)
    log.path.with_name("access.log.1.gz").rename(log.path.with_name("access.log.2.gz"))


def copy_truncate_and_compress(log: Log) -> None:
    copy = log.path.with_name("access.log.1")
    shutil.copyfile(log.path, copy)
    squeeze(copy)
    log.path.write_text("")


def compress_in_parts(log: Log) -> None:
    """As tools do that compress blocks side by side."""
    text = log.path.read_bytes()
    parts = [text[i : i + 500] for i in range(0, len(text), 500)]
    log.path.with_name("access.log.1.gz").write_bytes(b"".join(map(gzip.compress, parts)))
    log.path.unlink()


ROTATIONS = [
    compress_at_once,
    compress_with_a_date,
    compress_before_the_end,
    shift_and_compress,
    copy_truncate_and_compress,
    compress_in_parts,
]


@pytest.mark.parametrize("unread", [0, 4])
@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("pattern", ["access*log*", "access.log"])
@pytest.mark.parametrize("rotate", ROTATIONS)
def test_a_log_that_is_compressed_at_once_goes_on_within(
    tmp_path: Path, access: Log, rotate: Rotate, pattern: str, restart: bool, unread: int
) -> None:
    reader = follow(tmp_path, pattern)
    access.write(unread)
    rotate(access)
    access.write(3)
    if restart:
        reader.restart()
    found = numbers([*reader.read(), *reader.read(), *reader.read()])
    assert sorted(found) == list(range(30, 33 + unread))
    assert [note for note in reader.notes if "truncated" not in note] == []
    assert reader.lost == []
    reader.restart()
    assert reader.read() == []


def test_rotated_logs_are_compressed_one_after_another(tmp_path: Path, access: Log) -> None:
    reader = follow(tmp_path)
    for _ in range(4):
        access.write(10)
        reader.read()
        access.write(2)
        for n in (3, 2):
            packed = tmp_path / f"access.log.{n}.gz"
            if packed.exists():
                packed.rename(tmp_path / f"access.log.{n + 1}.gz")
        if (old := tmp_path / "access.log.1").exists():
            squeeze(old, tmp_path / "access.log.2.gz")
        access.path.rename(old)
        access.write(1)
        reader.read()
    reader.restart()
    reader.read()
    assert sorted(numbers(reader.found)) == list(range(access.count))
    assert len(reader.found) == access.count
    assert reader.lost == []


def test_a_batch_is_read_from_the_compressed_file_if_the_log_is_gone(
    tmp_path: Path, access: Log
) -> None:
    reader = follow(tmp_path)
    access.write(5)
    batch = reader.batch()
    compress_at_once(access)
    assert numbers(lines_of(batch.lanes)) == list(range(30, 35))
    assert reader.read() == []


def test_a_compressed_copy_is_waited_for_until_it_is_complete(tmp_path: Path, access: Log) -> None:
    reader = follow(tmp_path)
    access.write(4)
    assert reader.tail.next_batch(NOW, True, 1).remaining  # seen, and not read
    compress_at_once(access)
    packed = tmp_path / "access.log.1.gz"
    os.utime(packed, (NOW, NOW))
    batch = reader.tail.next_batch(NOW + 1, in_order=True)
    assert (batch.lost, set(batch.behind)) == ((), {"access.log"})
    reader.positions = batch.positions
    reader.restart()
    batch = reader.tail.next_batch(NOW + 3, in_order=True)
    assert numbers(lines_of(batch.lanes))[-1] == 33
    assert batch.lost == ()


def test_a_compressed_copy_may_come_later_from_elsewhere(tmp_path: Path, access: Log) -> None:
    reader = follow(tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    squeeze(access.path, elsewhere / "x.gz")
    assert reader.read() == []
    (elsewhere / "x.gz").rename(tmp_path / "access.log.1.gz")
    assert reader.read() == []


def lost(batch: Batch) -> list[tuple[str, str, int | None]]:
    return [(loss.source, loss.why, loss.bytes) for loss in batch.lost]


def some_read(folder: Path, log: Log, pattern: str = "access.log*") -> tuple[Reader, int]:
    """Reads a part of a log, and says how many bytes were seen and not read."""
    reader = Reader(stream(folder / pattern), batch_bytes=200)
    assert reader.read()
    return reader, log.path.stat().st_size - 200


def test_a_log_that_is_deleted_with_unread_bytes_is_lost(tmp_path: Path, access: Log) -> None:
    reader, left = some_read(tmp_path, access)
    access.path.unlink()
    batch = reader.batch()
    assert lost(batch) == [("access.log", "is gone", left)]
    assert batch.notes == (f"{access.path} is gone; {left:,} bytes of it were not read",)
    assert reader.batch().lost == ()


def test_what_a_log_got_before_it_was_deleted_is_lost(tmp_path: Path, access: Log) -> None:
    reader = follow(tmp_path)
    append(access.path, "last words\n")
    access.path.unlink()
    assert lost(reader.batch()) == [("access.log", "is gone", len("last words\n"))]


def test_what_an_empty_log_got_before_it_was_deleted_is_lost(tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    log.touch()
    reader = Reader(stream(log))
    assert reader.read() == []
    append(log, "first and last words\n")
    log.unlink()
    assert lost(reader.batch()) == [("access.log", "is gone", len("first and last words\n"))]
    assert reader.batch().lost == ()


def test_a_log_that_was_read_to_its_end_is_deleted_without_loss(
    tmp_path: Path, access: Log
) -> None:
    reader = follow(tmp_path)
    append(access.path, "last words\n")
    assert reader.read() == ["last words"]
    access.path.unlink()
    assert reader.batch().lost == ()


@pytest.mark.parametrize("age", [10, 100])
def test_a_log_that_is_not_held_may_have_lost_something_if_it_was_just_written(
    tmp_path: Path, access: Log, age: int
) -> None:
    os.utime(access.path, (NOW - age, NOW - age))
    reader = follow(tmp_path)
    reader.tail._watch._register.held.let_go(key_of(access.path))
    access.path.unlink()
    told = [("access.log", "was not found again", None)]
    assert lost(reader.batch()) == (told if age < 60 else [])


def key_of(path: Path) -> tuple[int, int]:
    stat = path.stat()
    return stat.st_dev, stat.st_ino


def test_a_log_that_is_truncated_with_unread_bytes_is_lost(tmp_path: Path, access: Log) -> None:
    reader, left = some_read(tmp_path, access)
    access.path.write_text("new\n")
    batch = reader.batch()
    assert lost(batch) == [("access.log", "was truncated", left)]
    (told,) = batch.notes
    assert told.endswith(f"reading it from the start; {left:,} bytes of it were not read")
    assert lines_of(batch.lanes) == ["new"]


def overwrite(path: Path, before_last: int = 1) -> None:
    """Writes over a line without changing its length."""
    text = path.read_bytes()
    line = text.splitlines(keepends=True)[-1 - before_last]
    with path.open("r+b") as log:
        log.seek(text.rindex(line))
        log.write(b"x" * (len(line) - 1))


@pytest.mark.parametrize("stopped", [False, True])
def test_a_log_that_is_overwritten_in_place_is_not_read_again(
    tmp_path: Path, access: Log, stopped: bool
) -> None:
    """Seed 18-2: a line was overwritten that had just been read, and all were counted twice."""
    reader = follow(tmp_path)
    access.write(30)
    assert len(reader.read()) == 30
    for line in (0, 1, 4):
        overwrite(access.path, line)
    access.write(2)
    if stopped:
        reader.restart()
    assert numbers(reader.read()) == [60, 61]
    assert reader.notes == [
        f"{access.path} was overwritten where it was read last; reading goes on there"
    ]
    # More may have been written anew: nobody can tell.
    assert [(loss.why, loss.bytes) for loss in reader.lost] == [("was overwritten", None)]
    reader.lost.clear()
    access.write(1)
    reader.restart()
    assert numbers(reader.read()) == [62]
    assert reader.lost == []


def test_a_log_that_may_be_written_anew_is_lost_from_where_it_was_read(tmp_path: Path) -> None:
    """By somebody who begins all logs alike, and has come as far: nobody can tell."""
    path = tmp_path / "access.log"
    banner = "".join(f"banner {n}\n" for n in range(40))
    path.write_text(banner + "one 1111\n" * 40)
    reader = Reader(stream(path))
    assert len(reader.read()) == 80
    path.write_text(banner + "two 2222\n" * 40 + "three\n")
    assert reader.read() == ["three"]
    assert [(loss.why, loss.bytes) for loss in reader.lost] == [("was overwritten", None)]


def test_a_log_that_is_written_anew_during_a_stop_is_read(tmp_path: Path) -> None:
    path = tmp_path / "access.log"
    banner = "".join(f"banner {n}\n" for n in range(40))
    path.write_text(banner + "one 1111\n" * 80)
    reader = Reader(stream(path))
    assert len(reader.read()) == 120
    path.write_text(banner + "two 2222\n" * 80 + "three\n")
    reader.restart()
    assert len(reader.read()) == 121


def test_a_log_that_is_rewritten_and_longer_is_read_from_its_start(
    tmp_path: Path, access: Log
) -> None:
    reader = follow(tmp_path)
    access.path.write_text("".join(f"2026-03-01 12:00:01 GET / 200 {n}\n" for n in range(100)))
    assert numbers(reader.read()) == list(range(100))


def test_a_log_that_is_compressed_out_of_reach_is_lost(tmp_path: Path, access: Log) -> None:
    reader, left = some_read(tmp_path, access)
    away = Path(tempfile.mkdtemp())
    squeeze(access.path, away / "access.log.1.gz")
    assert lost(reader.batch()) == [("access.log", "is gone", left)]
    shutil.rmtree(away)


def test_a_last_line_without_end_is_lost_with_its_file(tmp_path: Path, access: Log) -> None:
    reader = follow(tmp_path)
    append(access.path, "unfinished")
    assert reader.read() == []
    access.path.unlink()
    assert lost(reader.batch()) == [("access.log", "is gone", len("unfinished"))]


@pytest.mark.parametrize("new_log", [False, True])
def test_a_log_that_is_not_found_after_a_stop_is_lost(
    tmp_path: Path, access: Log, new_log: bool
) -> None:
    reader = follow(tmp_path)
    access.path.unlink()
    if new_log:
        access.write(3)
    reader.restart()
    batch = reader.batch()
    ((source, why, size),) = lost(batch)
    assert (source, size) == ("access.log", None)
    # The new log may have got the inode of the old one.
    assert why in ["was not found again", "was truncated"][: 1 + new_log]
    (told,) = batch.notes
    assert told.startswith(f"{access.path} was ")
    assert told.endswith("; what it got since it was read is lost")
    reader.restart()
    assert reader.batch().lost == ()


def test_what_was_seen_before_a_stop_and_is_gone_is_lost(tmp_path: Path, access: Log) -> None:
    reader, left = some_read(tmp_path, access)
    access.path.unlink()
    reader.restart()
    assert lost(reader.batch()) == [("access.log", "is gone", left)]


def test_an_old_log_that_is_deleted_during_a_stop_is_not_lost(tmp_path: Path, access: Log) -> None:
    reader = follow(tmp_path)
    os.utime(access.path, (NOW - 100, NOW - 100))
    old = access.path.rename(tmp_path / "access.log.1")
    access.write(3)
    assert numbers(reader.read()) == [30, 31, 32]
    old.unlink()
    reader.restart()
    assert reader.batch().lost == ()


@pytest.mark.parametrize("name", ["old.1", "access.log.1", "archive/access.log.1"])
def test_a_log_renamed_during_a_stop_is_found_near(tmp_path: Path, access: Log, name: str) -> None:
    reader = follow(tmp_path, "access.log")
    access.write(4)
    (tmp_path / "archive").mkdir()
    access.path.rename(tmp_path / name)
    access.write(2)
    reader.restart()
    assert sorted(numbers(reader.read())) == list(range(30, 36))
    assert reader.lost == []


def test_a_log_copied_out_of_the_pattern_is_found_near(tmp_path: Path, access: Log) -> None:
    reader = follow(tmp_path, "access.log")
    access.write(4)
    shutil.copyfile(access.path, tmp_path / "access.log.1")
    access.path.write_text("")
    access.write(2)
    assert sorted(numbers([*reader.read(), *reader.read()])) == list(range(30, 36))
    assert reader.lost == []


@pytest.mark.parametrize("follow_", [True, False])
def test_a_file_without_permission_is_lost_while_it_is_so(follow_: bool) -> None:
    with nobody() as folder:
        for name in ("a", "b"):
            (folder / f"{name}.log").write_text(f"{name}\n")
        (folder / "b.log").chmod(0)
        reader = Reader(stream(folder / "{source}.log"), follow_)
        batch = reader.batch()
        assert lines_of(batch.lanes) == ["a"]
        ((loss,),) = batch.unreadable.values()
        assert str(loss) == f"2 bytes of {folder}/b.log, which cannot be read: Permission denied"
        assert batch.notes == (f"{folder}/b.log cannot be read: Permission denied",)
        if follow_:
            assert reader.batch().notes == ()
            (folder / "b.log").chmod(0o644)
            batch = reader.batch()
            assert (lines_of(batch.lanes), batch.unreadable) == (["b"], {})


def test_an_unreadable_file_that_is_gone_is_lost() -> None:
    with nobody() as folder:
        (folder / "b.log").write_text("b\n")
        (folder / "b.log").chmod(0)
        reader = Reader(stream(folder / "{source}.log"))
        assert list(reader.batch().unreadable) == ["b"]
        (folder / "b.log").unlink()
        batch = reader.batch()
        assert (lost(batch), batch.unreadable) == ([("b", "is gone", 2)], {})


@pytest.mark.parametrize(
    ("pattern", "source"),
    [("{source}/app.log", "web-2"), ("{source}/*.log", "web-2"), ("*/*.log", "web-2/")],
)
@pytest.mark.parametrize("mode", [0o000, 0o444])
def test_a_folder_without_permission_is_lost_and_told(pattern: str, source: str, mode: int) -> None:
    with nobody() as folder:
        for name in ("web-1", "web-2"):
            (folder / name).mkdir()
            (folder / name / "app.log").write_text(f"{name}\n")
        (folder / "web-2").chmod(mode)
        reader = Reader(stream(folder / pattern))
        batch = reader.batch()
        assert lines_of(batch.lanes) == ["web-1"]
        if mode == 0o444 and source == "web-2/":
            source = "web-2/app.log"  # the folder can be listed
        assert list(batch.unreadable) == [source]
        (told,) = batch.notes
        assert told.startswith(f"{folder}/web-2")
        assert told.endswith("cannot be read: Permission denied")
        assert reader.batch().notes == ()
        (folder / "web-2").chmod(0o755)
        batch = reader.batch()
        assert (lines_of(batch.lanes), batch.unreadable) == (["web-2"], {})


def test_a_folder_that_is_closed_meanwhile_has_not_ended() -> None:
    with nobody() as folder:
        (folder / "web-1").mkdir()
        log = folder / "web-1" / "app.log"
        log.write_text("one\n")
        reader = Reader(stream(folder / "{source}/*.log"))
        assert reader.read() == ["one"]
        append(log, "two\n")
        (folder / "web-1").chmod(0)
        batch = reader.batch()
        assert (batch.lost, list(batch.unreadable)) == ((), ["web-1"])
        (folder / "web-1").chmod(0o755)
        assert reader.read() == ["two"]


def test_a_root_without_permission_is_named_where_nothing_matches() -> None:
    with nobody() as folder:
        (folder / "logs").mkdir()
        (folder / "logs").chmod(0)
        reader = Reader(stream(folder / "logs" / "*.log"))
        assert "logs cannot be read: Permission denied" in reader.batch().notes[0]


def test_finite_input_that_goes_away_is_lost(tmp_path: Path, access: Log) -> None:
    reader = Reader(stream(tmp_path / "access.log"), follow=False, batch_bytes=200)
    assert reader.read()
    left = access.path.stat().st_size - 200
    access.path.unlink()
    assert lost(reader.batch()) == [("access.log", "was removed before it was read", left)]


def test_a_loss_says_what() -> None:
    assert str(Loss("a", "a.log", "is gone")) == "bytes of a.log, which is gone"


def test_a_compressed_log_goes_on_where_its_copy_was_read(tmp_path: Path, access: Log) -> None:
    # A copy was made before more was written, and the log compressed at once.
    shutil.copyfile(access.path, tmp_path / "access.log.1")
    append(access.path, "one more\n")
    squeeze(access.path, tmp_path / "access.log.2.gz")
    reader = Reader(stream(tmp_path / "access.log*"))
    found = [*reader.read(), *reader.read()]
    assert numbers(found[:30]) == list(range(30))
    assert found[30:] == ["one more"]
    assert reader.read() == []
