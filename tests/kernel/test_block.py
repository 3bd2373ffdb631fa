"""A block comes back as it was, or not at all."""

from __future__ import annotations

import datetime as dt
import json
import struct
import zlib
from dataclasses import replace
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin.errors import BlockError
from muntin.kernel.block import NAMES_AT_MOST, VERSION, Block, Sources, decode, encode, regrid

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
BLOCK = Block(
    "5a2b", DATA, 2, 60, 1, 3, 7, Sources.of(["web-1", "wäb-2"]), 12, 40, 3, ((1, 1), (2, 1))
)
BYTES = BLOCK.encode()


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


def test_a_block_says_what_it_holds() -> None:
    found = Block.decode(BYTES, "b")
    assert found == BLOCK
    assert found.sources.names == ("web-1", "wäb-2")
    assert found.checksum == zlib.crc32(DATA[18:])
    assert found.table().equals(SMALL)
    assert Block.decode(Block("s", DATA, 2).encode(), "b") == Block("s", DATA, 2)


def test_any_flipped_bit_of_a_block_is_noticed() -> None:
    for at in range(len(BYTES)):
        for bit in range(0, 8, 3):
            damaged = bytearray(BYTES)
            damaged[at] ^= 1 << bit
            with pytest.raises(BlockError, match=r"^saved block of hot: "):
                Block.decode(bytes(damaged), "saved block of hot")


def test_any_part_of_a_whole_block_is_refused() -> None:
    for size in range(len(BYTES)):
        with pytest.raises(BlockError, match=r"^b: "):
            Block.decode(BYTES[:size], "b")


@given(st.binary(max_size=200))
def test_foreign_bytes_are_no_block(data: bytes) -> None:
    with pytest.raises(BlockError, match=r"^saved block: "):
        Block.decode(data, "saved block")


_fields = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
_names = ["shape", "rows", "pane", "lower", "upper", "group", "sequence", "records", "version",
          "steps", "names", "count", "digest", "checksum"]  # fmt: skip


@given(st.dictionaries(st.sampled_from(_names), _fields) | _fields)
def test_a_header_of_other_fields_is_refused(told: object) -> None:
    """Its checksum is right, so only what it says can tell."""
    head = json.dumps(told).encode()
    prefix = struct.pack("<4sHII", b"MNTN", VERSION, len(head), zlib.crc32(head))
    with pytest.raises(BlockError, match=r"^b: "):
        Block.decode(prefix + head + DATA, "b")


def test_a_header_before_other_rows_is_refused() -> None:
    other = replace(BLOCK, data=encode(SMALL.slice(0, 1))).data
    with pytest.raises(BlockError, match="the header is of other rows"):
        Block.decode(BYTES[: -len(DATA)] + other, "b")


def test_damaged_rows_are_refused_by_the_name_of_their_block() -> None:
    broken = replace(BLOCK, data=DATA[:-1])
    with pytest.raises(BlockError, match=r"^block of shape 5a2b, key group 7: the block is dam"):
        broken.table()


def test_many_sources_do_not_make_a_header_heavy() -> None:
    few = Sources.of(f"web-{i}" for i in range(NAMES_AT_MOST))
    many = Sources.of(f"web-{i}" for i in range(1000))
    assert (len(few.names), few.count) == (NAMES_AT_MOST, NAMES_AT_MOST)
    assert (many.names, many.count) == ((), 1000)
    assert many == Sources.of(f"web-{i}" for i in reversed(range(1000)))
    assert many != Sources.of(f"web-{i}" for i in range(1, 1001))
    assert len(replace(BLOCK, sources=many).encode()) < len(BYTES) + 40
    assert Block.decode(replace(BLOCK, sources=many).encode(), "b").sources == many


def test_sources_add_up() -> None:
    names = [f"web-{i}" for i in range(40)]
    one, two = Sources.of(names[:10]), Sources.of(names[5:15])
    assert Sources.merged([one, two]) == Sources.of(names[:15])
    assert Sources.merged([one, Sources.of(names[10:])]).count >= 30
    many = Sources.of(names)
    assert Sources.merged([many, many]) == many
    assert Sources.merged([one, two, many]) == Sources.merged([many, one, two])


def test_panes_move_to_another_grid() -> None:
    fine = pa.table(
        {
            "pane": [0, 5, -1, 12],
            "spec": pa.array([0, 0, 0, 9], pa.int32()),
            "not_before": pa.array([None, 9, 4, None], pa.int64()),
            "c0": [1, 2, 3, 4],
        }
    )
    coarse = regrid(fine, 10, 30)
    assert coarse["pane"].to_pylist() == [0, 1, -1, 4]
    assert coarse["not_before"].to_pylist() == [None, 3, 1, None]
    assert regrid(coarse, 30, 10)["pane"].to_pylist() == [0, 3, -3, 12]
    assert regrid(fine, 10, 10) is fine
    # The window that ends before pane 12 is on no grid of 50: no job asks for it any more.
    assert regrid(fine, 10, 50)["c0"].to_pylist() == [1, 2, 3]
