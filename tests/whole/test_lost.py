"""What was written and cannot be read is missing in scores, with the file and the bytes."""

from __future__ import annotations

import gzip
import json
import os
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

import muntin as mt
from muntin.model.records import TIME
from muntin.run.files import LogFiles
from muntin.run.inline import InlineCollection, InlineRun, run_inline
from muntin.run.loop import Rules
from muntin.run.progress import Progress
from muntin.store.checkpoint import Checkpoint, Saved
from tests.logs.test_register import nobody

IDLE = 5.0


def asked(folder: Path, pattern: str = "{source}.log*", window: str = "10 SECONDS") -> mt.Program:
    return mt.sql(
        f"CREATE STREAM s (t DOUBLE) FROM '{folder}/{pattern}' FORMAT json TIMESTAMP t;"
        f"CREATE JOB j AS SELECT count(*) AS c FROM s WINDOW {window} PANE 1 SECOND;"
    )


def sessions(folder: Path) -> mt.Program:
    return mt.sql(
        f"CREATE STREAM s (t DOUBLE) FROM '{folder}/{{source}}.log*' FORMAT json TIMESTAMP t;"
        "CREATE JOB j AS SELECT count(*) AS c FROM s WINDOW SESSION 5 SECONDS;"
    )


def text(seconds: Iterable[float]) -> str:
    return "".join(json.dumps({"t": t}) + "\n" for t in seconds)


LINE = len(text([1000]))


def write(path: Path, seconds: Sequence[float]) -> None:
    """The records of some seconds, as if they had been written then."""
    with path.open("a") as log:
        log.write(text(seconds))
    os.utime(path, (seconds[-1], seconds[-1]))


class Following:
    """A run that follows logs, reads so many lines a turn, and may be stopped and started again."""

    def __init__(self, program: mt.Program, lines: int = 1000) -> None:
        self.program, self.bytes = program, lines * LINE
        self.progress, self.collection = Progress(), InlineCollection()
        self.positions: Any = ()
        self.notes: list[str] = []
        self.start()

    def start(self) -> None:
        (stream,), jobs = self.program.streams.values(), list(self.program.jobs.values())
        files = LogFiles(stream, True, self.positions, self.bytes)
        known = self.progress if self.positions else None
        rules = Rules(True, IDLE)
        collection = self.collection
        self.run = InlineRun(stream, jobs, rules, self.notes.append, files, collection, known)
        self.files, self.progress = files, self.run.loop.progress

    def turn(self, now: float) -> list[mt.Result]:
        results = list(self.run.turn(now).results())
        self.positions = self.files.tail._watch.positions
        return results

    def restart(self, state: Path) -> None:
        """What was saved comes back, and nothing else."""
        checkpoint, in_force = Checkpoint(state, "s"), self.run.loop.catalog.in_force
        checkpoint.save(Saved(1, self.progress, self.positions, in_force), whole=True)
        saved = Checkpoint(state, "s").load()
        assert saved is not None
        self.progress, self.positions = saved.progress, saved.positions
        self.start()


