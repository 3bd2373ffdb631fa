"""Blocks of pickled values to the rows of due windows, and the later rounds of a job.

Where a call fails, the key or the pair is left out and a fault takes its place: a row with
nothing but the fault, which the driver counts.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from muntin.kernel.engine import quote, run
from muntin.kernel.python.code import loaded, new_job
from muntin.kernel.python.faults import (
    attempted,
    by_removing_good,
    failure,
    failure_in,
    fault_of,
    fault_rows,
    is_failure,
    naming,
    or_failure,
    sparse_rows,
)
from muntin.kernel.python.keys import decode_key, encoded, group_key
from muntin.kernel.python.partials import first_round, rows_of, whole_of
from muntin.kernel.python.results import columns_of, output_schema
from muntin.kernel.python.rounds import (
    CAUGHT,
    FailedCallError,
    Pair,
    Round,
    called,
    failed,
    kept,
    rounds_of,
    shown,
    updated,
)
from muntin.kernel.statements import FAULT, WINDOW, WINDOW_END, spec_id
from muntin.model.jobs import Job
from muntin.model.shapes import Code, Shape
from muntin.windows.sliding import Entry, by_merging
from muntin.windows.spec import WindowSpec

T = TypeVar("T")
Values = list[Any]
DueEnds = Mapping[str, Sequence[Sequence[int]]]


@dataclass
class Found:
    """Pairs of windows, in any order, and what failed in them."""

    ends: list[int] = field(default_factory=list)
    pairs: list[Pair] = field(default_factory=list)
    faults: list[tuple[int, FailedCallError]] = field(default_factory=list)

    def add(self, end: int, pairs: Iterable[Pair]) -> None:
        for pair in pairs:
            self.ends.append(end)
            self.pairs.append(pair)


def finish_windows(
    shape: Shape, jobs: Mapping[str, Job], block: pa.Table, due: DueEnds
) -> dict[str, pa.Table]:
    """Rows of due windows from one key group; pairs, where the job has more rounds."""
    rows: dict[str, list[pa.Table]] = {}
    for name, kinds in due.items():
        job = jobs[name]
        for which, ends in enumerate(kinds):
            if ends:
                pairs = _pairs(shape, job.windows[which], ends, block)
                rows.setdefault(name, []).append(table_of(job, which, job.windows[which], pairs))
    return {name: pa.concat_tables(tables) for name, tables in rows.items()}


def _pairs(shape: Shape, spec: WindowSpec, ends: Sequence[int], block: pa.Table) -> Found:
    pairs = attempted(
        "job", lambda: "its windows", lambda: _Windows(shape, spec, ends).pairs(block)
    )
    return Found(faults=[(ends[0], pairs)]) if isinstance(pairs, FailedCallError) else pairs


class _Windows:
    """The due windows of one kind."""

    def __init__(self, shape: Shape, spec: WindowSpec, ends: Sequence[int]) -> None:
        assert shape.code is not None
        self._shape = shape
        self._code = shape.code
        self._spec = spec
        self._ends = ends
        self._job = loaded(shape.code)
        self._first = first_round(shape.code)
        self._reduces = "update" if shape.code.style == "updates" else "reducer"
        self._results = Found()

    def pairs(self, block: pa.Table) -> Found:
        wholes = self._wholes(block)
        if self._first.reducer_init is None and self._first.reducer_final is None:
            for end, key, values in wholes:
                self._reduce(self._first, end, key, values)
        else:
            self._with_ends(wholes)
        return self._results

    def _with_ends(self, wholes: Iterable[tuple[int, Any, Values]]) -> None:
        """Reducers that are told of a beginning or an end have one instance a window."""
        windows: dict[int, list[tuple[Any, Values]]] = {}
        for end, key, values in wholes:
            windows.setdefault(end, []).append((key, values))
        for end, groups in windows.items():
            round_ = self._tried(
                end, "reducer", "a window", lambda: rounds_of(new_job(self._code))[0]
            )
            if round_ is None:
                continue
            self._once(end, "reducer_init", round_.reducer_init)
            for key, values in groups:
                self._reduce(round_, end, key, values)
            self._once(end, "reducer_final", round_.reducer_final)

    def _tried(self, end: int, method: str, given: str, call: Callable[[], T]) -> T | None:
        result = attempted(method, lambda: given, call)
        if isinstance(result, FailedCallError):
            self._results.faults.append((end, result))
            return None
        return result

    def _once(self, end: int, name: str, method: Any) -> None:
        if method is not None:
            pairs = self._tried(end, name, "a window", lambda: called(name, "a window", method))
            self._results.add(end, pairs or ())

    def _reduce(self, round_: Round, end: int, key: Any, values: Values) -> None:
        def reduce() -> None:
            if self._code.style == "updates":
                self._results.add(end, self._updates(end, key, values))
            else:
                self._results.add(end, round_.reduce(key, values))

        failure = attempted(self._reduces, naming(key), reduce)
        if failure is not None:
            self._results.faults.append((end, failure.costing(len(values))))

    def _updates(self, end: int, key: Any, values: Values) -> Iterator[Pair]:
        """A key's values in time order; values that fail change nothing."""
        state = started(self._job, key)
        for *_, value in sorted(values, key=lambda each: each[:3]):
            try:
                state, pairs = updated(self._job.update, key, state, value)
            except FailedCallError as error:
                self._results.faults.append((end, error))
            else:
                yield from pairs
        if hasattr(self._job, "finalize"):
            yield from called("finalize", f"key {shown(key)}", self._job.finalize, key, state)

    def _wholes(self, block: pa.Table) -> Iterator[tuple[int, Any, Values]]:
        """The merged values of every key and window."""
        keys: dict[bytes, list[tuple[int, int, bytes]]] = {}
        for pane, kind, not_before, key, data in rows_of(block):
            span = self._span(pane, kind, not_before)
            if span is not None:
                keys.setdefault(key, []).append((*span, data))
        for key_bytes, rows in keys.items():
            first = next(e for e in self._ends if e >= min(row[0] for row in rows))
            boxed = self._tried(first, "reducer", "a key", partial(_boxed, key_bytes))
            for key in boxed or ():
                for end, whole in self._slide(key, [Entry(*row) for row in rows]):
                    if isinstance(whole, FailedCallError):
                        self._results.faults.append((end, whole))
                    else:
                        yield end, key, whole

    def _span(self, pane: int, kind: int, not_before: int | None) -> tuple[int, int] | None:
        """The first and last of the due windows that hold a row."""
        spec = self._spec
        if kind:
            first = last = pane
            if kind != spec_id(spec):
                return None
        else:
            first, last = spec.first_end(pane), spec.last_end(pane)
            first = first if not_before is None else max(first, not_before + 1)
        return (first, last) if first <= self._ends[-1] and last >= self._ends[0] else None

    def _slide(
        self, key: Any, entries: list[Entry[bytes]]
    ) -> Iterable[tuple[int, Values | FailedCallError]]:
        """Every window fails alone: what is in one does not depend on which others are due."""

        def merge(partials: Sequence[bytes]) -> Values | FailedCallError:
            call = partial(whole_of, self._code, self._first, key, partials)
            return attempted("values", naming(key), call)

        if removes_panes(self._shape, self._spec) and _single(entries):
            return self._removed(key, entries, merge)
        return by_merging(entries, self._ends, merge)

    def _removed(
        self,
        key: Any,
        entries: list[Entry[bytes]],
        merge: Callable[[Sequence[bytes]], Values | FailedCallError],
    ) -> Iterator[tuple[int, Values | FailedCallError]]:
        def add(partials: Sequence[bytes]) -> bytes:
            values = merge(partials)
            if isinstance(values, FailedCallError):
                return failure(values)
            return or_failure(attempted("combiner", naming(key), lambda: pickle.dumps(values, 5)))

        def remove(whole: bytes, leaving: bytes) -> bytes:
            if is_failure(whole):
                return whole
            return or_failure(attempted("uncombiner", naming(key), lambda: less(whole, leaving)))

        def less(whole: bytes, leaving: bytes) -> bytes:
            (before,), (left,) = pickle.loads(whole), pickle.loads(leaving)
            given = naming(key)()
            pairs = called("uncombiner", given, self._job.uncombiner, key, before, left)
            if len(pairs) != 1:
                reason = f"it yielded {len(pairs)} pairs; expected the key with what is left"
                raise FailedCallError("uncombiner", given, reason)
            return pickle.dumps(kept("uncombiner", key, pairs), 5)

        wholes = by_removing_good(
            entries, self._ends, add, remove, lambda whole: [whole] if is_failure(whole) else []
        )
        for end, whole in wholes:
            if is_failure(whole):
                yield end, failure_in(whole)
            else:
                yield end, attempted("values", naming(key), partial(pickle.loads, whole))


