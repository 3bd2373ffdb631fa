"""Whether a table of results is sound: its log, its files, and what each says of the other.

Delta's log has no checksums. Entries that we write ourselves have one all the same (`entries`), and
pages and ends of files that we write, too (`delta`). Of all else it is found what contradicts
something: entries and the checkpoints that sum them up, what the log says of a file and what is in
it, and what a file says of its rows.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import Schema
from pyarrow import parquet

from muntin.errors import StateError
from muntin.store import delta, entries, log
from muntin.store.findings import Finding, Weight
from muntin.store.storage import Storage

Action = dict[str, Any]
# What an action must have to be one, and of which types.
_FIELDS: dict[str, dict[str, type]] = {
    "add": {"path": str, "size": int, "modificationTime": int, "dataChange": bool},
    "remove": {"path": str, "dataChange": bool},
    "metaData": {"id": str, "format": dict, "schemaString": str, "configuration": dict},
    "protocol": {"minReaderVersion": int, "minWriterVersion": int},
    "txn": {"appId": str, "version": int},
    "commitInfo": {},
    "domainMetadata": {"domain": str},
    "checkpointMetadata": {},
    "sidecar": {"path": str},
}
# What may be told of the newest checkpoint.
_HINTS = {"version", "size", "parts", "sizeInBytes", "numOfAddFiles", "checkpointSchema",
          "checksum", "tags", "v2Checkpoint"}  # fmt: skip
_START = b"PAR1"
_MICROSECOND = timedelta(microseconds=1)
_ROUNDED = 1000  # microseconds by which the log may tell times too early


@dataclass
class _Contents:
    """What a table has, after some entries of its log."""

    files: dict[str, Action] = field(default_factory=dict)
    others: dict[str, Any] = field(default_factory=dict)  # protocol, columns, batches of writers

    def after(self, actions: Iterable[Action]) -> _Contents:
        files, others = dict(self.files), dict(self.others)
        for action in actions:
            ((kind, told),) = action.items()
            if kind == "add":
                known = ("path", "size", "stats", "partitionValues")
                files[told["path"]] = {name: told[name] for name in known if name in told}
            elif kind == "remove":
                files.pop(told["path"], None)
            elif kind == "txn":
                others[f"the batch of writer {told['appId']}"] = told["version"]
            elif kind in ("metaData", "protocol"):
                others[kind] = told
        return _Contents(files, others)

    def difference(self, other: _Contents) -> str | None:
        """The first thing that the two tell in different ways."""
        mine: dict[str, Any] = self.files | self.others
        others: dict[str, Any] = other.files | other.others
        for name in (*mine, *others):
            if mine.get(name) != others.get(name):
                return name
        return None


class _Log:
    """All files of a table's log that can be read, and what is wrong with the others."""

    def __init__(self, place: Storage) -> None:
        self._place = place
        self.wrong: dict[str, str] = {}  # by file
        self.entries: dict[int, list[Action]] = {}
        self.summaries: dict[int, list[Action]] = {}
        names = place.names(log.FOLDER)
        for name in names:
            stem, _, kind = name.partition(".")
            if stem.isdigit() and kind in ("json", "checkpoint.parquet"):
                self._take(name, int(stem), kind == "json")
        if log.NEWEST in names:
            self._take_newest()

    def _take(self, name: str, number: int, is_entry: bool) -> None:
        file = f"{log.FOLDER}/{name}"
        try:
            read = _entry if is_entry else _summary
            actions = [_known(action) for action in read(self._place, file)]
        except Exception as error:  # whatever bytes that make no sense lead to
            if self._place.size(file) is not None:  # a program may have removed it meanwhile
                self.wrong[name] = _words(self._place, file, error)
        else:
            (self.entries if is_entry else self.summaries)[number] = actions

    def _take_newest(self) -> None:
        file = f"{log.FOLDER}/{log.NEWEST}"
        try:
            told = json.loads(self._place.read(file))
            if not told.keys() <= _HINTS:
                raise ValueError(f"it has {', '.join(told.keys() - _HINTS)}")
            number = told["version"]
            summary = f"{number:020}.checkpoint.parquet"
            if summary in self.wrong:
                return
            actions = self.summaries[number]
            adds = sum("add" in action for action in actions)
            size = self._place.size(f"{log.FOLDER}/{summary}")
            there = {"size": len(actions), "sizeInBytes": size, "numOfAddFiles": adds}
            for name, value in there.items():
                if told.get(name, value) != value:
                    raise ValueError(f"of checkpoint {number}, {name} is {value}")
        except Exception as error:
            self.wrong[log.NEWEST] = _words(self._place, file, error)

    def upto(self, number: int, without: int | None = None) -> _Contents | None:
        """What the table had after an entry; None if something is missing to know that.

        It is made of the newest checkpoint and what came after it, or `without` one of these.
        """
        known = [n for n in self.summaries if n <= number and n != without]
        start = max(known, default=-1)
        contents = _Contents().after(self.summaries.get(start, ()))
        for at in range(start + 1, number + 1):
            if at not in self.entries:
                return None
            contents = contents.after(self.entries[at])
        return contents

    @property
    def version(self) -> int:
        """The newest entry, whether it can be read or not."""
        numbers = [*self.entries, *self.summaries]
        numbers += (int(name.partition(".")[0]) for name in self.wrong if name[:1].isdigit())
        return max(numbers, default=-1)


