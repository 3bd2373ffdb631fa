"""Every complete line is handed out exactly once, in batches and lanes of the right size."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from muntin.errors import InputError
from muntin.logs import register, watch
from muntin.logs.chunks import read_chunks
from muntin.logs.tail import Lane, Tail
from muntin.model.streams import Format
from tests.logs.reading import LOOKS, NOW, Reader, append, lines_of, stream


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
    tail = Tail(logs, follow=True, events=LOOKS.events())
    assert tail.next_batch(modified + 1.9, in_order=True).lanes == ()
    batch = tail.next_batch(modified + 2.1, in_order=True)
    assert lines_of(batch.lanes) == ["one", "two"]
    assert (batch.bytes, batch.remaining) == (8 * path.stat().st_size, 0)
    assert tail.next_batch(NOW, in_order=True).lanes == ()
    with path.open("ab") as file:
        file.write(gzip.compress(b"three\n"))
    tail = Tail(logs, follow=True, positions=batch.positions, events=LOOKS.events())
    assert lines_of(tail.next_batch(NOW, in_order=True).lanes) == ["three"]


def test_a_clock_that_runs_ahead_does_not_hide_a_file(tmp_path: Path) -> None:
    path = tmp_path / "old.log.gz"
    path.write_bytes(gzip.compress(b"one\n"))
    os.utime(path, (NOW + 3600, NOW + 3600))
    tail = Tail(stream(tmp_path / "*.log.gz"), follow=True, events=LOOKS.events())
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
    expected += "; there is no folder /nowhere/at"
    with pytest.raises(InputError, match=f"{expected}$"):
        tail.require_files()
    with pytest.raises(
        InputError, match=f"no file matches 'none/x' in {Path.cwd()}; there is no folder none$"
    ):
        Tail(stream("none/x"), follow=False).require_files()


def test_who_follows_is_told_that_nothing_matches_yet(tmp_path: Path, log: Path) -> None:
    reader = Reader(stream(tmp_path / "*.lgo"))
    assert (reader.read(), reader.read()) == ([], [])
    (told,) = reader.notes
    assert told == f"stream 'logs': no file matches '{tmp_path}/*.lgo'; waiting for one"
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

    for module, name in (
        (register, "holds"),
        (register, "last_line_end"),
        (watch, "last_line_end"),
    ):
        monkeypatch.setattr(module, name, opened)
    assert reader.read_all() == []


def test_what_is_left_out_is_behind_what_its_source_had_come_to(log: Path) -> None:
    """If the file is lost then, it is known from when on."""
    tail = Tail(stream(log), follow=True)
    (source,) = tail.names(NOW)
    tail.skip({str(log): 4}, {source: 7})
    (position,) = tail.next_batch(NOW, True, reached={source: 9}).positions
    assert (position.position, position.since) == (8, 9)
    tail = Tail(stream(log), follow=True)
    tail.names(NOW)
    tail.skip({str(log): 8}, {source: 7})
    (position,) = tail.next_batch(NOW, True).positions
    assert (position.position, position.since) == (8, 7)
