"""How large the state of a real program becomes, as batches go by.

    python -m tests.store.soaking [--batches 10000]

One job and the records of its stream are retained, another job looks at its newest result with
LATEST, and a third reads its results with FROM JOB. All is what a run does, but for Spark: loops,
journals and tables, with a clock that goes on by a second with every batch. Logs are rotated, and
the oldest deleted. Of tables only the files that say what is in them are counted beside rows.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import muntin as mt
from benchmarks.soak import FAST
from muntin.run.derived import JobResults, Readers
from muntin.store import delta
from tests.ask.keeping import Kept

KEPT_SECONDS = 60
PARTS = ("checkpoints", "panes", "joined", "results")
PROGRAM = """
CREATE STREAM web (t BIGINT, k VARCHAR) FROM '{folder}/{{source}}.log*' FORMAT json TIMESTAMP t
RETAIN 1 MINUTE OF STREAM (k);
CREATE JOB sums AS SELECT k, count(*) AS c FROM web GROUP BY k
WINDOW 2 SECONDS RETAIN {kept} SECONDS;
CREATE JOB looks AS SELECT l.c, count(*) AS n FROM web w JOIN LATEST(sums) l ON l.k = w.k
GROUP BY l.c WINDOW 2 SECONDS;
CREATE JOB longer AS SELECT k, sum(c) AS c FROM JOB sums GROUP BY k WINDOW 10 SECONDS;
"""
_BEGIN = 1_800_000_000
KEYS = 20
_ROTATED = 50  # batches after which a log is rotated
_TIDIED = 16  # and after which tables are


@dataclass(frozen=True)
class Size:
    """Bytes and files after so many batches, by what they are for."""

    batches: int
    parts: Mapping[str, tuple[int, int]]
    asked: int  # records that are known of the past
    seconds: float


def soak(folder: Path, batches: int, looks: Collection[int]) -> Iterator[Size]:
    """Runs so many batches, and tells what is there after some of them."""
    logs, state = folder / "logs", folder / "state"
    logs.mkdir()
    program = mt.sql(PROGRAM.format(folder=logs, kept=KEPT_SECONDS))
    web, results = program.streams.values()
    taken = JobResults(results, True)
    first = Kept(program, state, follow=True, now=_BEGIN, stream=web)
    second = Kept(program, state, follow=True, now=_BEGIN, intake=taken, stream=results)
    readers = Readers([taken], [first.loop, second.loop])
    began = time.process_time()
    for number in range(batches):
        _write(logs, number)
        for run in (first, second):
            run.turn()
            readers.hand_on(run.loop, run.last.emission)
            if number % _TIDIED == _TIDIED - 1:
                run.loop.tidy()
        if number + 1 in looks:
            yield _size(state, number + 1, time.process_time() - began)


def _write(logs: Path, number: int) -> None:
    """A second of log, in a new file now and then."""
    log = logs / "web.log"
    if number % _ROTATED == 0 and log.exists():
        log.rename(logs / f"web.log.{number}")
        (logs / f"web.log.{number - _ROTATED}").unlink(missing_ok=True)
    with log.open("a") as file:
        for key in range(KEYS):
            file.write(json.dumps({"t": _BEGIN + number, "k": f"k{key}"}) + "\n")


def _size(state: Path, batches: int, seconds: float) -> Size:
    parts = dict.fromkeys(PARTS, (0, 0))
    for path in state.rglob("*"):
        if not path.is_file() or (path.suffix == ".parquet" and "results" in path.parts):
            continue
        part = next((name for name in PARTS if name in path.parts), "checkpoints")
        bytes_, files = parts[part]
        parts[part] = bytes_ + path.stat().st_size, files + 1
    (asked,) = mt.ask("SELECT sum(c) AS c FROM sums", state=state).rows["c"].to_pylist()
    return Size(batches, parts, asked, seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--batches", type=int, default=10_000)
    given = parser.parse_args()
    delta._SETTINGS |= FAST
    looks = {n for n in (300, 1000, 3000, 10_000, 30_000) if n < given.batches} | {given.batches}
    print(f"batches, then kB and files of {', '.join(PARTS)}")
    with tempfile.TemporaryDirectory(prefix="muntin-soak-") as folder:
        for size in soak(Path(folder), given.batches, looks):
            told = (f"{bytes_ / 1e3:9,.1f} {files:5,}" for bytes_, files in size.parts.values())
            each = 1e3 * size.seconds / size.batches
            more = f"{size.asked:,} records kept, {each:.1f} ms a batch"
            print(f"{size.batches:7,}  {'  '.join(told)}  {more}", flush=True)


if __name__ == "__main__":
    main()