def check_table(place: Storage) -> Iterator[Finding]:
    """Whether a table of results, its log and all of its files can be read, and fit together."""
    away = _away(place)
    try:
        exists = delta.exists(place)
    except StateError as error:
        yield Finding(Weight.DAMAGE, place.where(), str(error))
        exists = True
    if not exists:
        if any(name.endswith(".parquet") for name in place.names("")):
            text = f"its log was taken away, and with it all results; {away}"
            yield Finding(Weight.DAMAGE, place.where(), text)
        else:
            yield Finding(Weight.NOTE, place.where(), "has no table of results in it")
        return
    found = _Log(place)
    damages = list(_check_log(place, found))
    yield from damages
    contents = found.upto(found.version)
    if not damages:
        try:
            delta.snapshot(place)
        except StateError as error:
            yield Finding(Weight.DAMAGE, place.where(), f"{error}; {away}")
    if contents is None:
        return
    sizes = place.sizes("")
    for name, add in contents.files.items():
        wrong = _wrong_part(place, name, add, contents, sizes.get(name))
        if wrong is not None:
            yield Finding(Weight.DAMAGE, place.where(name), f"{wrong}; {away}")
    for name in sizes:
        if not name.startswith(f"{log.FOLDER}/") and name not in contents.files:
            text = "is no part of the table now; it was replaced, or its batch was never "
            text += "committed, and is removed after ten minutes of running"
            yield Finding(Weight.LEFTOVER, place.where(name), text)


def _away(place: Storage) -> str:
    return f"put back a copy of it, or move {place} away, and a new table begins"


