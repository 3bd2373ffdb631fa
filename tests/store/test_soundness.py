"""A table whose log and files do not say the same is told from one that is whole."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyarrow import parquet

from muntin.store import delta
from muntin.store.findings import Weight
from muntin.store.soundness import check_table
from muntin.store.storage import LocalFolder
from tests.store.test_journal import Recorder


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table with a checkpoint of its log, and entries before and behind it."""
    state = tmp_path_factory.mktemp("state")
    recorder = Recorder(state)
    for number in range(5):
        recorder.commit((number, 1))
        if number == 2:
            delta.sum_up(LocalFolder(state / "results" / "j"))
    return state / "results" / "j"


@pytest.fixture
def table(whole: Path, tmp_path: Path) -> Path:
    shutil.copytree(whole, tmp_path / "j")
    return tmp_path / "j"


def told(table: Path) -> dict[str, str]:
    """What is damaged, by the name of its file."""
    found = check_table(LocalFolder(table))
    return {Path(f.place).name: f.text for f in found if f.weight is Weight.DAMAGE}


def entry(table: Path, number: int) -> Path:
    return table / "_delta_log" / f"{number:020}.json"


def summary(table: Path) -> Path:
    return next(table.glob("_delta_log/*.checkpoint.parquet"))


def rewritten(path: Path, change: Callable[[list[dict[str, dict[str, object]]]], None]) -> None:
    """Changes what an entry says, as if somebody without checksums had written it."""
    actions = [json.loads(line) for line in path.read_text().splitlines()]
    actions[0]["commitInfo"] = {}
    change(actions)
    path.write_text("".join(f"{json.dumps(action)}\n" for action in actions))


def test_a_whole_table_has_nothing_to_tell(table: Path) -> None:
    assert list(check_table(LocalFolder(table))) == []
    for path in table.glob("_delta_log/*.json"):  # as earlier versions wrote them
        rewritten(path, lambda actions: None)
    assert told(table) == {}


def test_what_another_library_has_merged_is_sound(table: Path) -> None:
    opened = DeltaTable(table)
    opened.optimize.compact()
    opened.create_checkpoint()
    assert told(table) == {}


def test_an_entry_that_has_changed_is_told(table: Path) -> None:
    newest = entry(table, 5)
    newest.write_text(newest.read_text().replace("part-", "pert-"))
    assert "its checksum does not fit" in told(table)[newest.name]
    assert "put back a copy of it, or move" in told(table)[newest.name]


def test_an_entry_that_is_summed_up_is_not_needed(table: Path) -> None:
    entry(table, 1).write_text("{}")
    assert "remove it: a checkpoint sums it up" in told(table)[entry(table, 1).name]
    entry(table, 1).unlink()
    assert told(table) == {}


def test_an_entry_that_is_gone_is_told(table: Path) -> None:
    entry(table, 4).unlink()
    assert "is gone" in told(table)[entry(table, 4).name]


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        ("add", "size", 1.5),
        ("add", "path", None),
        ("add", "stats", '{"numRows": 3}'),
        ("add", "stats", "{"),
        ("txn", "version", "1"),
    ],
)
def test_fields_are_what_they_should_be(table: Path, kind: str, name: str, value: object) -> None:
    def change(actions: list[dict[str, dict[str, object]]]) -> None:
        next(action for action in actions if kind in action)[kind][name] = value

    rewritten(entry(table, 5), change)
    assert "an entry of the table's log is damaged" in told(table)[entry(table, 5).name]


@pytest.mark.parametrize(
    ("stats", "words"),
    [
        ({"numRecords": 7}, "rows, and the table's log says 7"),
        ({"minValues": {"window_name": "x"}, "maxValues": {"window_name": "y"}}, "of other names"),
        ({"minValues": {"window_end": 0}, "maxValues": {"window_end": 1}}, "with other ends"),
    ],
)
def test_files_have_what_the_log_says(table: Path, stats: dict[str, object], words: str) -> None:
    def change(actions: list[dict[str, dict[str, object]]]) -> None:
        add = next(action["add"] for action in actions if "add" in action)
        add["stats"] = json.dumps(json.loads(str(add["stats"])) | stats)

    rewritten(entry(table, 5), change)
    assert words in "".join(told(table).values())


def test_a_checkpoint_tells_what_its_entries_tell(table: Path) -> None:
    def change(actions: list[dict[str, dict[str, object]]]) -> None:
        next(action for action in actions if "txn" in action)["txn"]["version"] = 9

    rewritten(entry(table, 3), change)
    assert "one of these is damaged" in told(table)[summary(table).name]


def test_a_damaged_checkpoint_is_done_without(table: Path) -> None:
    path = summary(table)
    data = path.read_bytes()
    path.write_bytes(data[:1000] + bytes(300) + data[1300:])
    assert "the entries that it sums up are there" in told(table)[path.name]
    path.unlink()
    (table / "_delta_log" / "_last_checkpoint").unlink()
    assert told(table) == {}
    path.write_bytes(data[:1000] + bytes(300) + data[1300:])
    entry(table, 0).unlink()
    assert "a new table begins" in told(table)[path.name]


def test_what_names_the_checkpoint_is_compared_with_it(table: Path) -> None:
    path = table / "_delta_log" / "_last_checkpoint"
    known = json.loads(path.read_text())
    for name in ("version", "size", "sizeInBytes", "numOfAddFiles"):
        path.write_text(json.dumps(known | {name: known[name] + 1}))
        assert "readers look for the newest" in told(table)["_last_checkpoint"], name


def test_pages_and_ends_of_files_have_checksums(table: Path) -> None:
    path = sorted(table.glob("part-*.parquet"))[0]
    data = path.read_bytes()
    column = parquet.read_metadata(path).row_group(0).column(0)
    page = column.data_page_offset + column.total_compressed_size - 1
    for at in (0, page, len(data) - 30):
        changed = bytearray(data)
        changed[at] ^= 1
        path.write_bytes(changed)
        assert "cannot be read" in told(table)[path.name], at
    path.write_bytes(data)
    assert told(table) == {}


def test_statistics_that_are_not_so_are_told(table: Path) -> None:
    """Of a file whose end has no checksum."""
    newest = entry(table, 5)
    add = next(
        json.loads(line)["add"] for line in newest.read_text().splitlines() if '"add"' in line
    )
    path = table / add["path"]
    rows = parquet.read_table(path)
    other = rows.set_column(
        rows.column_names.index("row_number"), "row_number", pa.array([7] * len(rows))
    )
    sink = pa.BufferOutputStream()
    parquet.write_table(other, sink)
    data = sink.getvalue().to_pybytes()
    seven = (7).to_bytes(8, "little")
    end = data.rindex(seven)  # the least of the last column, as the file tells it
    path.write_bytes(data[:end] + (8).to_bytes(8, "little") + data[end + 8 :])

    def change(actions: list[dict[str, dict[str, object]]]) -> None:
        add = next(action["add"] for action in actions if "add" in action)
        told = json.loads(str(add["stats"]))
        del told[delta.FOOTER]
        add["size"], add["stats"] = len(data), json.dumps(told)

    rewritten(newest, change)
    assert "row_number are not between" in told(table)[path.name]


def test_a_folder_without_its_log_is_told(table: Path) -> None:
    shutil.rmtree(table / "_delta_log")
    assert "its log was taken away" in told(table)[table.name]