def _new_round(code: Code) -> Round:
    return rounds_of(new_job(code))[0]


def _boxed(key_bytes: bytes) -> list[Any]:
    """The key, apart from none at all: None is a key too."""
    return [decode_key(key_bytes)]


def _single(entries: Sequence[Entry[bytes]]) -> bool:
    """Whether every entry is one value, as a combiner leaves it."""

    def single() -> bool:
        return all(not is_failure(p.value) and len(pickle.loads(p.value)) == 1 for p in entries)

    return attempted("values", lambda: "a key", single) is True


def removes_panes(shape: Shape, spec: WindowSpec) -> bool:
    """Whether panes that leave a window are taken out of it, rather than the rest merged."""
    removable = shape.code is not None and shape.code.removable
    return removable and spec.regular and spec.slide * 2 < spec.range


def started(job: Any, key: Any) -> Any:
    try:
        return job.init(key)
    except CAUGHT as error:
        raise failed("init", f"key {shown(key)}", error) from error


def table_of(job: Job, which: int, spec: WindowSpec, results: Found) -> pa.Table:
    """Rows as they go to the driver: pickled pairs while there are more rounds."""
    assert job.shape.code is not None
    rows = _pickled(results) if job.shape.code.chained else _typed(job, results)
    return _with_faults(job.shape.code, which, spec, rows, results)


