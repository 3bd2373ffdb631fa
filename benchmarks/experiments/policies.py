"""One question asked with each form of fidelity at several shares, and once without loss."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev

import muntin as mt
from benchmarks.experiments.playback import Left
from benchmarks.experiments.plots import Line

POLICIES = {"temporal": "OF TIME", "spatial": "OF SPACE", "random": "SAMPLED"}
SHARES = (10, 20, 40, 60, 80, 90, 100)
FEW = (20, 60)
PERFECT = "perfect"
Error = Callable[[mt.Result, mt.Result], Iterable[float]]
"""How far a result is from the perfect one, in any number of regards."""


def jobs_sql(select: str, window: str, shares: Sequence[int]) -> str:
    """All jobs; they share what they read, and samples aside also what they compute."""
    bounds = {
        f"{policy}_{share}": f" FIDELITY {share} PERCENT {form}"
        for policy, form in POLICIES.items()
        for share in shares
    }
    return "".join(
        f"CREATE JOB {name} AS {select} WINDOW {window}{bound};\n"
        for name, bound in {**bounds, PERFECT: ""}.items()
    )


@dataclass(frozen=True)
class Answers:
    """What has left, by job and start of window."""

    left: Mapping[str, Mapping[int, Left]]

    @classmethod
    def of(cls, found: Iterable[Left]) -> Answers:
        left: dict[str, dict[int, Left]] = {}
        for each in found:
            left.setdefault(each.result.job, {})[each.result.start] = each
        return cls(left)

    @property
    def windows(self) -> list[int]:
        """Windows that have left whole."""
        return [s for s, each in self.left[PERFECT].items() if each.result.c2.area == 1.0]

    def line(self, policy: str, shares: Sequence[int], error: Error) -> Line:
        """The mean error and its deviation, over all windows, against fidelity."""
        errors = [self._errors(f"{policy}_{share}", error) for share in shares]
        return Line(shares, [fmean(e) for e in errors], [pstdev(e) for e in errors])

    def latency(self, policy: str, shares: Sequence[int]) -> Line:
        """Mean seconds from the start of a window to its result."""
        jobs = [self.left[f"{policy}_{share}"] for share in shares]
        return Line(shares, [fmean(job[s].latency for s in self.windows) for job in jobs])

    def area(self, policy: str, shares: Sequence[int]) -> Line:
        """Mean C²."""
        jobs = [self.left[f"{policy}_{share}"] for share in shares]
        return Line(shares, [fmean(job[s].result.c2.area for s in self.windows) for job in jobs])

    def _errors(self, job: str, error: Error) -> list[float]:
        whole, left = self.left[PERFECT], self.left[job]
        return [e for s in self.windows for e in error(left[s].result, whole[s].result)]


def lines(shares: Sequence[int], of: Callable[[str, Sequence[int]], Line]) -> dict[str, Line]:
    return {policy: of(policy, shares) for policy in POLICIES}


def table(title: str, found: Mapping[str, Line], form: str) -> list[str]:
    """A row for each policy, a column for each share, in Markdown."""
    shares = next(iter(found.values())).xs
    head = [f"| {title} | {' | '.join(f'{share} %' for share in shares)} |"]
    head += ["|---" * (len(shares) + 1) + "|"]
    rows = [
        f"| {policy} | {' | '.join(form.format(y) for y in line.ys)} |"
        for policy, line in found.items()
    ]
    return [*head, *rows, ""]
