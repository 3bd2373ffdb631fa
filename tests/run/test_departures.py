"""Late records against looking at every window they belong to."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from muntin.fidelity.score import Reason
from muntin.kernel.reading import Reading
from muntin.language.program import sql
from muntin.model.counts import Tally
from muntin.model.jobs import Bounds, Job
from muntin.model.records import TIME
from muntin.run.catalog import Catalog
from muntin.run.departures import Departures
from muntin.run.progress import Leaving, Progress
from muntin.windows.spec import WindowSpec

PANE = 10
PROGRAM = sql(
    "CREATE STREAM s (t BIGINT) FROM 'x' FORMAT json TIMESTAMP t;"
    "CREATE JOB j AS SELECT count(*) AS n FROM s WINDOW 20 us EVERY 10 us, 60 us EVERY 30 us"
)
JOB, STREAM = PROGRAM.jobs["j"], PROGRAM.streams["s"]
reasons = st.sampled_from([Reason.COMPLETE, Reason.FIDELITY])
tallies = st.builds(
    lambda pane, mark, records: Tally("a", TIME.column, PANE, pane, mark, records, 0, 500),
    st.integers(0, 20),
    st.none() | st.integers(0, 25),
    st.integers(0, 3),
)


def came_too_late(job: Job, spec: WindowSpec, end: int, mark: int | None, known: Progress) -> bool:
    left = known.left.get((job.name, spec.key), {}).get(end * PANE)
    gone = known.emitted.get((job.name, spec.key), -PANE) // PANE
    if job.bounds.revise_us is not None:
        return end * PANE + job.bounds.revise_us <= gone * PANE
    if left is not None and left.reason == Reason.FIDELITY:
        return False
    return end <= gone or left is not None or (mark is not None and end <= mark)


@given(
    found=st.lists(tallies, max_size=8),
    emitted=st.dictionaries(st.sampled_from(JOB.windows), st.integers(0, 25)),
    left=st.dictionaries(
        st.sampled_from(JOB.windows), st.dictionaries(st.integers(1, 25), reasons, max_size=4)
    ),
    revise_us=st.none() | st.sampled_from([0, 15, 40]),
)
def test_a_record_is_late_if_some_window_leaves_it_out(
    found: list[Tally],
    emitted: dict[WindowSpec, int],
    left: dict[WindowSpec, dict[int, Reason]],
    revise_us: int | None,
) -> None:
    job = replace(JOB, bounds=Bounds(revise_us=revise_us))
    known = Progress(
        emitted={(job.name, spec.key): end * PANE for spec, end in emitted.items()},
        left={
            (job.name, spec.key): {e * PANE: Leaving(0, reason) for e, reason in ends.items()}
            for spec, ends in left.items()
        },
    )
    late = sum(
        tally.records
        for tally in found
        if any(
            came_too_late(job, spec, end, tally.not_before, known)
            for spec in job.windows
            for end in range(spec.first_end(tally.pane), spec.last_end(tally.pane) + 1, spec.stride)
        )
    )
    catalog = Catalog(STREAM, {job.name: job})
    Departures(known).take(catalog, [Reading("a", tallies=tuple(found))])
    assert (known.late[job.name].records if known.late else 0) == late
