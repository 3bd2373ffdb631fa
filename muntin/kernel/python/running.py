"""Jobs without windows: a state for every key, which lives on from record to record.

The values of due panes are applied in time order, and a key's new state is a row of its block that
says up to which pane it goes. The newest row of a key counts, so blocks may still be merged
anywhere, and a restart finds all that is needed in the blocks that were saved.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from muntin.fidelity.score import NEVER
from muntin.kernel.python.code import loaded
from muntin.kernel.python.faults import attempted, fault_rows, naming, sparse_rows
from muntin.kernel.python.keys import decode_key
from muntin.kernel.python.partials import FORGOTTEN, SCHEMA, STATE_SPEC, rows_of, whole_of
from muntin.kernel.python.reducing import Found, started, table_of
from muntin.kernel.python.rounds import CAUGHT, FailedCallError, Round, shown, updated
from muntin.model.counts import Fault
from muntin.model.jobs import Job
from muntin.model.shapes import Code


def advance(job: Job, block: pa.Table, ends: Sequence[int], shown: Sequence[int] = ()) -> pa.Table:
    """Rows of due panes and, in columns of their own, the states after them and how many.

    Rows are of panes, too, that are `shown` before they are over: these follow the others, and no
    state is kept of them.
    """
    code = job.shape.code
    assert code is not None
    due = {*ends, *shown}
    states: dict[bytes, tuple[int, bytes]] = {}
    partials: dict[bytes, list[tuple[int, bytes]]] = {}
    for pane, kind, not_before, key, data in rows_of(block):
        if kind == STATE_SPEC:
            states[key] = max(states.get(key, (pane, data)), (pane, data))
        elif pane + 1 in due and (not_before is None or not_before <= pane):
            partials.setdefault(key, []).append((pane + 1, data))
    known = {key: data for key, (_, data) in states.items()}
    living = sum(data != FORGOTTEN for data in known.values())
    run = attempted("job", lambda: "its states", lambda: _Run(code))
    if isinstance(run, FailedCallError):
        rows = table_of(job, 0, job.windows[0], Found(faults=[(min(due), run)]))
        return _with_states(rows, {}, max(due), {})
    upto = max(ends, default=NEVER)
    after = {key: run.state(key, known.get(key), of_key, upto) for key, of_key in partials.items()}
    kept = _within(code.max_keys - living, known, after)
    rows = table_of(job, 0, job.windows[0], run.results)
    if ends:
        run.born[ends[0]] += living
    return _with_states(rows, kept, upto, run.born)


def _within(
    room: int, known: Mapping[bytes, bytes], after: Mapping[bytes, bytes | None]
) -> dict[bytes, bytes]:
    """States that have changed. Keys beyond the limit stop the job, and are not remembered."""
    kept = {}
    for key, state in after.items():
        if state is None:
            continue
        room -= known.get(key, FORGOTTEN) == FORGOTTEN and state != FORGOTTEN
        if room >= 0 or key in known:
            kept[key] = state
    return kept


class _Run:
    def __init__(self, code: Code) -> None:
        self._code = code
        self._job = loaded(code)
        self.results = Found()
        self.born: Counter[int] = Counter()  # by window: keys that have a state now, less others

    def state(
        self,
        key_bytes: bytes,
        before: bytes | None,
        partials: list[tuple[int, bytes]],
        upto: int,
    ) -> bytes | None:
        """A key's state after its values up to the end of a pane; None where it stays as it was.

        Those behind that are only shown.
        A pane that fails changes nothing, and those after it go on from the state before it.
        """
        panes: dict[int, list[bytes]] = {}
        for end, data in sorted(partials):
            panes.setdefault(end, []).append(data)
        known = attempted("state", lambda: "a key", lambda: [decode_key(key_bytes)])
        if isinstance(known, FailedCallError):
            self.results.faults.append((min(panes), known))
            return None
        (key,), after = known, before or FORGOTTEN
        kept = after
        for end, of_pane in panes.items():
            call = partial(self._after, key, after, end, of_pane)
            state = attempted("state", naming(key), call)
            if isinstance(state, FailedCallError):
                self.results.faults.append((end, state))
                continue
            if end <= upto:
                self.born[end] += (state != FORGOTTEN) - (after != FORGOTTEN)
                kept = state
            after = state
        return kept if kept != (before or FORGOTTEN) else None

    def _after(self, key: Any, before: bytes, end: int, partials: list[bytes]) -> bytes:
        values = whole_of(self._code, Round(), key, partials)
        state = pickle.loads(before)
        for *_, value in sorted(values, key=lambda value: value[:3]):
            state = self._updated(key, state, end, value)
        return self._packed(key, state)

    def _packed(self, key: Any, state: Any) -> bytes:
        given, limit = f"key {shown(key)}", self._code.max_state
        try:
            data = pickle.dumps(state, 5)
        except CAUGHT as error:  # whatever a state's own pickling may raise
            reason = f"its state cannot be pickled: {type(error).__name__}: {error}"
            raise FailedCallError("update", given, reason) from error
        if len(data) > limit:
            reason = f"its state takes {len(data):,} bytes, but max_state is {limit:,}"
            hint = "update may keep less, or return None to forget a key"
            raise FailedCallError("update", given, f"{reason}; {hint}")
        return data

    def _updated(self, key: Any, state: Any, end: int, value: Any) -> Any:
        """The next state. A value that fails changes nothing; None is a key not seen yet."""
        try:
            state = started(self._job, key) if state is None else state
            state, pairs = updated(self._job.update, key, state, value)
        except FailedCallError as error:
            self.results.faults.append((end, error))
        else:
            self.results.add(end, pairs)
        return state


def _with_states(
    rows: pa.Table, states: dict[bytes, bytes], end: int, born: Mapping[int, int]
) -> pa.Table:
    """Behind the others, rows of states, whose `w` is the pane they go up to, and of counts."""
    for name, kind in (("k0", pa.binary()), ("state", pa.binary()), ("keys", pa.int64())):
        rows = rows.append_column(name, pa.nulls(rows.num_rows, kind))
    count = len(states)
    columns = {"w": [end] * count, "k0": list(states), "state": list(states.values())}
    counts = {"w": list(born), "keys": list(born.values())}
    kept = sparse_rows(rows.schema, count, columns)
    return pa.concat_tables([rows, kept, sparse_rows(rows.schema, len(born), counts)])


def within_keys(job: Job, tables: Sequence[pa.Table]) -> pa.Table:
    """Rows of all key groups and, where keys are more than the job may have, what stops it."""
    code = job.shape.code
    assert code is not None
    every = pa.concat_tables(tables)
    counted = every.filter(pc.is_valid(every["keys"]))
    rows = every.filter(pc.is_null(every["keys"])).drop_columns(["keys"])
    born: Counter[int] = Counter()
    for end, keys in zip(counted["w"].to_pylist(), counted["keys"].to_pylist(), strict=True):
        born[end] += keys
    living = 0
    for end in sorted(born):
        living += born[end]
        if living > code.max_keys:
            fault = replace(_too_many(code, living), position=end * job.windows[0].pane - 1)
            told = fault_rows(rows.schema, [(end, fault)])
            win = pa.array([0], rows.schema.field("win").type)
            number = told.schema.get_field_index("win")
            return pa.concat_tables([rows, told.set_column(number, "win", win)])
    return rows


def _too_many(code: Code, living: int) -> Fault:
    reason = f"that is more than max_keys, {code.max_keys:,}, of which the state is kept"
    hint = "let update return None for keys that are over, or set a larger max_keys"
    return Fault(code.job, "update", f"{living:,} keys", f"{reason}; {hint}", stops=True)


def without_states(tables: Mapping[str, pa.Table]) -> tuple[dict[str, pa.Table], list[pa.Table]]:
    """Rows of jobs for the driver, and their states as blocks that stay."""
    split = {name: _split(table) for name, table in tables.items()}
    return {n: rows for n, (rows, _) in split.items()}, [states for _, states in split.values()]


def _split(table: pa.Table) -> tuple[pa.Table, pa.Table]:
    kept = pc.is_valid(table["state"])
    states = table.filter(kept)
    count = states.num_rows
    places = {"pane": states["w"], "k0": states["k0"], "c0": states["state"]}
    kind = {"spec": [STATE_SPEC] * count, "part": [0] * count}
    rows = table.filter(pc.invert(kept)).drop_columns(["k0", "state"])
    return rows, sparse_rows(SCHEMA, count, places | kind)
