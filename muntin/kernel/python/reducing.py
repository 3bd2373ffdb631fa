"""Blocks of pickled values to the rows of due windows, and the later steps of a job.

Where a call fails, the key or the pair is left out and a fault takes its place: a row with
nothing but the fault, which the driver counts.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from muntin.kernel.engine import quote, run
from muntin.kernel.python.code import job_of, new_job
from muntin.kernel.python.keys import decode_key, encoded, group_key
from muntin.kernel.python.mapping import fault_of
from muntin.kernel.python.partials import check_size, rows_of, step_of, unpacked
from muntin.kernel.python.results import columns_of, output_schema
from muntin.kernel.python.steps import (
    CAUGHT,
    FailedCallError,
    Pair,
    Step,
    called,
    shown,
    steps_of,
    updated,
)
from muntin.kernel.statements import FAULT, WINDOW, WINDOW_END, spec_id
from muntin.model import Code, Job, Shape
from muntin.windows.sliding import Part, by_merging, by_removing
from muntin.windows.spec import WindowSpec

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
    """Rows of due windows from one key group; pairs, where the job has more steps."""
    found: dict[str, list[pa.Table]] = {}
    for name, kinds in due.items():
        job = jobs[name]
        for which, ends in enumerate(kinds):
            if ends:
                pairs = _Windows(shape, job.windows[which], ends).pairs(block)
                found.setdefault(name, []).append(table_of(job, which, job.windows[which], pairs))
    return {name: pa.concat_tables(tables) for name, tables in found.items()}


class _Windows:
    """The due windows of one kind."""

    def __init__(self, shape: Shape, spec: WindowSpec, ends: Sequence[int]) -> None:
        assert shape.code is not None
        self._shape = shape
        self._code = shape.code
        self._spec = spec
        self._ends = ends
        self._job = job_of(shape.code)
        self._step = step_of(shape.code)
        self._found = Found()

    def pairs(self, block: pa.Table) -> Found:
        wholes = self._wholes(block)
        if self._step.reducer_init is None and self._step.reducer_final is None:
            for end, key, values in wholes:
                self._reduce(self._step, end, key, values)
        else:
            self._with_ends(wholes)
        return self._found

    def _with_ends(self, wholes: Iterable[tuple[int, Any, Values]]) -> None:
        """Reducers that are told of a beginning or an end have one instance a window."""
        windows: dict[int, list[tuple[Any, Values]]] = {}
        for end, key, values in wholes:
            windows.setdefault(end, []).append((key, values))
        for end, groups in windows.items():
            step = steps_of(new_job(self._code))[0]
            self._once(end, "reducer_init", step.reducer_init)
            for key, values in groups:
                self._reduce(step, end, key, values)
            self._once(end, "reducer_final", step.reducer_final)

    def _once(self, end: int, name: str, method: Any) -> None:
        if method is not None:
            try:
                self._found.add(end, called(name, "a window", method))
            except FailedCallError as error:
                self._found.faults.append((end, error))

    def _reduce(self, step: Step, end: int, key: Any, values: Values) -> None:
        try:
            if self._code.style == "updates":
                self._found.add(end, self._updates(end, key, values))
            else:
                self._found.add(end, step.reduce(key, values))
        except FailedCallError as error:
            self._found.faults.append((end, error))

    def _updates(self, end: int, key: Any, values: Values) -> Iterator[Pair]:
        """A key's values in time order; values that fail change nothing."""
        state = started(self._job, key)
        for *_, value in sorted(values, key=lambda each: each[:3]):
            try:
                state, pairs = updated(self._job.update, key, state, value)
            except FailedCallError as error:
                self._found.faults.append((end, error))
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
            key = decode_key(key_bytes)
            try:
                check_size(self._code, key, [data for _, _, data in rows])
                parts = [Part(*row) for row in rows]
                yield from [(end, key, whole) for end, whole in self._slide(key, parts)]
            except FailedCallError as error:
                first = next(e for e in self._ends if e >= min(row[0] for row in rows))
                self._found.faults.append((first, error))

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

    def _slide(self, key: Any, parts: list[Part[bytes]]) -> Iterator[tuple[int, Values]]:
        def merge(partials: Sequence[bytes]) -> Values:
            return self._step.combine(key, unpacked(partials))

        def add(partials: Sequence[bytes]) -> bytes:
            return pickle.dumps(merge(partials), 5)

        def remove(whole: bytes, part: bytes) -> bytes:
            given = f"key {shown(key)}"
            (before,), (left,) = pickle.loads(whole), pickle.loads(part)
            pairs = called("uncombiner", given, self._job.uncombiner, key, before, left)
            return pickle.dumps([value for _, value in pairs], 5)

        if not removes_panes(self._shape, self._spec) or not _single(parts):
            return by_merging(parts, self._ends, merge)
        wholes = by_removing(parts, self._ends, add, remove)
        return ((end, pickle.loads(whole)) for end, whole in wholes)


def _single(parts: Sequence[Part[bytes]]) -> bool:
    """Whether every part is one value, as a combiner leaves it."""
    return all(len(pickle.loads(part.value)) == 1 for part in parts)


def removes_panes(shape: Shape, spec: WindowSpec) -> bool:
    """Whether panes that leave a window are taken out of it, rather than the rest merged."""
    removable = shape.code is not None and hasattr(job_of(shape.code), "uncombiner")
    return removable and spec.slide * 2 < spec.range


