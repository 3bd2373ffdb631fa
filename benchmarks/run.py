"""Muntin, plain PySpark and plain Structured Streaming on the same files, one after another.

    python -m benchmarks.run [--records N] [--cores 2] [--only tumbling] [--repeat K] [--memory]

Every contestant runs in a process of its own. All must give the same rows, or there is no table.
One that takes longer than the limit (of the whole process) is stopped and has not finished.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.questions import QUESTIONS
from benchmarks.shop import FILE, Shop, write_shop

CONTESTANTS = {
    "muntin_job": "Muntin",
    "pyspark_batch": "PySpark batch",
    "structured_streaming": "Structured Streaming",
    "duckdb_scan": "DuckDB, scan only",
}
RIVALS = ("pyspark_batch", "structured_streaming")
TARGETS = {
    "tumbling": {"pyspark_batch": 2.5, "structured_streaming": 8.0},
    "sliding": {"pyspark_batch": 8.0, "structured_streaming": 20.0},
    "overlap": {},
}
# With every record in 3600 windows, the check of DuckDB's scan alone would take hours.
WITHOUT_SCAN = ("overlap",)
TARGET_BYTES = 1.5e9
TIMES = 4
LARGER = {"4x the traffic": 1, "4x as long": TIMES}  # hours, as a multiple
UNCHANGED = 1.1  # peaks differ by a few percent from run to run anyway

_err = Console(stderr=True, highlight=False)
_out = Console(highlight=False)


@dataclass(frozen=True)
class Outcome:
    """What one contestant's process has printed."""

    seconds: float
    cpu_seconds: float
    other_cpu_seconds: float
    python_bytes: int
    jvm_bytes: int
    rows: int
    clicks: int
    md5: str


class ContestError(Exception):
    """A contestant failed, or two of them disagree."""


def run_contestant(
    module: str, folder: Path, question: str, cores: int, limit: float | None = None
) -> Outcome | None:
    """What it came to, or None if it was not done within the limit."""
    command = [sys.executable, "-m", f"benchmarks.{module}", str(folder), question, str(cores)]
    _err.print(f"[dim]{CONTESTANTS[module]}: {question}[/] …", end=" ")
    with tempfile.TemporaryDirectory(prefix="muntin-bench-") as scratch:
        process = subprocess.Popen(
            command,
            cwd=Path(__file__).resolve().parents[1],
            env=os.environ | {"TMPDIR": scratch},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            printed, said = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            _stop(process)
            _err.print(f"not within {limit:g} s")
            return None
        except BaseException:
            _stop(process)
            raise
    if process.returncode:
        raise ContestError(f"{' '.join(command)} failed:\n{said[-4000:]}")
    outcome = Outcome(**json.loads(printed.splitlines()[-1]))
    _err.print(f"{outcome.seconds:.2f} s")
    return outcome


def _stop(process: subprocess.Popen[str]) -> None:
    os.killpg(process.pid, signal.SIGKILL)  # with its JVM and its workers
    process.wait()


def run_question(
    question: str, folder: Path, cores: int, repeat: int, limit: float
) -> dict[str, Outcome | None]:
    """The median of each contestant over rounds in which all take their turn."""
    modules = [m for m in CONTESTANTS if m != "duckdb_scan" or question not in WITHOUT_SCAN]
    rounds = [
        {module: run_contestant(module, folder, question, cores, limit) for module in modules}
        for _ in range(repeat)
    ]
    done = [o for outcomes in rounds for o in outcomes.values() if o is not None]
    if len({(o.rows, o.clicks, o.md5) for o in done}) > 1:
        raise ContestError(f"{question}: the contestants disagree: {rounds}")
    return {module: _median([r[module] for r in rounds]) for module in modules}


def _median(found: Sequence[Outcome | None]) -> Outcome | None:
    outcomes = [o for o in found if o is not None]
    if len(outcomes) < len(found):
        return None
    return replace(
        outcomes[0],
        seconds=median(o.seconds for o in outcomes),
        cpu_seconds=median(o.cpu_seconds for o in outcomes),
        other_cpu_seconds=median(o.other_cpu_seconds for o in outcomes),
        python_bytes=max(o.python_bytes for o in outcomes),
        jvm_bytes=max(o.jvm_bytes for o in outcomes),
    )


def ratios(outcomes: dict[str, Outcome | None]) -> dict[str, float]:
    """How many times faster than each rival that has finished Muntin is."""
    ours = outcomes["muntin_job"]
    done = {rival: outcomes[rival] for rival in RIVALS}
    return {r: o.seconds / ours.seconds for r, o in done.items() if o is not None and ours}


def show_question(
    question: str, outcomes: dict[str, Outcome | None], size: int, limit: float
) -> None:
    ours, found = outcomes["muntin_job"], ratios(outcomes)
    headings = ("seconds", "MB/s", "ratio", "target", "CPU s", "others", "Python MB", "JVM MB")
    table = _table(f"{question}: {_describe(question)}", headings)
    for module, o in outcomes.items():
        if o is None:
            table.add_row(CONTESTANTS[module], f"not within {limit:g} s")
            continue
        target, ratio = TARGETS[question].get(module), found.get(module)
        table.add_row(
            CONTESTANTS[module],
            f"{o.seconds:.2f}",
            f"{size / 1e6 / o.seconds:,.0f}",
            f"{ratio:.2f}x" if ratio else "",
            f"{target:g}x" if target else "",
            f"{o.cpu_seconds:.1f}",
            f"{o.other_cpu_seconds:.1f}",
            f"{o.python_bytes / 1e6:,.0f}",
            f"{o.jvm_bytes / 1e6:,.0f}" if o.jvm_bytes else "",
        )
    _out.print(table)
    scan = outcomes.get("duckdb_scan")
    if ours is not None:
        share = f" DuckDB's scan is {scan.seconds / ours.seconds:.0%} of Muntin's." if scan else ""
        _out.print(f"{ours.rows:,} rows, the same from all that have finished.{share}")
    _out.print(
        "'others' is CPU time of processes outside the contest: about none if it is quiet.\n"
    )


def _describe(question: str) -> str:
    asked = QUESTIONS[question]
    where = f" in store {asked.store}" if asked.store else ""
    top = f", top {asked.top}" if asked.top else ""
    seconds = f"{asked.range_us / 1e6:g} s every {asked.slide_us / 1e6:g} s"
    return f"clicks by product{where}, {seconds}{top}"


def run_larger(questions: Sequence[str], shop: Shop, cores: int) -> dict[str, dict[str, Outcome]]:
    """Muntin alone on four times the input: more traffic, and the same traffic for longer."""
    found = {}
    for kind, hours in LARGER.items():
        larger = replace(shop, records=shop.records * TIMES, hours=shop.hours * hours)
        with tempfile.TemporaryDirectory(prefix="muntin-shop-") as folder:
            _write(Path(folder), larger)
            ran = {q: run_contestant("muntin_job", Path(folder), q, cores) for q in questions}
            found[kind] = {question: o for question, o in ran.items() if o is not None}
    return found


def show_memory(small: dict[str, Outcome], larger: dict[str, dict[str, Outcome]]) -> None:
    headings = ("MB", "under 1.5 GB", "grown by", "unchanged", "seconds")
    table = _table("peak memory of Muntin's Python processes", headings)
    for question, before in small.items():
        after = [(f", {kind}", found[question]) for kind, found in larger.items()]
        for kind, o in [("", before), *after]:
            growth = o.python_bytes / before.python_bytes
            table.add_row(
                f"{question}{kind}",
                f"{o.python_bytes / 1e6:,.0f}",
                _yes(o.python_bytes < TARGET_BYTES),
                f"{growth - 1:.0%}" if kind else "",
                _yes(growth < UNCHANGED) if kind else "",
                f"{o.seconds:.2f}",
            )
    _out.print(table)


def _table(title: str, headings: Sequence[str]) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=0)
    table.add_column("", no_wrap=True)
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _yes(reached: bool) -> str:
    return "yes" if reached else "[red]no[/]"