def _check_log(place: Storage, found: _Log) -> Iterator[Finding]:
    summed = max(found.summaries, default=-1)
    for name, why in found.wrong.items():
        what, advice = f"an entry of the table's log is damaged ({why})", _away(place)
        if name == log.NEWEST:
            what = f"what names the newest checkpoint of the table's log is damaged ({why})"
            advice = "put back a copy of it, or remove it, and readers look for the newest"
        elif not name.endswith(".json"):
            what = f"a checkpoint of the table's log is damaged ({why})"
            if found.upto(int(name.partition(".")[0])) is not None:
                advice = f"put back a copy of it, or remove it with {log.NEWEST}: the entries that "
                advice += "it sums up are there, so nothing is lost"
        elif int(name.partition(".")[0]) <= summed:
            advice = "put back a copy of it, or remove it: a checkpoint sums it up, and readers do "
            advice += "without it"
        yield Finding(Weight.DAMAGE, place.where(f"{log.FOLDER}/{name}"), f"{what}; {advice}")
    for number in sorted(found.summaries):
        of_entries = found.upto(number, without=number)
        told = _Contents().after(found.summaries[number])
        other = None if of_entries is None else told.difference(of_entries)
        if other is not None:
            text = "a checkpoint of the table's log tells something else than the entries that it "
            text += f"sums up, of {other}: one of these is damaged; put back a copy of the folder"
            where = place.where(f"{log.FOLDER}/{number:020}.checkpoint.parquet")
            yield Finding(Weight.DAMAGE, where, text)
    known = {*found.entries, *(int(n[:20]) for n in found.wrong if n.endswith(".json"))}
    for number in range(summed + 1, found.version):
        if number not in known:
            where = place.where(f"{log.FOLDER}/{number:020}.json")
            text = f"an entry of the table's log is gone; {_away(place)}"
            yield Finding(Weight.DAMAGE, where, text)


def _entry(place: Storage, file: str) -> list[Action]:
    """The actions of an entry, if it is as it was written."""
    data = place.read(file)
    rest = data.partition(b"\n")[2]
    actions: list[Action] = [json.loads(line) for line in data.splitlines()]
    if not actions:
        raise ValueError("it is empty")
    told = actions[0].get("commitInfo", {}).get(entries.CHECKSUM)
    if told is not None and told != zlib.crc32(rest):
        raise ValueError("its checksum does not fit what is in it")
    return actions


def _summary(place: Storage, file: str) -> list[Action]:
    """The actions of a checkpoint."""
    with place.open(file) as source, parquet.ParquetFile(source) as opened:
        rows = opened.read(use_threads=False)
    rows.validate(full=True)
    actions: list[Action] = rows.to_pylist()
    return actions


def _plain(value: Any) -> Any:
    """A value of JSON or Parquet, without what is not there and with maps as maps."""
    if isinstance(value, list) and any(isinstance(each, tuple) for each in value):
        value = dict(value)
    if isinstance(value, dict):
        every = {name: _plain(each) for name, each in value.items()}
        return {name: each for name, each in every.items() if each not in (None, [], {})}
    return [_plain(each) for each in value] if isinstance(value, list) else value


def _known(action: Action) -> Action:
    """An action, if it is one that a log has; a ValueError where it is none."""
    there = {kind: told for kind, told in action.items() if told is not None}
    if len(there) != 1:
        raise ValueError("it has something that is no action of a log")
    ((kind, told),) = there.items()
    told = _plain(told)
    if kind not in _FIELDS:
        raise ValueError(f"it has '{kind}', which is no action of a log")
    for name, of in _FIELDS[kind].items():
        if type(told.get(name)) is not of:
            raise ValueError(f"{name} of '{kind}' is {told.get(name)!r}")
    if "stats" in told:
        told = {**told, "stats": json.loads(told["stats"])}
        if kind == "add" and type(told["stats"].get("numRecords")) is not int:
            raise ValueError(f"nothing tells how many rows {told['path']} has")
    if kind == "metaData":
        Schema.from_json(told["schemaString"])
    return {kind: told}


def _wrong_part(
    place: Storage, name: str, add: Action, table: _Contents, size: int | None
) -> str | None:
    """What is wrong with a file of a table, in words."""
    stats = add.get("stats", {})
    rows = stats.get("numRecords")
    if size is None:
        return f"is part of the table, with {rows or 0:,} rows, and is gone"
    if size != add["size"]:
        return f"has {size:,} bytes, and the table's log says {add['size']:,}"
    try:
        told = _Told()
        with place.open(name) as source:
            footer = stats.get(delta.FOOTER)
            if source.read(len(_START)) != _START:
                raise ValueError("it does not begin as a file of Parquet")
            if footer not in (None, delta.footer_checksum(source)):
                raise ValueError("the checksum of its end does not fit what is there")
            with parquet.ParquetFile(source, page_checksum_verification=True) as file:
                for number in range(file.num_row_groups):
                    group = file.read_row_group(number, use_threads=False)
                    _require_statistics(file.metadata.row_group(number), group)
                    told.take(group)
        metadata = table.others.get("metaData", {})
        if rows is not None and told.rows != rows:
            return f"has {told.rows:,} rows, and the table's log says {rows:,}"
        return told.contradiction(stats, metadata)
    except Exception as error:  # whatever bytes that make no sense lead to
        return f"cannot be read ({_words(place, name, error)})"


