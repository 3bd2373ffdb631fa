"""Several streams as one intake: what each has to read, and where each goes on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from muntin.errors import InputError
from muntin.language.composites import composed
from muntin.logs.files import FilePosition
from muntin.model.records import Column
from muntin.model.streams import Format, Stream
from muntin.run.contracts import Request, TaskWork
from muntin.run.files import LaneTask
from muntin.run.members import Readable, Tasks, files_of

NOW = Request(1000.0, True, None, {}, 7, None)


def stream(folder: Path, name: str, slack_us: int | None = None) -> Stream:
    pattern = f"{folder}/{name}/{{source}}.log"
    return Stream(name, (pattern,), Format("json"), (Column("t", "BIGINT"),), '"t"', slack_us)


def write(folder: Path, name: str, *times: int, source: str = "web") -> None:
    (folder / name).mkdir(exist_ok=True)
    with (folder / name / f"{source}.log").open("a") as log:
        log.writelines(f'{{"t": {t}}}\n' for t in times)


def both(folder: Path, positions: Iterable[FilePosition] = (), follow: bool = True) -> Readable:
    whole = composed([stream(folder, "b"), stream(folder, "a", slack_us=3)])
    return files_of(whole, follow, positions)


def lane_tasks(intake: Readable, request: Request = NOW) -> list[LaneTask]:
    work = intake.next(request).work
    assert isinstance(work, TaskWork)
    tasks = [task for each in work.tasks(2) if isinstance(each, Tasks) for task in each.tasks]
    return [task for task in tasks if isinstance(task, LaneTask)]


def test_each_stream_is_read_with_its_own_slack_and_names(tmp_path: Path) -> None:
    write(tmp_path, "a", 1, 2)
    write(tmp_path, "b", 3)
    first, second = lane_tasks(both(tmp_path))
    assert (first.stream.name, first.slack_us, first.lanes[0][0].source) == ("a", 3, "a/web")
    assert (second.stream.name, second.slack_us, second.lanes[0][0].source) == ("b", 0, "b/web")
    assert both(tmp_path, follow=False).names(1000.0) == {"a/web", "b/web"}


def test_positions_come_back_to_their_stream(tmp_path: Path) -> None:
    """Both streams read the same files."""
    write(tmp_path, "a", 1, 2)
    (tmp_path / "b").symlink_to(tmp_path / "a")
    positions = both(tmp_path).next(NOW).positions
    assert positions is not None
    assert [file.source for file in positions] == ["a/web", "b/web"]
    write(tmp_path, "a", 3)
    again = both(tmp_path, positions)
    orders = [order for task in lane_tasks(again) for lane in task.lanes for order in lane]
    assert [(order.source, order.start) for order in orders] == [("a/web", 18), ("b/web", 18)]


def test_who_tells_nothing_new_is_as_it_was(tmp_path: Path) -> None:
    write(tmp_path, "a", 1)
    write(tmp_path, "b", 1)
    intake = both(tmp_path)
    first = intake.next(NOW)
    write(tmp_path, "b", 2)
    second = intake.next(replace(NOW, now=1001.0))
    assert {*(first.touched or ())} == {*(second.touched or ())} == {"a/web", "b/web"}
    assert second.positions is not None
    assert [(file.source, file.position) for file in second.positions] == [
        ("a/web", 9),
        ("b/web", 18),
    ]


def test_a_stream_without_files_is_refused_by_its_name(tmp_path: Path) -> None:
    write(tmp_path, "a", 1)
    with pytest.raises(InputError, match="stream 'b': no file matches"):
        both(tmp_path, follow=False).require()


def test_work_of_all_streams_is_shared_out(tmp_path: Path) -> None:
    for source in ("x", "y", "z"):
        write(tmp_path, "a", 1, source=source)
    write(tmp_path, "b", 1)
    work = both(tmp_path).next(NOW).work
    assert isinstance(work, TaskWork)
    assert [len(task.tasks) for task in work.tasks(2) if isinstance(task, Tasks)] == [2, 1]
    assert len(work.tasks(9)) == 4