def _write(folder: Path, shop: Shop) -> int:
    with _err.status(f"writing {shop.records:,} records"):
        size = write_shop(folder, shop)
    _err.print(
        f"{shop.records:,} records, {size / 1e6:,.0f} MB, {size / shop.records:.0f} bytes each"
    )
    return size


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    questions = [arguments.only] if arguments.only else list(QUESTIONS)
    shop = Shop(records=arguments.records, hours=arguments.hours)
    with tempfile.TemporaryDirectory(prefix="muntin-shop-") as temporary:
        folder = arguments.folder or Path(temporary)
        size = _size(folder) or _write(folder, shop)
        found = {}
        for question in questions:
            found[question] = run_question(
                question, folder, arguments.cores, arguments.repeat, arguments.limit
            )
            show_question(question, found[question], size, arguments.limit)
    small = {q: o for q in questions if (o := found[q]["muntin_job"]) is not None}
    larger = run_larger(list(small), shop, arguments.cores) if arguments.memory else {}
    if larger:
        show_memory(small, larger)
    return {
        "shop": asdict(shop) | {"bytes": size},
        "cores": arguments.cores,
        "repeat": arguments.repeat,
        "outcomes": {q: {m: o and asdict(o) for m, o in found[q].items()} for q in questions},
        "ratios": {q: ratios(found[q]) for q in questions},
        "targets": TARGETS,
        "larger": {kind: {q: asdict(o) for q, o in by.items()} for kind, by in larger.items()},
    }


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob(f"*/{FILE}"))


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.run", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--records", type=int, default=Shop.records)
    parser.add_argument("--hours", type=float, default=Shop.hours, help="of event time")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--only", choices=QUESTIONS)
    parser.add_argument("--repeat", type=int, default=1, help="rounds; medians are shown")
    parser.add_argument("--limit", type=float, default=300, help="seconds for each contestant")
    parser.add_argument("--memory", action="store_true", help="also Muntin on four times as much")
    parser.add_argument("--folder", type=Path, help="keep the logs here; use those there")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything here")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # leave no contestant behind
    try:
        found = run(arguments)
    except ContestError as error:
        _err.print(str(error), style="red", markup=False)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
