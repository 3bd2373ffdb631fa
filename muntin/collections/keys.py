"""Which partition a key belongs to, by hash or by range, and what a key may be.

Keys are Arrow arrays of one of a few types, to which others are cast where nothing is lost. The
same key is in the same partition in every step, process and run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from muntin.errors import InputError

Hashes = np.ndarray[Any, np.dtype[np.uint64]]
_KINDS = "whole numbers, floating-point numbers, texts, bytes, dates or times"


class Partitioner(Protocol):
    """Parts keys of one type."""

    @property
    def count(self) -> int:
        """How many partitions there are."""

    @property
    def text(self) -> str:
        """What it does, in words that are the same for equal ones only."""

    def typed(self, type_: pa.DataType, whose: str) -> Partitioner:
        """The same, for keys of a type; InputError where it is for keys of another."""

    def of(self, keys: pa.Array) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The partition of each key."""

    def within(self, lower: Any, upper: Any, type_: pa.DataType) -> range:
        """The partitions that keys in `[lower, upper)` may be in; None is no bound."""


@dataclass(frozen=True)
class ByHash:
    """Keys in any order, about as many in each partition."""

    count: int

    @property
    def text(self) -> str:
        return f"by hash into {self.count}"

    def typed(self, type_: pa.DataType, whose: str) -> ByHash:
        return self

    def of(self, keys: pa.Array) -> np.ndarray[Any, np.dtype[np.int64]]:
        from pandas.util import hash_array  # type: ignore[import-untyped]

        hashes: Hashes = hash_array(_numbers_or_objects(keys), categorize=False)
        return (hashes % np.uint64(self.count)).astype(np.int64)

    def within(self, lower: Any, upper: Any, type_: pa.DataType) -> range:
        return range(self.count)


