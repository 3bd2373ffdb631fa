"""Results against the truth: complete ones are the truth, others lack what they name."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from muntin.store.results import Results
from muntin.store.storage import Place
from tests.faults.jobs import Asked
from tests.faults.servers import Cell, Server

Truth = Mapping[str, Mapping[int, Cell]]  # by server and second
_NOTHING = Cell()


@dataclass
class Window:
    """One revision of a window, as it is stored."""

    job: str
    start: int
    end: int
    revision: int
    rows: list[dict[str, Any]] = field(default_factory=list)
    in_vain: int = 0  # panes that are said to be missing, and lack nothing
    pane: int = 1  # seconds that a pane has

    @property
    def c2(self) -> dict[str, Any]:
        return self.rows[0]["c2"] or {"area": 0.0, "reason": "withdrawn", "missing": []}

    @property
    def is_complete(self) -> bool:
        return bool(self.c2["area"] == 1.0)

    @property
    def left_at(self) -> float:
        return float(min(row["emitted_at"] for row in self.rows).timestamp())

    @property
    def named(self) -> Counter[str]:
        """How many panes of each source are said to be missing."""
        named: Counter[str] = Counter()
        for missing in self.c2["missing"] or ():
            named[missing["source"]] += missing["panes"]
        return named

    @property
    def merged(self) -> list[int]:
        """How many sources are in each pane."""
        runs = self.c2.get("panes") or ()
        return [run["sources"] for run in runs for _ in range(run["panes"])]

    def closed_at(self, server: str, second: int) -> int:
        """When the panes of a second may have been closed, by the time of its server.

        A server of which all is there has come to the window's end, and all of it was read. Of
        another one nobody knows what comes that its slack does not allow for any more.
        """
        return second + 1 if self.named[server] else self.end

    def panes_of(self, seconds: Iterable[int]) -> set[int]:
        """The panes that hold these seconds."""
        return {second // self.pane for second in seconds}

    def __str__(self) -> str:
        of = f"{self.job} {self.start}..{self.end}" + (f" r{self.revision}" * bool(self.revision))
        missing = ", ".join(
            f"{m['source']} {m['panes']} {m['why']}" for m in self.c2["missing"] or ()
        )
        return f"{of}, {self.c2['area']:.0%} {self.c2['reason']}, missing: {missing or 'nothing'}"


@dataclass(frozen=True)
class Wrong:
    """A window that is not what it says."""

    window: Window
    what: str

    def __str__(self) -> str:
        return f"{self.window}: {self.what}"


@dataclass
class Verdict:
    """What there is to say of all windows of some jobs."""

    windows: list[Window] = field(default_factory=list)
    wrong: list[Wrong] = field(default_factory=list)
    twice: list[Window] = field(default_factory=list)
    ranges: Sequence[Window] = ()  # that were asked of what is retained
    missing: dict[str, list[tuple[int, int]]] = field(default_factory=dict)  # windows, by job
    absent: list[str] = field(default_factory=list)  # what there is to say of those

    @property
    def is_good(self) -> bool:
        return not (self.wrong or self.twice or self.absent)


def windows_of(state: Place, job: str) -> list[Window]:
    """All that is stored of a job, each revision by itself."""
    found: dict[tuple[int, int, int], Window] = {}
    for row in Results(state).read(job, revisions=True).to_pylist():
        start, end = (int(row[name].timestamp()) for name in ("window_start", "window_end"))
        key = start, end, row["revision"]
        found.setdefault(key, Window(job, *key)).rows.append(row)
    return [found[key] for key in sorted(found)]


def judge(
    state: Place, jobs: Sequence[Asked], servers: Mapping[str, Sequence[Server]], upto: int
) -> Verdict:
    """Looks at all windows that end at `upto` or before; `servers` are those of each stream."""
    verdict = Verdict()
    for job in jobs:
        truth = {server.name: server.cells for server in servers[job.stream]}
        windows = [w for w in windows_of(state, job.name) if w.end <= upto]
        verdict.windows += windows
        for window in windows:
            verdict.wrong += [Wrong(window, what) for what in deviations(window, truth)]
            window.in_vain = in_vain(window, truth)
            if len({row["emitted_at"] for row in window.rows}) > 1:
                verdict.twice.append(window)
        seen = {(window.start, window.end) for window in windows}
        verdict.missing[job.name] = [w for w in _expected(job, truth, upto) if w not in seen]
    return verdict


def _expected(job: Asked, truth: Truth, upto: int) -> Iterator[tuple[int, int]]:
    """The windows that have to hold records."""
    ends = {
        start + job.length
        for cells in truth.values()
        for second, cell in cells.items()
        for start in range(second // job.slide * job.slide, second - job.length, -job.slide)
        if cell.wanted(start + job.length)
    }
    return ((end - job.length, end) for end in sorted(ends) if end <= upto)


def _cells(window: Window) -> dict[tuple[str, int], list[dict[str, Any]]]:
    cells = defaultdict(list)
    for row in window.rows:
        if row["server"] is not None:
            cells[row["server"], row["second"]].append(row)
    return cells


def deviations(window: Window, truth: Truth) -> Iterator[str]:
    found = _cells(window)
    for (server, second), rows in found.items():
        known = truth[server].get(second, _NOTHING)
        numbers = Counter(n for row in rows for n in row["numbers"])
        where = f"{server} at {second}"
        if len(rows) > 1:
            yield f"{where} has {len(rows)} rows"
        if not window.start <= second < window.end:
            yield f"{where} is outside"
        if repeated := sorted(n for n, times in numbers.items() if times > 1):
            yield f"{where} counts {len(repeated)} records twice: {_some(repeated)}"
        if strange := sorted(numbers.keys() - known.numbers):
            yield f"{where} has {len(strange)} records that nobody wrote: {_some(strange)}"
        if any(row["c"] != numbers.total() or row["n"] != sum(numbers.elements()) for row in rows):
            yield f"{where}: count, sum and list do not agree"
    lacking, named = lacking_of(window, truth), window.named
    for server, panes in lacking.items():
        if len(window.panes_of(panes)) > named[server]:
            told = ", ".join(f"{second}: {_some(numbers)}" for second, numbers in panes.items())
            yield f"{server} lacks records of {len(panes)} seconds, {named[server]} named: {told}"
    if window.is_complete and named:
        yield "it is complete, and names what is missing"
    for pane, merged in enumerate(window.merged, window.start // window.pane):
        whole = [s for s in truth if pane not in window.panes_of(lacking.get(s, ()))]
        if merged > len(whole):
            at = pane * window.pane
            yield f"at {at} it has {merged} sources, and only {len(whole)} lack nothing"


def lacking_of(window: Window, truth: Truth) -> dict[str, dict[int, list[int]]]:
    """By server and second, what has to be in a window that is complete, and is not."""
    found = _cells(window)
    lacking: dict[str, dict[int, list[int]]] = {}
    for server, cells in truth.items():
        for second in range(window.start, window.end):
            there = {n for row in found.get((server, second), ()) for n in row["numbers"]}
            end = window.closed_at(server, second)
            if missing := cells.get(second, _NOTHING).wanted(end) - there:
                lacking.setdefault(server, {})[second] = sorted(missing)
    return lacking


def in_vain(window: Window, truth: Truth) -> int:
    """How many panes are said to be missing that lack nothing.

    A pane that its source has not passed counts as missing, whatever was read of it; and of a log
    that was taken away nobody knows what it had.
    """
    lacking = lacking_of(window, truth)
    named = window.named.items()
    return sum(max(0, n - len(window.panes_of(lacking.get(name, ())))) for name, n in named)


def judge_sums(
    state: Place, job: str, servers: Iterable[Server], upto: int, verdict: Verdict
) -> None:
    """Looks at a job that adds up results of another one; adds to the verdict."""
    truth = {server.name: server.cells for server in servers}
    for window in windows_of(state, job):
        if window.end > upto:
            continue
        verdict.windows.append(window)
        if len({row["emitted_at"] for row in window.rows}) > 1:
            verdict.twice.append(window)
        found = {row["server"]: (row["c"], row["n"]) for row in window.rows}
        for name, cells in truth.items():
            known = {s: cells.get(s, _NOTHING) for s in range(window.start, window.end)}
            least = [n for s, cell in known.items() for n in cell.wanted(s + 1)]
            most = [n for cell in known.values() for n in cell.numbers]
            c, n = found.get(name, (0, 0))
            few = (c < len(least) or n < sum(least)) and not window.named[name]
            if few or c > len(most) or n > sum(most):
                limits = f"{len(least)} to {len(most)}, sum {sum(least)} to {sum(most)}"
                what = f"{name} has {c} records, sum {n}; wanted are {limits}"
                verdict.wrong.append(Wrong(window, what))


def _some(numbers: Sequence[int]) -> str:
    shown = " ".join(map(str, numbers[:5]))
    return shown + (" …" if len(numbers) > 5 else "")