def _with_faults(
    code: Code, which: int, spec: WindowSpec, rows: pa.Table, results: Found
) -> pa.Table:
    faults = [(end, fault_of(code, error, end * spec.pane - 1)) for end, error in results.faults]
    both = pa.concat_tables([rows, fault_rows(rows.schema, faults)])
    return both.append_column("win", pa.array(np.full(both.num_rows, which, np.int32)))


def _typed(job: Job, results: Found) -> pa.Table:
    arrays, kept, failures = columns_of(job, results.pairs)
    results.faults += [(results.ends[number], failure) for number, failure in failures]
    ends = pa.array([results.ends[number] for number in kept], pa.int64())
    names = ["w", *(f"x{i}" for i in range(len(arrays)))]
    rows = pa.table([ends, *arrays], names=names)
    return rows.append_column("fault", pa.nulls(len(ends), pa.binary()))


def _pickled(results: Found) -> pa.Table:
    ends, pairs = [], []
    for end, pair in zip(results.ends, results.pairs, strict=True):
        data = attempted("reducer", _naming_result(pair), partial(pickle.dumps, pair, 5))
        if isinstance(data, FailedCallError):
            results.faults.append((end, data))
        else:
            ends.append(end)
            pairs.append(data)
    columns = {"w": pa.array(ends, pa.int64()), "pair": pa.array(pairs, pa.binary())}
    return pa.table({**columns, "fault": pa.nulls(len(ends), pa.binary())})