@dataclass(frozen=True)
class ByRange:
    """Keys in order: a partition ends before each of the bounds, which belong to the next one."""

    bounds: tuple[Any, ...]

    def __post_init__(self) -> None:
        if any(not one < other for one, other in zip(self.bounds, self.bounds[1:], strict=False)):
            raise InputError(f"bounds of ranges must rise, and these do not: {_some(self.bounds)}")

    @staticmethod
    def fitted(sample: pa.Array, count: int) -> ByRange:
        """Ranges with about equally many keys of a sample; fewer where keys are few."""
        keys = pc.array_sort_indices(sample)
        ordered = sample.take(keys)
        places = (len(ordered) * each // count for each in range(1, count))
        bounds = dict.fromkeys(ordered[place].as_py() for place in places if len(ordered))
        return ByRange(tuple(sorted(bounds)))

    @property
    def count(self) -> int:
        return len(self.bounds) + 1

    @property
    def text(self) -> str:
        return f"by range at {list(self.bounds)!r}"

    def typed(self, type_: pa.DataType, whose: str) -> ByRange:
        return ByRange(tuple(named_keys(self.bounds, type_, whose)))

    def of(self, keys: pa.Array) -> np.ndarray[Any, np.dtype[np.int64]]:
        bounds = _numbers_or_objects(pa.array(self.bounds, keys.type))
        return np.searchsorted(bounds, _numbers_or_objects(keys), side="right").astype(np.int64)

    def within(self, lower: Any, upper: Any, type_: pa.DataType) -> range:
        first = 0 if lower is None else int(self.of(pa.array([lower], type_))[0])
        last = self.count - 1 if upper is None else int(self.of(pa.array([upper], type_))[0])
        if upper is not None and upper in self.bounds:
            last -= 1  # which begins with it
        return range(first, max(first, last) + 1)


@dataclass(frozen=True)
class Selection:
    """Keys that are asked for: those listed, and those in one of some ranges `[lower, upper)`.

    None is no condition.
    """

    keys: tuple[Any, ...] | None = None
    ranges: tuple[tuple[Any, Any], ...] | None = None

    def checked(self, type_: pa.DataType, whose: str) -> Selection:
        """With all keys of a type, or InputError."""
        keys, ranges = self.keys, self.ranges
        if keys is not None:
            keys = tuple(named_keys(keys, type_, whose))
        if ranges is not None:
            ranges = tuple((_bound(a, type_, whose), _bound(b, type_, whose)) for a, b in ranges)
            for lower, upper in ranges:
                if lower is not None and upper is not None and not lower < upper:
                    raise InputError(
                        f"{whose}: a range of keys begins before its end, which is not part of it; "
                        f"{lower!r} to {upper!r} is no such range"
                    )
        return Selection(keys, ranges)

    def partitions(self, partitioner: Partitioner, type_: pa.DataType) -> list[int]:
        """The partitions in which there may be some."""
        found = set(range(partitioner.count))
        if self.keys is not None:
            found &= set(partitioner.of(pa.array(self.keys, type_)).tolist() if self.keys else [])
        if self.ranges is not None:
            within = (partitioner.within(*bounds, type_) for bounds in self.ranges)
            found &= {partition for each in within for partition in each}
        return sorted(found)

    def mask(self, keys: pa.ChunkedArray) -> Any | None:
        """Which keys of a column are asked for; None where all are."""
        chosen = None
        if self.keys is not None or self.ranges is not None:
            keys = keys.cast(key_type(keys.type, "keys"))
        if self.keys is not None:
            chosen = pc.is_in(keys, value_set=pa.array(self.keys, keys.type))
        if self.ranges is not None:
            inside = pa.chunked_array([np.zeros(len(keys), bool)])
            for lower, upper in self.ranges:
                inside = pc.or_(inside, _between(keys, lower, upper))
            chosen = inside if chosen is None else pc.and_(chosen, inside)
        return chosen


def key_type(given: pa.DataType, whose: str) -> pa.DataType:
    """The type that keys of a type are kept as; InputError where they cannot be keys."""
    types = pa.types
    if types.is_integer(given) and given != pa.uint64():
        return pa.int64()
    if types.is_floating(given):
        return pa.float64()
    if types.is_string(given) or types.is_large_string(given) or types.is_string_view(given):
        return pa.string()
    if types.is_binary(given) or types.is_large_binary(given) or types.is_binary_view(given):
        return pa.binary()
    if types.is_date(given):
        return pa.date32()
    if types.is_timestamp(given):
        return pa.timestamp("us", "UTC" if given.tz else None)
    raise InputError(f"{whose}: keys are {_KINDS}, not {given}; make one of these of them first")


def as_keys(values: Iterable[Any], type_: pa.DataType | None, whose: str) -> pa.Array:
    """Python values as keys of a type, or of their own; InputError where they do not fit."""
    listed = list(values)
    try:
        return cast_keys(pa.array(listed), type_, whose)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        kinds = sorted({type(each).__name__ for each in listed})
        raise InputError(f"{whose}: keys are of one type, and these are {_listed(kinds)}") from None


def named_keys(values: Iterable[Any], type_: pa.DataType, whose: str) -> list[Any]:
    """Keys as someone names them in a question, of a type; InputError where they do not fit.

    Times that name no zone are UTC, as those of steps are.
    """
    listed = list(values)
    if type_ == pa.timestamp("us", "UTC"):
        listed = [
            each.replace(tzinfo=each.tzinfo or UTC) if isinstance(each, datetime) else each
            for each in listed
        ]
    return as_keys(listed, type_, whose).to_pylist()  # type: ignore[no-any-return]


def cast_keys(keys: Any, type_: pa.DataType | None, whose: str) -> Any:
    """A column of keys in the type that is kept; InputError where one is missing or misfits."""
    if not len(keys) and type_ is not None:
        return keys.cast(type_)
    missing = keys.null_count
    if pa.types.is_floating(keys.type):
        missing += pc.sum(pc.is_nan(keys)).as_py() or 0
    if missing:
        raise InputError(
            f"{whose}: {missing:,} of {len(keys):,} keys are missing (null or NaN); drop "
            "these rows or give them a key"
        )
    return keys.cast(fitting_type(keys.type, type_, whose))


def fitting_type(given: pa.DataType, type_: pa.DataType | None, whose: str) -> pa.DataType:
    """The type that keys are kept as; InputError where they cannot be of the type there is."""
    kept = key_type(given, whose)
    if type_ is None or kept == type_:
        return kept
    if (kept, type_) == (pa.int64(), pa.float64()):
        return type_
    raise InputError(
        f"{whose}: its keys are {name_of(type_)}, and these are {name_of(kept)}; cast them before, "
        "or begin another collection"
    )


def name_of(type_: pa.DataType) -> str:
    """A type of keys in words."""
    names = {
        pa.int64(): "whole numbers",
        pa.float64(): "floating-point numbers",
        pa.string(): "texts",
        pa.binary(): "bytes",
        pa.date32(): "dates",
        pa.timestamp("us"): "times without a zone",
        pa.timestamp("us", "UTC"): "times",
    }
    return names.get(type_, str(type_))


def _bound(value: Any, type_: pa.DataType, whose: str) -> Any:
    return None if value is None else named_keys([value], type_, whose)[0]


def _between(keys: Any, lower: Any, upper: Any) -> Any:
    inside = pa.chunked_array([np.ones(len(keys), bool)])
    if lower is not None:
        inside = pc.and_(inside, pc.greater_equal(keys, pa.scalar(lower, keys.type)))
    if upper is not None:
        inside = pc.and_(inside, pc.less(keys, pa.scalar(upper, keys.type)))
    return inside


def _numbers_or_objects(keys: Any) -> np.ndarray[Any, Any]:
    """Keys as numpy can compare and hash them."""
    if isinstance(keys, pa.ChunkedArray):
        keys = keys.combine_chunks()
    if pa.types.is_timestamp(keys.type):
        keys = keys.cast(pa.int64())
    elif pa.types.is_date(keys.type):
        keys = keys.cast(pa.int32()).cast(pa.int64())
    elif pa.types.is_floating(keys.type):
        keys = pc.add(keys, 0.0)  # -0.0 is 0.0
    array: np.ndarray[Any, Any] = keys.to_numpy(zero_copy_only=False)
    return array


def _some(values: Sequence[Any]) -> str:
    shown = ", ".join(map(repr, values[:5]))
    return shown if len(values) <= 5 else f"{shown}, …"


def _listed(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else words[0]
