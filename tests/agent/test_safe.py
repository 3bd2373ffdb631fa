"""A safe point is there for every delivery that may be the last final one."""

from __future__ import annotations

import pickle
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin.agent.safe import Rows, SafeLog, SafePoint
from muntin.errors import StateError
from muntin.fidelity.scoreboard import Source
from muntin.kernel.reading import Reading
from muntin.logs.files import FilePosition
from muntin.model.counts import Tally
from muntin.model.records import POSITION
from muntin.store import tape


def point(number: int) -> SafePoint:
    tally = Tally("web", POSITION, 5, number, None, 1, 0, number)
    return SafePoint(
        number,
        (FilePosition("web", "/a.log", 1, 2, number),),
        {"web": Source({POSITION: number}, {POSITION: 0}, 1.0)},
        {"web": Reading("web", tallies=(tally,), changed={"s": frozenset([number])})},
        {"shape": (Rows(b"open" * number),)},
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
        log.add(SafePoint(number, blocks={"shape": (Rows(b"x" * 100_000),)}))
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
    log.add(SafePoint(1, sources=sources, blocks={"shape": (Rows(b"x" * (2 << 20)),)}))
    sources["web"].sequence = 2
    log.forget(1)  # writes all anew, as it is large
    for known in (log, SafeLog(tmp_path / "logs.safe")):
        point = known.after(1)
        assert point is not None
        assert point.sources["web"].sequence == 1


changes = st.lists(
    st.tuples(
        st.dictionaries(st.sampled_from("ab"), st.lists(st.integers(0, 9), min_size=1, max_size=3)),
        st.dictionaries(st.sampled_from("ab"), st.none() | st.integers(0, 9)),
        st.booleans(),  # whether a point is whole
        st.integers(0, 3),  # how many are final then
    ),
    max_size=12,
)


@given(changes, st.sampled_from([0, 200, 1 << 20]))
def test_points_that_tell_changes_are_those_that_tell_all(
    happen: list[tuple[dict[str, list[int]], dict[str, int | None], bool, int]], worth: int
) -> None:
    """Whatever was added and left, whichever of them are still needed, and after every restart."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr("muntin.agent.safe._WORTH_WRITING", worth)
        path = Path(folder) / "logs.safe"
        log = SafeLog(path)
        log.begin("one", SafePoint())
        open_: dict[str, list[int]] = {}
        expected: dict[int, dict[str, list[int]]] = {0: {}}
        final = 0
        for number, (added, left, whole, more) in enumerate(happen, 1):
            for id_, pane in left.items():
                open_[id_] = [p for p in open_.get(id_, []) if pane is not None and p >= pane]
            for id_, panes in added.items():
                open_[id_] = [*open_.get(id_, []), *panes]
            whole = whole or log.is_long
            told = open_ if whole else added
            blocks = {id_: (Rows(bytes(panes)),) for id_, panes in told.items()}
            log.add(SafePoint(number, blocks=blocks, whole=whole, left={} if whole else left))
            expected[number] = {id_: sorted(panes) for id_, panes in open_.items() if panes}
            final = min(number, final + more)
            log.forget(final)
        for known in (log, SafeLog(path)):
            for number in range(final, len(happen) + 1):
                point = known.after(number)
                assert point is not None
                assert point.whole
                found = {
                    id_: sorted(p for r in rows for p in r.data if r.since is None or p >= r.since)
                    for id_, rows in point.blocks.items()
                }
                assert {id_: some for id_, some in found.items() if some} == expected[number]


def test_points_are_not_kept_in_memory(tmp_path: Path) -> None:
    log = SafeLog(tmp_path / "logs.safe")
    log.begin("one", SafePoint())
    for number in range(1, 20):
        log.add(SafePoint(number, blocks={"shape": (Rows(b"x" * 100_000),)}))
    assert len(pickle.dumps(log)) < 10_000
    assert log.after(7) == SafePoint(7, blocks={"shape": (Rows(b"x" * 100_000),)})
