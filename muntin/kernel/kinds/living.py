"""Jobs without windows: every key has a state that lives on from record to record.

Blocks hold the values of due panes still to come, and a row for each key's state, of which the
newest counts. So they merge as others do, and a restart finds all that it needs in them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from muntin.kernel.due import NOTHING_BEFORE, Due, Emitted, Previous
from muntin.kernel.kinds.kind import Finished, Made, Ordering
from muntin.kernel.kinds.pairs import Pairs
from muntin.kernel.python.partials import FORGOTTEN, STATE_SPEC
from muntin.kernel.python.reducing import order_windows
from muntin.kernel.python.running import advance, within_keys, without_states
from muntin.model.jobs import Job
from muntin.units import describe


@dataclass(frozen=True)
class Living(Pairs):
    """map, init and update without a window; results leave with every pane."""

    @property
    def in_slices(self) -> bool:
        """A state needs all that came before it, however little of it is due."""
        return False

    @property
    def has_windows(self) -> bool:
        return False

    def finish(self, jobs: Mapping[str, Job], block: pa.Table, due: Due, made: Made) -> Finished:
        every = {}
        for name, (ends, *_) in due.ends.items():
            left = [end for end in ends if (name, 0, end) not in due.open]
            # A state goes on from what has left: what is open is shown behind that.
            shown = [
                end
                for end in ends
                if (name, 0, end) in due.open and end > max(left, default=end - 1)
            ]
            if left or shown:
                every[name] = advance(jobs[name], block, left, shown)
        rows, states = without_states(every)
        return Finished(rows, stays=tuple(states))

    def ordering(self, job: Job) -> Ordering | None:
        return None

    def by_window(self, job: Job) -> bool:
        """How many keys there are is known of all windows together."""
        return False

    def order(
        self, job: Job, rows: Sequence[pa.Table], previous: Previous = NOTHING_BEFORE
    ) -> pa.Table:
        return order_windows(job, [within_keys(job, rows)])

    def without(self, block: pa.Table, emitted: Emitted) -> pa.Table:
        state = pc.equal(block.column("spec"), STATE_SPEC)
        ahead = super().without(block.filter(pc.invert(state)), emitted)
        return pa.concat_tables([ahead, block.filter(state)])

    def is_over(self, upper: int, emitted: Emitted) -> bool:
        return False

    def without_forgotten(self, block: pa.Table) -> pa.Table:
        """The block less keys whose state is forgotten."""
        state = pc.equal(block.column("spec"), STATE_SPEC)
        forgotten = pc.and_(state, pc.equal(block.column("c0"), FORGOTTEN))
        return block.filter(pc.invert(forgotten))

    def headline(self) -> str | None:
        return f"states   of keys live on; results leave every {describe(self.shape.pane)}"
