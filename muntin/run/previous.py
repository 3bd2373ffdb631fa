"""The last result of each kind of window, for jobs that look back at it with PREVIOUS.

Windows of one kind leave in the order of their ends, so that one result is all that has to be kept.
It is part of the state: after a restart the next window sees the same rows.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from muntin.kernel.around import looks_back
from muntin.kernel.block import decode, encode
from muntin.kernel.due import Previous
from muntin.kernel.statements import WINDOW, WINDOW_END
from muntin.run.catalog import Catalog
from muntin.run.results import Emission, JobWindows


@dataclass(frozen=True)
class Kept:
    """The rows of one result, by the version of the job that made them."""

    version: str
    end: int  # a position: the grid of panes may change
    rows: pa.Table

    @cached_property
    def text(self) -> str:
        """All of it, as it is saved."""
        rows = b64encode(encode(self.rows)).decode()
        return json.dumps([self.version, self.end, rows])

    @classmethod
    def read(cls, text: str) -> Kept:
        version, end, rows = json.loads(text)
        return cls(version, end, decode(b64decode(rows), "the previous result of a job"))


def previous_of(catalog: Catalog, kept: Mapping[tuple[str, str], Kept]) -> dict[str, Previous]:
    """By job and kind of window what was kept; nothing of a job that was another one then."""
    found: dict[str, Previous] = {}
    for name, job in catalog.jobs.items():
        if looks_back(job):
            lasts = enumerate(kept.get((name, spec.key)) for spec in job.windows)
            found[name] = {
                number: (last.end // job.shape.pane, last.rows)
                for number, last in lasts
                if last is not None and last.version == job.version
            }
    return found


def kept_of(emission: Emission) -> dict[tuple[str, str], Kept]:
    """What has to be kept of what leaves."""
    kept: dict[tuple[str, str], Kept] = {}
    for left in emission.windows:
        if looks_back(left.job) and isinstance(left, JobWindows):
            for number, spec in enumerate(left.job.windows):
                ends = [end for which, end in left.counts if which == number]
                if ends:
                    rows = _rows(left, number, max(ends))
                    end = max(ends) * left.job.shape.pane
                    kept[left.job.name, spec.key] = Kept(left.job.version, end, rows)
    return kept


def _rows(left: JobWindows, which: int, end: int) -> pa.Table:
    mine = (left.rows[WINDOW].to_numpy() == which) & (left.rows[WINDOW_END].to_numpy() == end)
    return left.rows.filter(pa.array(np.asarray(mine))).drop_columns([WINDOW, WINDOW_END])
