"""A block comes back as it was, or not at all."""

from __future__ import annotations

import datetime as dt
import struct
import zlib
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin.errors import BlockError
from muntin.kernel.block import VERSION, decode, encode

SOME = dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=dt.UTC)
COLUMNS = {
    "int64": pa.array([1, None, -(2**63)], pa.int64()),
    "uint64": pa.array([2**64 - 1, None, 0], pa.uint64()),
    "int8": pa.array([1, None, -128], pa.int8()),
    "double": pa.array([0.1, None, float("-inf")], pa.float64()),
    "bool": pa.array([True, None, False]),
    "decimal": pa.array([Decimal("9" * 38), None, Decimal("-" + "9" * 38)], pa.decimal128(38, 0)),
    "cents": pa.array([Decimal("0.01"), None, Decimal("-1.10")], pa.decimal128(38, 2)),
    "utc": pa.array([SOME, None, SOME], pa.timestamp("us", "UTC")),
    "local": pa.array([SOME.replace(tzinfo=None), None, None], pa.timestamp("us")),
    "nanos": pa.array([-1, None, 1], pa.timestamp("ns")),
    "date": pa.array([dt.date(1, 1, 1), None, dt.date(9999, 12, 31)]),
    "time": pa.array([dt.time(23, 59, 59, 1), None, dt.time()]),
    "span": pa.array([dt.timedelta(-1), None, dt.timedelta(1)], pa.duration("us")),
    "interval": pa.array([(1, -2, 3), None, (0, 0, 0)], pa.month_day_nano_interval()),
    "text": pa.array(["", None, "日本 \0 🪟"]),
    "large": pa.array(["", None, "ü"], pa.large_string()),
    "view": pa.array(["", None, "longer than twelve bytes"], pa.string_view()),
    "bytes": pa.array([b"", None, b"\xff"]),
    "list": pa.array([[1, None], None, []], pa.list_(pa.int64())),
    "struct": pa.array([{"a": 1, "b": "x"}, None, {"a": None, "b": None}]),
    "map": pa.array([[("a", 1)], None, []], pa.map_(pa.string(), pa.int64())),
    "nested": pa.array([[{"k": [1]}], None, [None]]),
    "dictionary": pa.array(["a", None, "a"]).dictionary_encode(),
    "null": pa.nulls(3),
}
TWO_DICTIONARIES = pa.table(
    {"k0": pa.chunked_array([pa.array([key]).dictionary_encode() for key in ("a", "b")])}
)
SMALL = pa.table({"pane": [1, 2], "k0": ["ü", None], "c0": [3, 4]})
DATA = encode(SMALL)


@pytest.mark.parametrize("name", COLUMNS)
def test_every_type_comes_back(name: str) -> None:
    table = pa.table({name: COLUMNS[name]})
    found = decode(encode(table), "b")
    found.validate(full=True)
    assert found.schema == table.schema
    assert found.equals(table)


@pytest.mark.parametrize(
    "table",
    [
        pa.table(COLUMNS),
        pa.table(COLUMNS).slice(0, 0),
        pa.table(COLUMNS).slice(1, 1),
        pa.schema([]).empty_table(),
        pa.concat_tables([SMALL, SMALL.slice(0, 0), SMALL]),
        TWO_DICTIONARIES,
        pa.table({"n": pa.array(range(100_000))}),
        pa.table({"a b.c": [1], 'quoted "name"': [2], "ü": [3]}),
    ],
    ids=["all", "empty", "slice", "no columns", "several chunks", "dictionaries", "long", "names"],
)
def test_every_shape_comes_back(table: pa.Table) -> None:
    assert decode(encode(table), "b").equals(table)


def test_repeated_values_are_compressed() -> None:
    table = pa.table({"n": pa.array([7] * 100_000)})
    assert len(encode(table)) < table.nbytes / 20


def test_any_flipped_bit_is_noticed() -> None:
    for at in range(len(DATA)):
        for bit in range(8):
            damaged = bytearray(DATA)
            damaged[at] ^= 1 << bit
            with pytest.raises(BlockError, match=r"^job hot, key group 3: "):
                decode(bytes(damaged), "job hot, key group 3")


def test_any_part_of_a_block_is_refused() -> None:
    for size in range(len(DATA)):
        with pytest.raises(BlockError, match=r"^job hot: "):
            decode(DATA[:size], "job hot")
    with pytest.raises(BlockError, match="damaged"):
        decode(DATA + b"\0", "job hot")


@given(st.binary(max_size=200))
def test_foreign_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(BlockError, match=r"^saved block: "):
        decode(data, "saved block")


@given(st.binary(max_size=200))
def test_a_payload_that_is_not_arrow_is_refused(payload: bytes) -> None:
    """Checksums match, so only Arrow itself can tell."""
    header = struct.pack("<4sHQI", b"MNTN", VERSION, len(payload), zlib.crc32(payload))
    with pytest.raises(BlockError, match=r"^saved block: "):
        decode(header + payload, "saved block")


def test_messages_say_what_is_wrong() -> None:
    other = struct.pack("<4sH", b"MNTN", VERSION + 1) + DATA[6:]
    for data, message in [
        (b"", "b: 0 bytes are too few for a block"),
        (b"PAR1" + DATA[4:], "b: these bytes are not a block"),
        (other, f"b: block version {VERSION + 1}, but this Muntin reads {VERSION}"),
        (DATA[:-1], r"b: the block is damaged \(\d+ of \d+ bytes\)"),
    ]:
        with pytest.raises(BlockError, match=f"^{message}$"):
            decode(data, "b")
