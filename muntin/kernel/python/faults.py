"""What failed, on its way to the driver: in the place of a value, then in a row of its own.

A value in a block that failed stays so through all merges, until its window tells of it.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import pyarrow as pa

from muntin.kernel.python.rounds import CAUGHT, FailedCallError, failed, shown
from muntin.model.counts import Fault
from muntin.model.shapes import Code
from muntin.windows.sliding import Entry, by_merging, by_removing

T = TypeVar("T")
_FAILED = b"!"  # no pickle begins so
_REMOVING = ("uncombiner", ".remove")


def attempted(method: str, given: Callable[[], str], call: Callable[[], T]) -> T | FailedCallError:
    """What a call of the user's Python gives, or how it failed: no other job is to know of it.

    Pickling is such a call too, as classes may say how it is done.
    """
    try:
        return call()
    except FailedCallError as error:
        return error
    except CAUGHT as error:
        return failed(method, given(), error)


def naming(key: Any) -> Callable[[], str]:
    return lambda: f"key {shown(key)}"


def failure(error: FailedCallError) -> bytes:
    return _FAILED + pickle.dumps((error.method, error.given, error.reason, error.records))


def is_failure(data: bytes) -> bool:
    return data.startswith(_FAILED)


def failure_in(data: bytes) -> FailedCallError:
    return FailedCallError(*pickle.loads(data[1:]))


def or_failure(data: bytes | FailedCallError) -> bytes:
    return failure(data) if isinstance(data, FailedCallError) else data


def by_removing_good(
    entries: Sequence[Entry[T]],
    ends: Sequence[int],
    merge: Callable[[Sequence[T]], T],
    remove: Callable[[T, T], T],
    failures: Callable[[T], Sequence[bytes]],
) -> list[tuple[int, T]]:
    """Windows by adding and removing. Once something failed, each is merged from its own entries.

    So what failed leaves with its entry. Where removing itself failed, that window tells of it.
    """
    windows = list(by_removing(entries, ends, merge, remove))
    bad = next((number for number, (_, whole) in enumerate(windows) if failures(whole)), None)
    if bad is None:
        return windows
    alone = list(by_merging(entries, ends, merge))
    methods = [failure_in(data).method for data in failures(windows[bad][1])]
    if any(method.endswith(_REMOVING) for method in methods):
        alone[bad] = windows[bad]
    return alone


def fault_of(code: Code, error: FailedCallError, position: int) -> Fault:
    told = error.method, error.given, error.reason
    return Fault(code.job, *told, position, records=error.records)


def fault_rows(schema: pa.Schema, faults: Sequence[tuple[int, Fault]]) -> pa.Table:
    """A row for every fault, with the end of the window it is in."""
    told = [pickle.dumps(fault) for _, fault in faults]
    return sparse_rows(schema, len(faults), {"w": [end for end, _ in faults], "fault": told})


def sparse_rows(schema: pa.Schema, count: int, columns: Mapping[str, Any]) -> pa.Table:
    """Rows of which only some columns are filled."""
    filled = {f.name: pa.nulls(count, f.type) for f in schema}
    for name, values in columns.items():
        kind = schema.field(name).type
        known = isinstance(values, pa.ChunkedArray | pa.Array)
        filled[name] = values.cast(kind) if known else pa.array(values, kind)
    return pa.table(filled, schema=schema)