def _naming_result(pair: Pair) -> Callable[[], str]:
    return lambda: f"the result {shown(pair)}"


def order_windows(job: Job, tables: Sequence[pa.Table]) -> pa.Table:
    """Rows of all key groups, window by window, in the order of their columns."""
    rows = pa.concat_tables(tables)
    named = [f"x{i} AS {quote(o.name)}" for i, o in enumerate(job.outputs)]
    columns = ", ".join([f"win AS {WINDOW}, w AS {WINDOW_END}", *named, f"fault AS {FAULT}"])
    # A user's column may be called w, or x1: what is qualified is never that.
    by = ", ".join(["r.w", "r.win", *(f"r.x{i}" for i in range(len(job.outputs)))])
    doing = f"ordering the windows of job {job.name}"
    return run(f"SELECT {columns}\nFROM rows AS r\nORDER BY {by}", {"rows": rows}, doing)


def later_rounds(job: Job, tables: Sequence[pa.Table]) -> pa.Table:
    """The rounds of a job after its first, over the pairs of windows that are whole here."""
    code, rows = job.shape.code, pa.concat_tables(tables)
    assert code is not None
    windows: dict[tuple[int, int], list[bytes]] = {}
    told = rows.filter(rows["fault"].is_valid())
    tables = [_typed_faults(job, told)]
    pairs = rows.filter(rows["fault"].is_null())
    columns = (pairs.column(name).to_pylist() for name in ("w", "win", "pair"))
    for end, which, data in zip(*columns, strict=True):
        windows.setdefault((which, end), []).append(data)
    for (which, end), pickled in windows.items():
        last = Found()
        result = attempted("steps", lambda: "a window", partial(_later_rounds, code, pickled))
        if isinstance(result, FailedCallError):
            last.faults.append((end, result.costing(len(pickled))))
        else:
            last.add(end, result)
        rows = _typed(job, last)
        tables.append(_with_faults(code, which, job.windows[which], rows, last))
    return pa.concat_tables(tables)


def _later_rounds(code: Code, pickled: Sequence[bytes]) -> list[Pair]:
    pairs = [pickle.loads(data) for data in pickled]
    for round_ in rounds_of(loaded(code))[1:]:
        pairs = _round(round_, pairs)
    return pairs


def _typed_faults(job: Job, told: pa.Table) -> pa.Table:
    columns = output_schema(tuple(o.type for o in job.outputs))
    places = [told.schema.field(name) for name in ("fault", "win")]
    schema = pa.schema([told.schema.field("w"), *columns, *places])
    return sparse_rows(schema, told.num_rows, {n: told[n] for n in ("w", "fault", "win")})


def _round(round_: Round, pairs: list[Pair]) -> list[Pair]:
    """One round over all pairs of a window."""
    mapped: list[Pair] = []
    if round_.mapper_init is not None:
        mapped += called("mapper_init", "a window", round_.mapper_init)
    for key, value in pairs:
        given = shown((key, value))
        mapped += (
            called("mapper", given, round_.mapper, key, value) if round_.mapper else [(key, value)]
        )
    if round_.mapper_final is not None:
        mapped += called("mapper_final", "a window", round_.mapper_final)
    groups: dict[Any, Values] = {}
    for key, value in mapped:
        group = attempted("mapper", naming(key), partial(group_key, key))
        if isinstance(group, FailedCallError):
            raise group
        groups.setdefault(group, []).append(value)
    reduced: list[Pair] = []
    if round_.reducer_init is not None:
        reduced += called("reducer_init", "a window", round_.reducer_init)
    for group in sorted(groups, key=encoded):
        key = group if type(group) is str else decode_key(encoded(group))
        reduced += round_.reduce(key, round_.combine(key, groups[group]))
    if round_.reducer_final is not None:
        reduced += called("reducer_final", "a window", round_.reducer_final)
    return reduced
