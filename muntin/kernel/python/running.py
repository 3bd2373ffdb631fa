"""Jobs without windows: a state for every key, which lives on from record to record.

The values of due panes are applied in time order, and a key's new state is a row of its block that
says up to which pane it goes. The newest row of a key counts, so blocks may still be merged
anywhere, and a restart finds all that is needed in the blocks that were saved.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from muntin.kernel.python.code import loaded
from muntin.kernel.python.faults import attempted, naming, sparse_rows
from muntin.kernel.python.keys import decode_key
from muntin.kernel.python.partials import SCHEMA, STATE_SPEC, rows_of, too_large, whole_of
from muntin.kernel.python.reducing import Found, started, table_of
from muntin.kernel.python.rounds import FailedCallError, Round, updated
from muntin.model import Code, Job


def advance(job: Job, block: pa.Table, ends: Sequence[int]) -> pa.Table:
    """Rows of due panes and, in columns of their own, the states after them."""
    code = job.shape.code
    assert code is not None
    due = set(ends)
    states: dict[bytes, tuple[int, bytes]] = {}
    partials: dict[bytes, list[tuple[int, bytes]]] = {}
    for pane, kind, not_before, key, data in rows_of(block):
        if kind == STATE_SPEC:
            states[key] = max(states.get(key, (pane, data)), (pane, data))
        elif pane + 1 in due and (not_before is None or not_before <= pane):
            partials.setdefault(key, []).append((pane + 1, data))
    run = _Run(code, Found())
    after = {
        key: run.state(key, states[key][1] if key in states else None, found)
        for key, found in partials.items()
    }
    rows = table_of(job, 0, job.windows[0], run.found)
    return _with_states(rows, {k: s for k, s in after.items() if s is not None}, ends[-1])


class _Run:
    def __init__(self, code: Code, found: Found) -> None:
        self._code = code
        self._job = loaded(code)
        self.found = found

    def state(
        self, key_bytes: bytes, before: bytes | None, partials: list[tuple[int, bytes]]
    ) -> bytes | None:
        """A key's state after its values, or None where it stays as it was.

        A pane that fails changes nothing, and those after it go on from the state before it.
        """
        panes: dict[int, list[bytes]] = {}
        for end, data in sorted(partials):
            panes.setdefault(end, []).append(data)
        known = attempted("state", lambda: "a key", lambda: [decode_key(key_bytes)])
        if isinstance(known, FailedCallError):
            self.found.faults.append((min(panes), known))
            return None
        (key,), after = known, before
        for end, of_pane in panes.items():
            call = partial(self._after, key, after, end, of_pane)
            state = attempted("state", naming(key), call)
            if isinstance(state, FailedCallError):
                self.found.faults.append((end, state))
            else:
                after = state
        return after if after is not before else None

    def _after(self, key: Any, before: bytes | None, end: int, partials: list[bytes]) -> bytes:
        values = whole_of(self._code, Round(), key, partials)
        state = pickle.loads(before) if before is not None else None
        for *_, value in sorted(values, key=lambda value: value[:3]):
            state = self._updated(key, state, end, value)
        data = pickle.dumps(state, 5)
        if len(data) > self._code.max_state:
            raise too_large(self._code, key, len(data))
        return data

    def _updated(self, key: Any, state: Any, end: int, value: Any) -> Any:
        """The next state. A value that fails changes nothing; None is a key not seen yet."""
        try:
            state = started(self._job, key) if state is None else state
            state, pairs = updated(self._job.update, key, state, value)
        except FailedCallError as error:
            self.found.faults.append((end, error))
        else:
            self.found.add(end, pairs)
        return state


def _with_states(rows: pa.Table, states: dict[bytes, bytes], end: int) -> pa.Table:
    """State rows behind the others: `w` is the pane up to which they go."""
    for name in ("k0", "state"):
        rows = rows.append_column(name, pa.nulls(rows.num_rows, pa.binary()))
    count = len(states)
    columns = {"w": [end] * count, "k0": list(states), "state": list(states.values())}
    return pa.concat_tables([rows, sparse_rows(rows.schema, count, columns)])


def without_states(found: Mapping[str, pa.Table]) -> tuple[dict[str, pa.Table], list[pa.Table]]:
    """Rows of jobs for the driver, and their states as blocks that stay."""
    split = {name: _split(table) for name, table in found.items()}
    return {n: rows for n, (rows, _) in split.items()}, [states for _, states in split.values()]


def _split(table: pa.Table) -> tuple[pa.Table, pa.Table]:
    kept = pc.is_valid(table["state"])
    states = table.filter(kept)
    count = states.num_rows
    places = {"pane": states["w"], "k0": states["k0"], "c0": states["state"]}
    kind = {"spec": [STATE_SPEC] * count, "part": [0] * count}
    rows = table.filter(pc.invert(kept)).drop_columns(["k0", "state"])
    return rows, sparse_rows(SCHEMA, count, places | kind)