def told(results: Iterable[mt.Result]) -> list[tuple[int, int, list[Any]]]:
    """Start and count of windows, and what is missing: source, why, and panes."""
    return [
        (r.start // 1_000_000, r.rows["c"][0].as_py(), [tuple(m) for m in r.c2.missing])
        for r in results
    ]


def other_goes_on(folder: Path, upto: int) -> None:
    """Another source, that says that time goes on."""
    write(folder / "z.log", range(1000, upto))


def test_a_deleted_log_leaves_its_unread_seconds_lost(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    write(log, range(1000, 1010))
    other_goes_on(tmp_path, 1020)
    run = Following(asked(tmp_path), lines=6)
    assert run.turn(1010) == []
    assert run.progress.sources["a"].reached[TIME.column] == 1_002_000_000
    left = log.stat().st_size - 3 * LINE
    log.unlink()
    found = [window for now in range(1010, 1030) for window in told(run.turn(now))]
    what = f"lost: {left} bytes of {log}, which is gone"
    # Its seconds from the last batch on may have lost something, up to when it was missed.
    assert found[0] == (1000, 13, [("a", what, 10)])
    assert f"{log} is gone; {left} bytes of it were not read" in run.notes


def test_the_board_shows_what_is_lost(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    write(log, range(1000, 1004))
    other_goes_on(tmp_path, 1012)
    run = Following(asked(tmp_path), lines=100)
    assert run.turn(1004) == []
    write(log, [1004, 1005])
    run.files.tail._batch_bytes = 1
    assert run.turn(1006) == []  # a byte of the line after is handed out
    log.write_text("")
    os.utime(log, (1008, 1008))
    result = next(r for now in (1008, 1012, 1020) for r in run.turn(now))
    rows = result.c2.drawing().splitlines()
    assert rows[0] == "a ███??????†"
    assert rows[2] == "█ merged, † dead, ? lost"
    assert result.c2.area == pytest.approx(13 / 20)


def test_a_truncated_log_is_lost_up_to_its_next_record(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    write(log, range(1000, 1010))
    other_goes_on(tmp_path, 1040)
    run = Following(asked(tmp_path), lines=8)
    run.turn(1010)
    run.turn(1010)
    left = log.stat().st_size - 8 * LINE
    log.write_text("")
    write(log, range(1012, 1031))
    found = [window for now in range(1031, 1040) for window in told(run.turn(now))]
    what = f"lost: {left} bytes of {log}, which was truncated"
    assert found == [
        (1000, 18, [("a", what, 7)]),  # what was read before the last batch is whole
        (1010, 18, [("a", what, 3)]),
        (1020, 20, []),
    ]
    assert run.progress.sources["a"].lost == ()  # no window needs it any more


@pytest.mark.parametrize("unread", [0, 3])
def test_rotation_during_a_stop_that_cannot_be_followed_is_lost(
    tmp_path: Path, unread: int
) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    log = logs / "a.log"
    write(log, range(1000, 1005))
    other_goes_on(logs, 1041)
    run = Following(asked(logs))
    assert run.turn(1005) == []
    if unread:
        write(log, range(1005, 1005 + unread))
    log.unlink()
    write(log, range(1013, 1041))
    run.restart(tmp_path / "state")
    found = [window for now in range(1041, 1044) for window in told(run.turn(now))]
    assert [(start, count) for start, count, _ in found] == [
        (1000, 15), (1010, 17), (1020, 20), (1030, 20)
    ]  # fmt: skip
    (first,), (second,) = found[0][2], found[1][2]
    assert first[0] == second[0] == "a"
    assert first[1].startswith(f"lost: bytes of {log}, which was ")
    assert (second[2], found[2][2], found[3][2]) == (4, [], [])
    assert any(note.endswith("what it got since it was read is lost") for note in run.notes)


def test_losses_survive_a_restart(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    log = logs / "a.log"
    write(log, range(1000, 1008))
    other_goes_on(logs, 1009)
    run = Following(asked(logs), lines=8)
    run.turn(1008)
    left = log.stat().st_size - 4 * LINE
    log.unlink()
    run.turn(1008)
    before = run.progress.sources["a"].lost
    assert [loss.bytes for loss in before] == [left]
    run.restart(tmp_path / "state")
    assert run.progress.sources["a"].lost == before
    other_goes_on(logs, 1020)
    found = [window for now in range(1020, 1040) for window in told(run.turn(now))]
    assert found[0][2][0][1] == f"lost: {left} bytes of {log}, which is gone"


def cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def damaged(data: bytes) -> bytes:
    return data[:-6] + bytes(2) + data[-4:]  # of the checksum


@pytest.mark.parametrize(
    ("spoil", "what"), [(cut, "it ends too early"), (damaged, "its checksum is wrong")]
)
def test_a_gzip_that_cannot_be_read_on_is_lost(tmp_path: Path, spoil: Any, what: str) -> None:
    log = tmp_path / "a.log.1.gz"
    seconds = [1000 + n / 400 for n in range(20_000)]  # fifty seconds
    log.write_bytes(spoil(gzip.compress(text(seconds).encode())))
    os.utime(log, (1050, 1050))
    write(tmp_path / "a.log", [1055 + n / 400 for n in range(2002)])
    write(tmp_path / "b.log", range(1000, 1061))
    notes: list[str] = []
    finite = told(run_inline(asked(tmp_path), notes.append))
    run = Following(asked(tmp_path))
    live = [window for now in (1060.0, 1062, 1065, 1070) for window in told(run.turn(now))]
    assert finite[:6] == live[:6]
    why = f"lost: bytes of {log}, which is not a readable gzip file: {what}"
    assert notes == run.notes[:1] == [f"{log} is not a readable gzip file: {what}"]
    assert finite[5] == (1050, 2010, [("a", why, 1)])  # up to when it was written last
    whole = [count == 4010 for _, count, _ in finite[:5]]
    if spoil is damaged:  # what was read of it may be wrong
        assert [missing for _, _, missing in finite[:5]] == [[("a", why, 10)]] * 5
    else:
        assert whole == sorted(whole, reverse=True)
        assert 0 < sum(whole) < 5
        for (_, count, missing), is_whole in zip(finite, whole, strict=False):
            assert bool(missing) != is_whole
            assert all(m[:2] == ("a", why) for m in missing)
            assert all((m[2] == 10) == (count == 10) for m in missing)


@pytest.mark.parametrize("what", ["file", "folder"])
def test_what_may_not_be_read_is_lost_in_all_panes(what: str) -> None:
    with nobody() as folder:
        for name in ("a", "b"):
            (folder / name).mkdir()
            write(folder / name / "app.log", range(1000, 1021))
        (folder / "b" / "app.log").chmod(0)
        if what == "folder":
            (folder / "b").chmod(0)
        notes: list[str] = []
        finite = told(run_inline(asked(folder, "{source}/*.log"), notes.append))[:2]
        run = Following(asked(folder, "{source}/*.log"))
        live = [window for now in (1021.0, 1022, 1023) for window in told(run.turn(now))]
        size = "" if what == "folder" else f"{21 * LINE} "
        place = "b" if what == "folder" else "b/app.log"
        why = f"lost: {size}bytes of {folder}/{place}, which cannot be read: Permission denied"
        expected = [(start, 10, [("b", why, 10)]) for start in (1000, 1010)]
        assert finite == live == expected
        assert notes == run.notes == [f"{folder}/{place} cannot be read: Permission denied"]


def test_a_log_that_may_be_read_again_is_not_lost() -> None:
    with nobody() as folder:
        for name in ("a", "b"):
            write(folder / f"{name}.log", range(1000, 1003))
        run = Following(asked(folder))
        assert run.turn(1003) == []
        for name in ("a", "b"):
            write(folder / f"{name}.log", range(1003, 1005))
        (folder / "a.log").chmod(0)
        assert run.turn(1005) == []  # a is still awaited
        (folder / "a.log").chmod(0o644)
        for name in ("a", "b"):
            write(folder / f"{name}.log", range(1005, 1011))
        assert told(run.turn(1011)) == [(1000, 20, [])]


def test_a_log_that_may_not_be_read_on_has_not_ended() -> None:
    with nobody() as folder:
        for name in ("a", "b"):
            write(folder / f"{name}.log", range(1000, 1003))
        run = Following(asked(folder))
        assert run.turn(1003) == []
        for name in ("a", "b"):
            write(folder / f"{name}.log", range(1003, 1031))
        (folder / "a.log").chmod(0)
        found = [window for now in range(1031, 1045) for window in told(run.turn(now))]
        left = 28 * LINE
        why = f"lost: {left} bytes of {folder}/a.log, which cannot be read: Permission denied"
        assert found[:3] == [(1000, 13, [("a", why, 10)]), (1010, 10, [("a", why, 10)]),
                         (1020, 10, [("a", why, 10)])]  # fmt: skip


def test_sessions_say_what_they_have_lost(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    write(log, [1000, 1001, 1002, 1003])
    run = Following(sessions(tmp_path), lines=2)
    run.turn(1004)
    left = log.stat().st_size - 2 * LINE
    log.write_text("")
    write(log, [1004, 1005, 1020, 1021, 1040])
    found = [r for now in (1005, 1006, 1041, 1042) for r in run.turn(now)]
    why = f"lost: {left} bytes of {log}, which was truncated"
    assert told(found) == [(1000, 4, [("a", why, 1)]), (1020, 2, [])]
    assert [r.c2.area for r in found] == [0.0, 1.0]


def test_a_log_that_is_compressed_at_once_is_read_before_what_follows_it(tmp_path: Path) -> None:
    """The tail is in a .gz that is not known to be complete yet: the new log has to wait."""
    log = tmp_path / "a.log"
    run = Following(asked(tmp_path, window="5 SECONDS"))
    found: list[mt.Result] = []
    for tenth in range(10_000, 10_400):
        write(log, [tenth / 10])
        if tenth == 10_199:
            packed = log.with_name("a.log.1.gz")
            packed.write_bytes(gzip.compress(log.read_bytes()))
            os.utime(packed, (tenth / 10, tenth / 10))
            log.unlink()
            log.touch()
        if tenth % 5 == 0:
            found += run.turn(tenth / 10)
    counts = [(r.rows["c"][0].as_py(), r.counts.late, str(r.c2)) for r in found]
    assert counts == [(50, 0, "100 % complete")] * len(counts)
    assert len(counts) >= 6


@pytest.mark.parametrize("pause", [1.0, 8.0])
def test_what_came_between_a_look_and_a_cut_may_be_lost(tmp_path: Path, pause: float) -> None:
    log = tmp_path / "a.log"
    run = Following(asked(tmp_path))
    write(log, range(1000, 1004))
    assert run.turn(1004.0) == []
    write(log, [1004, 1005])
    log.write_text("")
    write(log, range(1006, 1022))
    found = run.turn(1021 + pause)
    (first,) = [r for r in found if r.start == 1000 * 1_000_000]
    assert first.c2.area < 1
    assert "truncated" in first.c2.missing[0].why


def squeezed(log: Path, now: float) -> None:
    """Rotates a log and compresses what was there at once."""
    data, at = log.read_bytes(), log.stat().st_mtime
    log.rename(log.with_name(f"{log.name}.old"))
    log.touch()  # before the old one goes, so that it does not get its inode
    os.utime(log, (now, now))
    copy = log.with_name(f"{log.name}.1.gz")
    copy.write_bytes(gzip.compress(data))
    os.utime(copy, (at, at))
    log.with_name(f"{log.name}.old").unlink()


def windows_of(run: Following, moments: Iterable[float]) -> dict[int, tuple[int, float]]:
    """By start, the counts and areas of windows that leave at these moments."""
    results = (result for now in moments for result in run.turn(now))
    return {r.start // 1_000_000: (r.rows["c"][0].as_py(), r.c2.area) for r in results}


def test_what_a_cut_gzip_lacks_is_before_the_log_that_follows_it(tmp_path: Path) -> None:
    """Seed 18-6: both were read together, and what came last was taken for what was read before."""
    log, tenths = tmp_path / "a.log", [tenth / 10 for tenth in range(10_000, 10_104)]
    run = Following(asked(tmp_path, window="1 SECOND"))
    write(log, tenths)
    found = run.turn(1010.4)
    write(log, [1010.5, 1010.6])
    whole = gzip.compress(log.read_bytes())
    length = next(n for n in range(len(whole), 0, -1) if _length(whole[:n]) <= LINE * len(tenths))
    log.rename(tmp_path / "old")
    log.touch()
    packed = tmp_path / "a.log.1.gz"
    packed.write_bytes(whole[:length])
    os.utime(packed, (1010.6, 1010.6))
    (tmp_path / "old").unlink()
    for tenth in range(10_107, 10_150):
        write(log, [tenth / 10])
        found += run.turn(tenth / 10)
    why = f"lost: bytes of {packed}, which is not a readable gzip file: it ends too early"
    assert told(found)[-5:] == [
        (1009, 10, []), (1010, 7, [("a", why, 1)]), *((s, 10, []) for s in (1011, 1012, 1013)),
    ]  # fmt: skip


def _length(packed: bytes) -> int:
    """How much text there is in a gzip file that may be cut."""
    return len(zlib.decompressobj(31).decompress(packed))


def test_a_log_that_waits_for_its_compressed_part_has_not_fallen_silent(tmp_path: Path) -> None:
    log, other = tmp_path / "a.log", tmp_path / "z.log"
    run = Following(asked(tmp_path, window="5 SECONDS"))
    write(log, range(1000, 1010))
    write(other, range(1000, 1010))
    assert windows_of(run, [1010]) == {1000: (10, 1.0)}
    # For longer than the idle time nobody looks.
    write(log, range(1010, 1030))
    write(other, range(1010, 1031))
    squeezed(log, 1030)
    write(log, [1030])
    found = windows_of(run, [1030.2, 1031, 1033, 1035])
    assert found == dict.fromkeys((1005, 1010, 1015, 1020, 1025), (10, 1.0))


def test_a_log_does_not_wait_for_one_of_another_server(tmp_path: Path) -> None:
    run = Following(asked(tmp_path, "{source}/a.log*", window="5 SECONDS"))
    mine, other = tmp_path / "w1" / "a.log", tmp_path / "w2" / "a.log"
    for log in (mine, other):
        log.parent.mkdir()
        write(log, range(1000, 1010))
    assert windows_of(run, [1010]) == {1000: (10, 1.0)}
    write(mine, [1010])
    mine.unlink()
    write(mine, range(1011, 1021))
    write(other, range(1010, 1020))
    squeezed(other, 1020)
    run.turn(1020.2)  # while the other one is compressed
    assert [loss.source for loss in run.progress.sources["w1"].lost] == ["w1"]


def test_a_loss_ends_with_the_next_record_of_its_log_whatever_the_pattern(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    log = Path("a.log")
    write(log, range(1000, 1010))
    other_goes_on(tmp_path, 1040)
    run = Following(asked(Path()))
    windows_of(run, [1010])
    write(log, range(1010, 1020))
    log.unlink()
    write(log, range(1020, 1040))
    found = windows_of(run, [1040, 1041])
    areas = {start: area for start, (_, area) in found.items()}
    assert areas == {1000: 0.5, 1010: 0.5, 1020: pytest.approx(0.95)}
