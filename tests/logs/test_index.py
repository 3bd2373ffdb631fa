"""What an index says need not be read holds nothing of what is needed, however it is cut."""

from __future__ import annotations

import gzip
import json
import zlib
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin.language.program import sql
from muntin.logs.chunks import WorkOrder, read_chunks
from muntin.logs.files import PRINT_BYTES, FilePosition, place_of_last
from muntin.logs.formats import Wanted
from muntin.logs.index import TimeIndex, first_time, place_after
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


@pytest.mark.parametrize("format_", ["json", "csv"])
@given(
    steps=st.lists(st.integers(0, 3), max_size=60),
    copies=st.sampled_from([1, 40, 2000]),
    asked=st.integers(-1, 190),
)
def test_the_first_line_after_a_time_is_found_wherever_it_is(
    tmp_path: Path, format_: str, steps: list[int], copies: int, asked: int
) -> None:
    """Also in files that are longer than what is looked at at once; some lines have no time."""
    times = [at for at in np.cumsum(steps).tolist() for _ in range(copies)]
    lines = [at if n % 7 or format_ == "csv" else -1 for n, at in enumerate(times)]
    order, stream = write(tmp_path / "log", lines, format_), stream_of(format_)
    place = place_after(order, stream, asked * US)
    behind = Path(order.path).read_bytes()[place:].decode().splitlines()
    known = [at for at in lines if at > asked and at >= 0]
    if not known:
        assert behind == []
        return
    first = lines.index(known[0])
    assert len(behind) == len(lines) - first
    assert first_time(order, stream) == min(at for at in lines if at >= 0) * US


def test_the_last_bytes_that_were_read_are_found_in_other_blocks(tmp_path: Path) -> None:
    """Lines before them were taken out and put in; they may lie where two blocks meet."""
    lines = [f"{n:05} a line of a log\n" for n in range(9000)]
    path = tmp_path / "log"
    for read in (20, 2838, 2839, 2850, 5000, 9000):
        text = "".join(lines[:read]).encode()
        crc = zlib.crc32(text[-PRINT_BYTES:])
        known = FilePosition("a", str(path), 1, 1, len(text), len(text), crc)
        for edited in (lines[1:], [*lines[:3], "new\n", *lines[3:]], lines):
            path.write_text("".join(edited))
            with path.open("rb") as file:
                place = place_of_last(file, known)
            assert place is not None
            assert path.read_bytes()[place:].decode() == "".join(lines[read:])
        path.write_text("".join(lines[: read - 1]))
        with path.open("rb") as file:
            assert place_of_last(file, known) is None
