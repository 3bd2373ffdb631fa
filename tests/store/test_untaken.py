"""Rows that nobody has taken: those that a reader of the whole table would find, in any files."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin.run.results import SCORE
from muntin.store import delta
from muntin.store.results import Results
from muntin.store.settling import here
from muntin.store.storage import LocalFolder
from muntin.units import moment
from tests.effort import examples

_TIMES = pa.timestamp("us", "UTC")
SCHEMA = pa.schema(
    [("job", pa.string()), ("window_name", pa.string()), ("window_start", _TIMES),
     ("window_end", _TIMES), ("n", pa.int64()), ("c2", pa.struct(SCORE)), ("revision", pa.int64()),
     ("emitted_at", _TIMES)]
)  # fmt: skip
Window = tuple[int, int, str | None, int]  # its end, revision, reason (None: taken back) and rows

reasons = st.sampled_from(["complete", "open", "deadline", None])
one = st.tuples(st.integers(1, 3), st.integers(0, 2), reasons, st.integers(1, 3))
batches = st.lists(st.lists(one, max_size=4), min_size=1, max_size=5)


def stored(batch: int, windows: Sequence[Window]) -> pa.Table:
    """What left at so many seconds; a window that left at its deadline lacks a source."""
    rows: list[dict[str, Any]] = []
    for end, revision, reason, count in windows:
        missing = [{"source": f"z{end}", "why": "dead", "panes": 1}] * (reason == "deadline")
        c2 = {"area": 0.5 if missing else 1.0, "reason": reason, "missing": missing}
        bounds = {"window_start": moment(0), "window_end": moment(end * 1_000_000)}
        for number in range(count if reason else 1):
            rows.append({
                "job": "j", "window_name": "w", **bounds, "n": number if reason else None,
                "c2": c2 if reason else None, "revision": revision,
                "emitted_at": datetime.fromtimestamp(batch + 1, UTC),
            })  # fmt: skip
    return pa.Table.from_pylist(rows, SCHEMA)


@examples(40)
@given(batches=batches, after=st.integers(0, 5), merged=st.booleans())
def test_rows_are_those_that_the_table_has_since(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[Window]], after: int, merged: bool
) -> None:
    state = tmp_path_factory.mktemp("state")
    results = Results(state)
    results.prepare({"j": SCHEMA})
    for batch, each in enumerate(batches):
        once = {(end, revision): (end, revision, why, n) for end, revision, why, n in each}
        results.publish("a", batch, results.write(batch, {"j": [stored(batch, [*once.values()])]}))
    if merged:
        delta._opened(LocalFolder(state / "results" / "j")).optimize.compact()
    whole = results.read("j", after=moment(after * 1_000_000)).to_pylist()
    expected = [row for row in whole if row["c2"]["reason"] != "open"]
    untaken = results.untaken("j", after * 1_000_000, here)
    found = [] if untaken is None else [r for t in untaken.tables() for r in t.to_pylist()]
    assert sorted(map(str, found)) == sorted(map(str, expected))
    if untaken is not None and found:
        ends = {int(row["window_end"].timestamp() * 1e6) for row in found}
        assert untaken.ends([0, *ends]) == ends
        assert untaken.at_us >= max(int(row["emitted_at"].timestamp() * 1e6) for row in found)
        lacking = {m["source"] for row in found for m in row["c2"]["missing"]}
        assert lacking <= untaken.lacking.keys()
