"""Keys and their partitions: always the same, none missed by a selection, and misfits told."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin.collections.keys import (
    ByHash,
    ByRange,
    Partitioner,
    Selection,
    as_keys,
    cast_keys,
    fitting_type,
    key_type,
)
from muntin.errors import InputError

KINDS: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.int64(), st.integers(-50, 50)),
    (pa.float64(), st.floats(-50, 50)),
    (pa.string(), st.text("abé", max_size=3)),
    (pa.binary(), st.binary(max_size=2)),
    (pa.date32(), st.dates(date(2026, 1, 1), date(2026, 3, 1))),
    (pa.timestamp("us"), st.datetimes(datetime(2026, 1, 1), datetime(2026, 1, 2))),
    (
        pa.timestamp("us", "UTC"),
        st.datetimes(datetime(2026, 1, 1), datetime(2026, 1, 2), timezones=st.just(UTC)),
    ),
]


@st.composite
def partitioned(draw: st.DrawFn) -> tuple[pa.DataType, list[Any], Partitioner, Any]:
    type_, values = draw(st.sampled_from(KINDS))
    keys = draw(st.lists(values, max_size=30))
    count = draw(st.integers(1, 9))
    by_range = ByRange.fitted(pa.array(keys, type_), count)
    partitioner: Partitioner = by_range if draw(st.booleans()) else ByHash(count)
    return type_, keys, partitioner, values


@given(partitioned(), st.data())
def test_a_selection_misses_no_partition(
    given_: tuple[pa.DataType, list[Any], Partitioner, Any], data: st.DataObject
) -> None:
    type_, keys, partitioner, values = given_
    array = pa.array(keys, type_)
    parts = partitioner.of(array).tolist()
    assert all(0 <= part < partitioner.count for part in parts)
    assert [partitioner.of(array[n : n + 1]).tolist()[0] for n in range(len(keys))] == parts
    lower, upper = sorted([data.draw(values), data.draw(values)])
    wanted = data.draw(st.none() | st.lists(values, max_size=4))
    ranges = None if not lower < upper else ((lower, upper), (None, lower))
    selection = Selection(None if wanted is None else tuple(wanted), ranges).checked(type_, "it")
    chosen = [(wanted is None or key in wanted) and (ranges is None or key < upper) for key in keys]
    mask = selection.mask(pa.chunked_array([array]))
    assert (mask.to_pylist() if mask is not None else [True] * len(keys)) == chosen
    touched = selection.partitions(partitioner, type_)
    assert {part for part, is_chosen in zip(parts, chosen, strict=True) if is_chosen} <= set(
        touched
    )


@given(partitioned())
def test_ranges_are_in_order(given_: tuple[pa.DataType, list[Any], Partitioner, Any]) -> None:
    type_, keys, _, _ = given_
    by_range = ByRange.fitted(pa.array(keys, type_), 5)
    ordered = sorted(keys)
    assert by_range.of(pa.array(ordered, type_)).tolist() == sorted(
        by_range.of(pa.array(keys, type_)).tolist()
    )


def test_ranges_narrow_down_to_the_partitions_that_hold_them() -> None:
    by_range = ByRange((10, 20, 30))
    assert list(by_range.within(10, 20, pa.int64())) == [1]
    assert list(by_range.within(9, 21, pa.int64())) == [0, 1, 2]
    assert list(by_range.within(None, 10, pa.int64())) == [0]
    assert list(by_range.within(30, None, pa.int64())) == [3]
    assert list(ByHash(3).within(1, 2, pa.int64())) == [0, 1, 2]


def test_fitted_ranges_hold_about_as_many_keys_each() -> None:
    skewed = [n * n for n in range(1000)]
    by_range = ByRange.fitted(pa.array(skewed), 8)
    held = [by_range.of(pa.array(skewed)).tolist().count(part) for part in range(8)]
    assert max(held) - min(held) <= 2


def test_equal_keys_of_other_types_are_in_the_same_partition() -> None:
    narrow, wide = pa.array([1, 2, 3], pa.int32()), pa.array([1, 2, 3], pa.int64())
    for partitioner in (ByHash(7), ByRange((2, 3))):
        cast = cast_keys(narrow, pa.int64(), "it")
        assert partitioner.of(cast).tolist() == partitioner.of(wide).tolist()
    assert ByHash(99).of(pa.array([0.0])).tolist() == ByHash(99).of(pa.array([-0.0])).tolist()


def test_the_partition_of_a_key_is_the_same_in_every_version() -> None:
    """What was written by an earlier version is read by this one."""
    assert ByHash(1000).of(pa.array([0, 1, -7])).tolist() == HASHED_NUMBERS
    assert ByHash(1000).of(pa.array(["", "a", "Zürich"])).tolist() == HASHED_TEXTS


HASHED_NUMBERS = [0, 789, 691]
HASHED_TEXTS = [774, 504, 302]


@pytest.mark.parametrize(
    ("values", "type_", "message"),
    [
        (["a"], pa.int64(), "x: its keys are whole numbers, and these are texts; cast them"),
        ([1], pa.string(), "x: its keys are texts, and these are whole numbers"),
        ([1, None], None, r"x: 1 of 2 keys are missing \(null or NaN\); drop these rows"),
        ([1.0, float("nan")], None, "x: 1 of 2 keys are missing"),
        ([1, "a"], None, "x: keys are of one type, and these are int and str"),
        ([[1]], None, r"x: keys are whole numbers, .* not list<item: int64>"),
        ([True], None, "x: keys are whole numbers, .* not bool; make one of these"),
        (
            [datetime(2026, 1, 1)],
            pa.timestamp("us", "UTC"),
            "keys are times, and these are times w",
        ),
    ],
)
def test_keys_that_do_not_fit_are_told(
    values: list[Any], type_: pa.DataType | None, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        as_keys(values, type_, "x")


def test_whole_numbers_are_floating_point_numbers_too() -> None:
    assert as_keys([1, 2], pa.float64(), "x").to_pylist() == [1.0, 2.0]
    assert fitting_type(pa.int32(), pa.float64(), "x") == pa.float64()
    assert as_keys([], pa.string(), "x").type == pa.string()


def test_times_that_are_asked_for_without_a_zone_are_utc() -> None:
    type_, noon = pa.timestamp("us", "UTC"), datetime(2026, 3, 1, 12)
    asked = Selection((noon,), ((noon, None),)).checked(type_, "x")
    assert asked == Selection((noon.replace(tzinfo=UTC),), ((noon.replace(tzinfo=UTC), None),))
    with pytest.raises(InputError, match="its keys are times, and these are texts"):
        Selection(("noon",)).checked(type_, "x")


def test_bounds_take_the_type_of_the_keys() -> None:
    assert ByRange((1, 2)).typed(pa.float64(), "x").text == "by range at [1.0, 2.0]"
    with pytest.raises(InputError, match="its keys are texts, and these are whole numbers"):
        ByRange((1, 2)).typed(pa.string(), "x")


def test_types_are_kept_as_one_of_a_few() -> None:
    assert key_type(pa.int8(), "x") == pa.int64()
    assert key_type(pa.large_string(), "x") == pa.string()
    assert key_type(pa.timestamp("ns", "Europe/Berlin"), "x") == pa.timestamp("us", "UTC")
    with pytest.raises(InputError, match="not uint64"):
        key_type(pa.uint64(), "x")


def test_ranges_that_are_none_are_told() -> None:
    with pytest.raises(InputError, match="5 to 5 is no such range"):
        Selection(ranges=((5, 5),)).checked(pa.int64(), "x")
    with pytest.raises(InputError, match="bounds of ranges must rise"):
        ByRange((1, 1))
