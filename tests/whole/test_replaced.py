"""Logs that others edit, restore and rotate: nothing is counted twice and said to be whole."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import pytest

import muntin as mt
from tests.whole.test_lost import IDLE, Following

FIRST, READ, LAST = 1000, 1100, 1180
TAIL = ""
WINDOWS = {"plain": "10 SECONDS", "long": "60 SECONDS EVERY 10 SECONDS", "revised": "10 SECONDS"}


def asked(folder: Path, pattern: str) -> mt.Program:
    jobs = "".join(
        f"CREATE JOB {name} AS SELECT count(*) AS c FROM s WINDOW {window} PANE 1 SECOND"
        f"{' REVISE FOR 1 HOUR' if name == 'revised' else ''};"
        for name, window in WINDOWS.items()
    )
    columns = "(t DOUBLE)"
    return mt.sql(
        f"CREATE STREAM s {columns} FROM '{folder}/{pattern}' FORMAT json TIMESTAMP t;{jobs}"
    )


@pytest.fixture(params=["", "y" * 300, "y" * 5000], ids=["short", "alike", "long"], autouse=True)
def tail(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What all lines have in common behind their time."""
    monkeypatch.setattr(f"{__name__}.TAIL", request.param)


def text(seconds: Iterable[int]) -> str:
    return "".join(json.dumps({"t": float(t), "x": TAIL}) + "\n" for t in seconds)


def write(path: Path, seconds: Sequence[int]) -> None:
    with path.open("a") as log:
        log.write(text(seconds))
    os.utime(path, (seconds[-1], seconds[-1]))


def without(log: Path, number: int) -> str:
    lines = log.read_text().splitlines(keepends=True)
    return "".join(lines[:number] + lines[number + 1 :])


def put(log: Path, new: str) -> None:
    """Another file in its place, as editors and `sed -i` do it."""
    other = log.with_name(".new")
    other.write_text(new)
    other.rename(log)


def archived(log: Path) -> None:
    """What was rotated long ago is compressed now, and the log renamed."""
    log.with_name("a.log.2.gz").write_bytes(gzip.compress(text(range(FIRST - 100, FIRST)).encode()))
    log.rename(log.with_name("a.log.1"))
    write(log, range(READ, READ + 1))


def copied_and_truncated(log: Path) -> None:
    log.with_name("a.log.1").write_bytes(log.read_bytes())
    log.write_text(text([READ]))


def rotated_twice(log: Path) -> None:
    log.with_name("a.log.debug").write_text(text(range(READ, READ + 9)))  # which nobody asked for
    write(log, range(READ, READ + 5))
    log.rename(log.with_name("a.log.2"))
    middle = log.with_name("a.log.1")
    write(middle, range(READ + 5, READ + 25))
    write(log, range(READ + 25, READ + 30))


def aside(log: Path) -> None:
    old = log.read_text()
    log.rename(log.with_name("a.log.old"))
    log.write_text(old[: len(old) * 6 // 10])


Change = Callable[[Path], object]
CHANGES: dict[str, Change] = {
    "edited": lambda log: put(log, without(log, 3)),
    "edited in place": lambda log: log.write_text(without(log, 3)),
    "edited at its end": lambda log: put(log, without(log, 97)),
    "edited at its start": lambda log: put(log, without(log, 0)),
    "restored": lambda log: put(log, log.read_text()[: len(text([FIRST])) * 60]),
    "restored in place": lambda log: log.write_text(log.read_text()[: len(text([FIRST])) * 60]),
    "restored beside": aside,
    "rotated twice": rotated_twice,
    "written anew": lambda log: log.write_text(text([READ])),
    "rotated, with an archive": archived,
    "copied and truncated": copied_and_truncated,
    "overwritten": lambda log: log.write_text(log.read_text()[:-8] + 'xxxxx"}\n'),
}
# After these, what is known is exact: nothing is named, and nothing lacks.
EXACT = {"edited", "edited in place", "edited at its start", "rotated twice"}
EXACT |= {"rotated, with an archive", "copied and truncated"}


def from_then_on(log: Path, change: str) -> range:
    """The seconds that are written after it."""
    after = {"rotated twice": 30, "written anew": 1, "copied and truncated": 1}
    after["rotated, with an archive"] = 1
    return range(READ + after.get(change, 0), LAST)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("how", ["running", "stopped", "stopped for long"])
@pytest.mark.parametrize("lines", [1000, 17])
def test_what_is_read_again_is_not_whole(tmp_path: Path, change: str, how: str, lines: int) -> None:
    log, other = tmp_path / "a.log", tmp_path / "z.log"
    pattern = "{source}.log*" if change == "restored beside" else "{source}.log"
    write(log, range(FIRST, READ))
    write(other, range(FIRST, READ))
    run = Following(asked(tmp_path, pattern), lines)
    run.bytes = lines * len(text([FIRST]))
    run.start()
    found = [r for _ in range(20) for r in run.turn(READ)]
    CHANGES[change](log)
    if how != "running":
        run.restart(tmp_path / "state")
    if how != "stopped for long":
        found += run.turn(READ + 1)
    write(log, from_then_on(log, change))
    write(other, range(READ, LAST))
    found += [r for now in range(20) for r in run.turn(LAST + now * IDLE)]
    newest = {(r.job, r.start, r.end): r for r in found}  # of revisions the last
    for (_, start, end), result in newest.items():
        truth = 2 * (min(end // 1_000_000, LAST) - max(start // 1_000_000, FIRST))
        if result.c2.area == 1.0:
            assert result.rows["c"][0].as_py() == truth, (result.job, start)
    ended = {key: r for key, r in newest.items() if r.end < LAST * 1_000_000}
    named = {(job, end // 1_000_000) for (job, _, end), r in ended.items() if r.c2.area < 1.0}
    if change in EXACT:
        assert named == set()
    elif how != "stopped for long":
        assert ("plain", LAST - 10) not in named


def test_a_log_that_was_away_goes_on_where_it_was_read(tmp_path: Path) -> None:
    log, away = tmp_path / "a.log", tmp_path / "elsewhere" / "a.log"
    away.parent.mkdir()
    write(log, range(FIRST, READ))
    write(tmp_path / "z.log", range(FIRST, READ))
    run = Following(asked(tmp_path, "{source}.log"))
    found = run.turn(READ)
    log.rename(away.with_name("kept"))
    found += run.turn(READ + 1)
    found += run.turn(READ + 20)
    away.with_name("kept").rename(log)
    write(log, range(READ, LAST))
    write(tmp_path / "z.log", range(READ, LAST))
    found += [r for now in range(20) for r in run.turn(LAST + now * IDLE)]
    counts = {(r.job, r.end // 1_000_000): r.rows["c"][0].as_py() for r in found}
    assert {n for (job, end), n in counts.items() if job == "plain"} == {20}
