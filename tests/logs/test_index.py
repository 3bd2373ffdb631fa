"""What an index says need not be read holds nothing of what is needed, however it is cut."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin.language.program import sql
from muntin.logs.chunks import WorkOrder, read_chunks
from muntin.logs.files import FilePosition, place_of_last, prints
from muntin.logs.formats import Wanted
from muntin.logs.index import TimeIndex, first_time
from muntin.logs.records import parse
from muntin.model.records import POSITION
from muntin.model.streams import Stream

US = 1_000_000


def stream_of(format_: str) -> Stream:
    text = f"CREATE STREAM s (t BIGINT) FROM 'x' FORMAT {format_} TIMESTAMP t"
    return sql(text).streams["s"]


def write(path: Path, times: list[int], format_: str) -> WorkOrder:
    if format_ == "csv":
        text = "t\n" + "".join(f"{at}\n" for at in times)
    else:
        text = "".join(json.dumps({"t": at}) + "\n" if at >= 0 else "no time\n" for at in times)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return WorkOrder("s", "a", str(path), 0, path.stat().st_size)


def seconds_in(order: WorkOrder, ranges: list[tuple[int, int]], stream: Stream) -> list[int]:
    found: list[int] = []
    for start, end in ranges:
        part = WorkOrder("s", "a", order.path, start, end)
        for chunk in read_chunks(part, stream.format, ["t"]):
            times = parse(chunk, stream, Wanted(()), part).column(POSITION).drop_null()
            found += [at // US for at in times.to_pylist()]
    return found


@given(
    st.lists(st.integers(1_000, 3_000), min_size=1, max_size=60),
    st.integers(0, 60),
    st.randoms(use_true_random=False),
    st.lists(st.tuples(st.integers(900, 3_100), st.integers(1, 300)), min_size=1, max_size=4),
    st.sampled_from([10, 64, 300]),
    st.sampled_from(["json", "csv"]),
    st.integers(1, 3),
)
def test_what_is_left_out_holds_nothing_that_is_needed(
    tmp_path_factory: pytest.TempPathFactory,
    times: list[int],
    slack: int,
    random: Random,
    stretches: list[tuple[int, int]],
    stride: int,
    format_: str,
    files: int,
) -> None:
    times = sorted(times, key=lambda at: at + random.uniform(0, slack))
    if format_ == "json":
        times[len(times) // 2 : len(times) // 2] = [-1]
    folder, stream = tmp_path_factory.mktemp("logs"), stream_of(format_)
    size = -(-len(times) // files)
    parts = [times[at : at + size] for at in range(0, len(times), size)]
    orders = [write(folder / f"{n}.log", part, format_) for n, part in enumerate(parts)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("muntin.logs.index.STRIDES", (stride, stride))
        patch.setattr("muntin.logs.index.LOOK", 40)
        index = TimeIndex.of(orders, stream)
    wanted = np.array([(at * US, (at + length) * US) for at, length in stretches], np.int64)
    kept = index.kept(wanted, slack * US)
    found = [s for order in orders for s in seconds_in(order, kept[order.path], stream)]
    needed = [t for t in times if any(at <= t < at + length for at, length in stretches)]
    assert sorted(t for t in found if t in needed) == sorted(needed)


def test_most_of_a_long_log_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("muntin.logs.index.STRIDES", (1000, 1000))
    monkeypatch.setattr("muntin.logs.index.LOOK", 100)
    stream = stream_of("json")
    order = write(tmp_path / "a.log", list(range(100_000, 200_000)), "json")
    index = TimeIndex.of([order], stream)
    assert index.first == 100_000 * US
    hour = np.array([[150_000 * US, 153_600 * US]])
    ((start, end),) = index.kept(hour, 0)[order.path]
    assert 0.03 < (end - start) / order.end < 0.04
    assert index.kept(np.array([[0, US]]), 0)[order.path] == []


def test_one_wrong_time_makes_more_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("muntin.logs.index.STRIDES", (100, 100))
    stream, times = stream_of("json"), list(range(10_000, 20_000))
    hour = np.array([[15_000 * US, 15_100 * US]])
    (exact,) = (
        TimeIndex.of([write(tmp_path / "a.log", times, "json")], stream).kept(hour, 0).values()
    )
    for wrong in (1, 99_999):
        changed = [*times[:1000], wrong, *times[1000:9000], wrong, *times[9000:]]
        order = write(tmp_path / "b.log", changed, "json")
        (kept,) = TimeIndex.of([order], stream).kept(hour, 0).values()
        assert {*range(15_000, 15_100)} <= {*seconds_in(order, kept, stream)}
    ((start, end),) = exact
    assert end - start < 20_000


def test_compressed_files_are_kept_or_left_out_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("muntin.logs.index.LOOK", 100)
    stream = stream_of("json")
    orders = [
        write(tmp_path / f"{n}.gz", list(range(n * 1000, n * 1000 + 1000)), "json")
        for n in range(5)
    ]
    kept = TimeIndex.of(orders, stream).kept(np.array([[2500 * US, 2600 * US]]), 0)
    assert [bool(kept[order.path]) for order in orders] == [False, False, True, False, False]
    assert kept[orders[2].path] == [(0, orders[2].end)]


def test_a_log_without_a_time_has_no_beginning(tmp_path: Path) -> None:
    order = write(tmp_path / "a.log", [-1, -1], "json")
    index = TimeIndex.of([order], stream_of("json"))
    assert index.first is None
    assert index.kept(np.array([[0, US]]), 0) == {order.path: [(0, order.end)]}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("untimed", [0, 1, 5000])
def test_the_first_time_of_a_file_is_found_behind_lines_without_one(
    tmp_path: Path, packed: bool, untimed: int
) -> None:
    order = write(tmp_path / f"log{'.gz' * packed}", [-1] * untimed + [7, 9], "json")
    stream = stream_of("json")
    assert first_time(order, stream) == 7 * US
    long = json.dumps({"t": 8, "x": "y" * 50_000}) + "\n"
    path = tmp_path / "long"
    path.write_text(long + json.dumps({"t": 3}) + "\n")
    assert first_time(replace(order, path=str(path), end=path.stat().st_size), stream) == 8 * US


def known_of(path: Path, text: str) -> FilePosition:
    path.write_text(text)
    with path.open("rb") as file:
        known = prints(file, len(text))
    return FilePosition("a", str(path), 1, 1, len(text), len(text), **known._asdict())


def place_in(path: Path, text: str, known: FilePosition) -> int | None:
    path.write_text(text)
    with path.open("rb") as file:
        return place_of_last(file, known)


@pytest.mark.parametrize("tail", ["a line of a log", "y" * 300])
def test_the_last_lines_that_were_read_are_found_in_other_blocks(tmp_path: Path, tail: str) -> None:
    """Lines before them were taken out and put in; they may lie where two blocks meet."""
    lines, path = [f"{n:05} {tail}\n" for n in range(9000)], tmp_path / "log"
    for read in (20, 2838, 2839, 2850, 5000, 9000):
        known = known_of(path, "".join(lines[:read]))
        for edited in (lines[1:], [*lines[:3], "new\n", *lines[3:]], lines):
            place = place_in(path, "".join(edited), known)
            assert path.read_bytes()[place:].decode() == "".join(lines[read:])
            assert place is not None
        assert place_in(path, "".join(lines[: read - 1]), known) is None
        assert place_in(path, "".join(lines[read:]), known) is None


def test_lines_that_are_there_twice_are_nowhere(tmp_path: Path) -> None:
    lines, path = [f"{n:05} a line of a log\n" for n in range(900)], tmp_path / "log"
    known = known_of(path, "".join(lines[:500]))
    assert place_in(path, "".join([*lines, *lines]), known) is None
    assert place_in(path, "x" * 50_000, known) is None
    assert known_of(path, "x" * 50_000 + "\n").last_size == 0  # too long to be looked at
