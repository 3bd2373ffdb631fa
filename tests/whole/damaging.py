"""Flips bits in the files of a state and looks what becomes of it, in a process of its own.

    python -m tests.whole.damaging STATE SEED FLIPS

Prints a line of JSON before and after each flip: a process that ends in between has told where.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path

import pyarrow as pa

import muntin as mt
from muntin.kernel import tables
from muntin.store.checkpoint import Checkpoint
from muntin.store.findings import Weight
from muntin.store.inspection import check, show

KINDS = (
    "streams/*/state-*",
    "streams/*/blocks-*",
    "streams/*/ledger-*",
    "streams/*/panes/*",
    "streams/*/joined/*",
    "results/*/_delta_log/*.json",
    "results/*/_delta_log/*.parquet",
    "results/*/_delta_log/_last_checkpoint",
    "results/*/*.parquet",
)
JOBS = ("kept", "named", "hot")
QUESTIONS = ("SELECT k, n, high FROM kept GROUP BY k", "SELECT id, s, k FROM ev ORDER BY id, s")


def asked(state: Path) -> dict[str, Callable[[], object]]:
    """All that can be asked of a state."""
    answers: dict[str, Callable[[], object]] = {"joined": partial(_joined, state)}
    for job, window in product(JOBS, ("all", "latest")):
        answers[f"{window} of {job}"] = partial(_results, job, state, window)
    return answers | {text: partial(_answer, text, state) for text in QUESTIONS}


def _results(job: str, state: Path, window: str) -> object:
    return _rows(mt.results(job, state, window))


def _rows(rows: pa.Table) -> object:
    return sorted(map(str, rows.to_pylist()))


def _answer(text: str, state: Path) -> object:
    answer = mt.ask(text, state)
    return _rows(answer.rows), answer.c2.area


def _joined(state: Path) -> object:
    saved = Checkpoint(state, "ev").peek()
    assert saved is not None
    paths = [v.path for versions in saved.progress.tables.values() for v in versions]
    return [_rows(tables._read_kept(path)) for path in paths if path is not None]


def _said(ask: Callable[[], object]) -> object:
    """What comes of a question; nothing where it is refused in a sentence."""
    try:
        return ask()
    except mt.MuntinError as error:
        if len(str(error).splitlines()) != 1:
            raise
        return None


def outcome(state: Path, before: dict[str, object]) -> dict[str, object]:
    damaged = [f for f in check(state) if f.weight is Weight.DAMAGE]
    _said(partial(show, state))
    after = {name: _said(ask) for name, ask in asked(state).items()}
    other = [name for name, told in after.items() if told is not None and told != before[name]]
    refused = [name for name, told in after.items() if told is None]
    return {"found": bool(damaged), "other": other, "refused": refused}


def main(state: Path, seed: int, flips: int) -> None:
    before = {name: ask() for name, ask in asked(state).items()}
    chosen = random.Random(seed)
    left_over = {finding.place for finding in check(state)}
    for kind in KINDS:
        paths = sorted(path for path in state.glob(kind) if str(path) not in left_over)
        assert paths, kind
        for _ in range(flips):
            path = chosen.choice(paths)
            data = path.read_bytes()
            bit = chosen.randrange(8 * len(data))
            flipped = bytearray(data)
            flipped[bit // 8] ^= 1 << bit % 8
            path.write_bytes(flipped)
            where = {"kind": kind, "file": path.name, "bit": bit}
            print(json.dumps(where), flush=True)
            print(json.dumps({**where, **outcome(state, before)}), flush=True)
            path.write_bytes(data)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