def started(job: Any, key: Any) -> Any:
    try:
        return job.init(key)
    except CAUGHT as error:
        reason = f"{type(error).__name__}: {error}"
        raise FailedCallError("init", f"key {shown(key)}", reason) from error


def table_of(job: Job, which: int, spec: WindowSpec, found: Found) -> pa.Table:
    """Rows as they go to the driver: pickled pairs while there are more steps."""
    assert job.shape.code is not None
    rows = _pickled(found) if _later_steps(job.shape.code) else _typed(job, found)
    return _with_faults(job.shape.code, which, spec, rows, found)


def _with_faults(
    code: Code, which: int, spec: WindowSpec, rows: pa.Table, found: Found
) -> pa.Table:
    both = pa.concat_tables([rows, _fault_rows(code, spec, found.faults, rows.schema)])
    return both.append_column("win", pa.array(np.full(both.num_rows, which, np.int8)))


def _typed(job: Job, found: Found) -> pa.Table:
    arrays, kept, failures = columns_of(job, found.pairs)
    found.faults += [(found.ends[number], failure) for number, failure in failures]
    ends = pa.array([found.ends[number] for number in kept], pa.int64())
    names = ["w", *(f"x{i}" for i in range(len(arrays)))]
    rows = pa.table([ends, *arrays], names=names)
    return rows.append_column("fault", pa.nulls(len(ends), pa.binary()))


def _pickled(found: Found) -> pa.Table:
    pairs = pa.array([pickle.dumps(pair, 5) for pair in found.pairs], pa.binary())
    ends = pa.array(found.ends, pa.int64())
    return pa.table({"w": ends, "pair": pairs, "fault": pa.nulls(len(ends), pa.binary())})


def _fault_rows(
    code: Code, spec: WindowSpec, faults: list[tuple[int, FailedCallError]], schema: pa.Schema
) -> pa.Table:
    ends = pa.array([end for end, _ in faults], pa.int64())
    told = [pickle.dumps(fault_of(code, e, end * spec.pane - 1)) for end, e in faults]
    empty = {f.name: pa.nulls(len(faults), f.type) for f in schema}
    filled = empty | {"w": ends, "fault": pa.array(told, pa.binary())}
    return pa.table(filled, schema=schema)


def _later_steps(code: Code) -> list[Step]:
    return [] if code.style != "pairs" else steps_of(job_of(code))[1:]


def order_windows(job: Job, tables: Sequence[pa.Table]) -> pa.Table:
    """Rows of all key groups, window by window, in the order of their columns."""
    assert job.shape.code is not None
    rows = pa.concat_tables(tables)
    steps = _later_steps(job.shape.code)
    if steps:
        rows = _chained(job, steps, rows)
    named = [f"x{i} AS {quote(o.name)}" for i, o in enumerate(job.outputs)]
    columns = ", ".join([f"win AS {WINDOW}, w AS {WINDOW_END}", *named, f"fault AS {FAULT}"])
    by = ", ".join(["w", "win", *(f"x{i}" for i in range(len(job.outputs)))])
    doing = f"ordering the windows of job {job.name}"
    return run(f"SELECT {columns}\nFROM rows\nORDER BY {by}", {"rows": rows}, doing)


def _chained(job: Job, steps: Sequence[Step], rows: pa.Table) -> pa.Table:
    """The later steps of a job over each window's pairs."""
    code = job.shape.code
    assert code is not None
    windows: dict[tuple[int, int], list[Pair]] = {}
    told = rows.filter(rows["fault"].is_valid())
    tables = [_typed_faults(job, told)]
    pairs = rows.filter(rows["fault"].is_null())
    columns = (pairs.column(name).to_pylist() for name in ("w", "win", "pair"))
    for end, which, data in zip(*columns, strict=True):
        windows.setdefault((which, end), []).append(pickle.loads(data))
    for (which, end), found in windows.items():
        last = Found()
        try:
            for step in steps:
                found = _round(step, found)
            last.add(end, found)
        except FailedCallError as error:
            last.faults.append((end, error))
        rows = _typed(job, last)
        tables.append(_with_faults(code, which, job.windows[which], rows, last))
    return pa.concat_tables(tables)


def _typed_faults(job: Job, told: pa.Table) -> pa.Table:
    schema = output_schema(tuple(o.type for o in job.outputs))
    columns = {f.name: pa.nulls(told.num_rows, f.type) for f in schema}
    return pa.table({"w": told["w"], **columns, "fault": told["fault"], "win": told["win"]})


def _round(step: Step, pairs: list[Pair]) -> list[Pair]:
    """One step over all pairs of a window."""
    mapped: list[Pair] = []
    if step.mapper_init is not None:
        mapped += called("mapper_init", "a window", step.mapper_init)
    for key, value in pairs:
        given = shown((key, value))
        mapped += (
            called("mapper", given, step.mapper, key, value) if step.mapper else [(key, value)]
        )
    if step.mapper_final is not None:
        mapped += called("mapper_final", "a window", step.mapper_final)
    groups: dict[Any, Values] = {}
    for key, value in mapped:
        groups.setdefault(group_key(key), []).append(value)
    found: list[Pair] = []
    if step.reducer_init is not None:
        found += called("reducer_init", "a window", step.reducer_init)
    for group in sorted(groups, key=encoded):
        key = group if type(group) is str else decode_key(encoded(group))
        found += step.reduce(key, step.combine(key, groups[group]))
    if step.reducer_final is not None:
        found += called("reducer_final", "a window", step.reducer_final)
    return found
