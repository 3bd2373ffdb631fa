"""A safe point is there for every delivery that may be the last final one."""

from __future__ import annotations

from pathlib import Path

import pytest

from muntin.agent.safe import SafeLog, SafePoint
from muntin.errors import StateError
from muntin.fidelity.scoreboard import Source
from muntin.kernel.reading import Reading
from muntin.logs.files import FilePosition
from muntin.model import POSITION, Tally
from muntin.store import tape


def point(number: int) -> SafePoint:
    tally = Tally("web", POSITION, 5, number, None, 1, 0, number)
    return SafePoint(
        number,
        (FilePosition("web", "/a.log", 1, 2, number),),
        {"web": Source({POSITION: number}, {POSITION: 0}, 1.0)},
        {"web": Reading("web", tallies=(tally,), changed={"s": frozenset([number])})},
        {"shape": b"open" * number},
    )


def test_points_come_back(tmp_path: Path) -> None:
    log = SafeLog(tmp_path / "logs.safe")
    assert (log.pipeline, log.after(0)) == ("", None)
    log.begin("one", point(0))
    for number in (1, 2, 3):
        log.add(point(number))
    log.forget(2)
    for known in (log, SafeLog(tmp_path / "logs.safe")):
        assert known.pipeline == "one"
        assert known.after(2) == point(2)
        assert known.after(3) == point(3)
        assert known.after(4) is None
    assert log.after(1) is None
    log.begin("two", point(3))
    again = SafeLog(tmp_path / "logs.safe")
    assert (again.pipeline, again.after(2), again.after(3)) == ("two", None, point(3))


def test_the_file_does_not_grow_without_end(tmp_path: Path) -> None:
    log = SafeLog(tmp_path / "logs.safe")
    log.begin("one", SafePoint())
    for number in range(1, 60):
        log.add(SafePoint(number, blocks={"shape": b"x" * 100_000}))
        log.forget(number)
    assert (tmp_path / "logs.safe").stat().st_size < 3 << 20
    assert SafeLog(tmp_path / "logs.safe").after(59) is not None


def test_files_of_other_versions_are_refused(tmp_path: Path) -> None:
    tape.create(tmp_path / "logs.safe", [b"\xa3one", b"\x81\xa1a\x01"])
    SafeLog(tmp_path / "logs.safe")  # a point without fields is the first one
    tape.create(tmp_path / "logs.safe", [b"\xc1"])
    with pytest.raises(StateError, match=r"logs\.safe is of another version of Muntin; remove it"):
        SafeLog(tmp_path / "logs.safe")


def test_what_changes_later_does_not_change_what_was_written(tmp_path: Path) -> None:
    log = SafeLog(tmp_path / "logs.safe")
    log.begin("pipeline", SafePoint())
    sources = {"web": Source(sequence=1)}
    log.add(SafePoint(1, sources=sources, blocks={"shape": b"x" * (2 << 20)}))
    sources["web"].sequence = 2
    log.forget(1)  # writes all anew, as it is large
    for known in (log, SafeLog(tmp_path / "logs.safe")):
        point = known.after(1)
        assert point is not None
        assert point.sources["web"].sequence == 1
