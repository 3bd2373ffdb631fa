"""What has been read into which pane, kept until every window that holds the pane is out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from muntin.model import Counts, Tally
from muntin.windows.spec import WindowSpec


class Ledger:
    """Tallies by pane size, pane, source and mark; equal ones are added up."""

    def __init__(self, tallies: Iterable[Tally] = ()) -> None:
        self._panes: dict[int, dict[int, dict[tuple[str, int | None], Tally]]] = {}
        self.add(tallies)

    def add(self, tallies: Iterable[Tally]) -> None:
        for tally in tallies:
            pane = self._panes.setdefault(tally.pane_us, {}).setdefault(tally.pane, {})
            key = (tally.source, tally.not_before)
            known = pane.get(key)
            pane[key] = tally if known is None else _sum(known, tally)

    def panes(self, pane_us: int) -> list[int]:
        """Panes with records, in order."""
        found = self._panes.get(pane_us, {})
        return sorted(p for p, tallies in found.items() if any(t.records for t in tallies.values()))

    def counts(self, spec: WindowSpec, end: int) -> Counts:
        """Records read, bad and late within one window."""
        panes = self._panes.get(spec.pane_us, {})
        read = bad = late = 0
        for pane in range(end - spec.length, end):
            for tally in panes.get(pane, {}).values():
                missed = tally.not_before is not None and tally.not_before >= end
                read += tally.records
                bad += tally.bad
                late += tally.records if missed else 0
        return Counts(read, bad, late)

    def forget(self, pane_us: int, before: int) -> None:
        panes = self._panes.get(pane_us, {})
        for pane in [p for p in panes if p < before]:
            del panes[pane]

    def __iter__(self) -> Iterator[Tally]:
        for panes in self._panes.values():
            for tallies in panes.values():
                yield from tallies.values()


def _sum(a: Tally, b: Tally) -> Tally:
    return replace(
        a,
        records=a.records + b.records,
        bad=a.bad + b.bad,
        stream_time=max(a.stream_time, b.stream_time),
    )