@dataclass
class _Told:
    """What the rows of a file say, of which the log tells something."""

    rows: int = 0
    columns: set[str] = field(default_factory=set)
    windows: set[str] = field(default_factory=set)
    ends: list[int] = field(default_factory=list)  # the first and the last of each group

    def take(self, rows: pa.Table) -> None:
        self.rows += rows.num_rows
        self.columns.update(rows.column_names)
        self.windows.update(rows["window_name"].unique().to_pylist())
        ends = pc.min_max(rows["window_end"].cast(pa.int64())).as_py()
        self.ends += [end for end in ends.values() if end is not None]

    def contradiction(self, stats: Mapping[str, Any], metadata: Mapping[str, Any]) -> str | None:
        """What the log says that is not so, in words."""
        schema = json.loads(metadata.get("schemaString", '{"fields": []}'))
        missing = self.columns - {column["name"] for column in schema["fields"]}
        if missing:
            return f"has columns that the table has not: {', '.join(sorted(missing))}"
        noted = metadata.get("configuration", {}).get("muntin.windows")
        if noted is not None and not self.windows <= {*json.loads(noted)}:
            return f"has windows that the table's log does not tell: {', '.join(self.windows)}"
        least, most = stats.get("minValues", {}), stats.get("maxValues", {})
        if not _between(least.get("window_name"), self.windows, most.get("window_name")):
            return "has windows of other names than the table's log tells"
        first, last = _position(least.get("window_end")), _position(most.get("window_end"))
        if not _between(first, self.ends, None if last is None else last + _ROUNDED):
            return "has windows with other ends than the table's log tells"
        return None


def _between(least: Any, values: Collection[Any], most: Any) -> bool:
    """Whether values are between two others, as far as these are known."""
    is_known = least is not None and most is not None
    return not is_known or all(least <= value <= most for value in values)


def _position(told: str | int | None) -> int | None:
    """A position as the log has it: a number, or a time in microseconds."""
    if not isinstance(told, str):
        return told
    with suppress(OverflowError):
        at = datetime.fromisoformat(told)
        return (at - datetime.fromtimestamp(0, at.tzinfo)) // _MICROSECOND
    return None


def _require_statistics(group: parquet.RowGroupMetaData, rows: pa.Table) -> None:
    """Raises a ValueError where values are not between those that a file tells.

    Readers leave out groups of rows by these.
    """
    for number in range(group.num_columns):
        column = group.column(number)
        told, name = column.statistics, column.path_in_schema
        if told is None or name not in rows.column_names:
            continue
        if told.has_null_count and told.null_count != rows[name].null_count:
            raise ValueError(f"column {name} has {rows[name].null_count:,} values that are NULL")
        kind, is_ordered = rows.schema.field(name).type, False
        for test in (pa.types.is_integer, pa.types.is_string, pa.types.is_timestamp):
            is_ordered |= test(kind)
        with suppress(OverflowError):  # of years that are not in Python's calendar
            there = pc.min_max(rows[name]).as_py() if is_ordered and told.has_min_max else {}
            values = [value for value in there.values() if value is not None]
            if values and not _between(told.min, values, told.max):
                raise ValueError(f"values of column {name} are not between those that it tells")


def _words(place: Storage, name: str, error: Exception) -> str:
    said = next(iter(str(error).splitlines()), type(error).__name__)
    if isinstance(error, KeyError):
        said = f"{said} is missing"
    return said.removeprefix(f"{place.where(name)} ")
