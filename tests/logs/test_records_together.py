"""Lanes may be read in any company: the same rows, tallies and readings come of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from muntin.errors import BadRowError, EngineError
from muntin.kernel.compute import Recipe
from muntin.kernel.engine import run
from muntin.kernel.merge import merge
from muntin.kernel.reading import Reading
from muntin.language.program import sql
from muntin.logs import records
from muntin.logs.chunks import WorkOrder
from muntin.logs.records import Blocks, read_lane, read_lanes
from muntin.model.jobs import Program
from muntin.model.records import POSITION
from muntin.run.catalog import recipes_of

BASE = 1_700_000_000
JOBS = {
    "panes": "SELECT n % 3 AS k, count(*) AS c, sum(n) AS s FROM logs GROUP BY k WINDOW 10 SECONDS",
    "sliding": "SELECT count(*) AS c FROM logs WINDOW 20 SECONDS EVERY 10 SECONDS",
    "sources": "SELECT source, max(n) AS m FROM logs GROUP BY source WINDOW 10 SECONDS",
    "sampled": "SELECT count(*) AS c FROM logs WINDOW 5 SECONDS FIDELITY 50 PERCENT SAMPLED",
    "apart": "SELECT count(*) AS c FROM logs WINDOW 10 SECONDS FIDELITY 50 PERCENT OF TIME",
    "revised": "SELECT count(*) AS c FROM logs WHERE n > 2 WINDOW 10 SECONDS REVISE FOR 1 MINUTE",
    "sessions": "SELECT n % 2 AS k, count(*) AS c FROM logs GROUP BY k WINDOW SESSION 4 SECONDS",
    "counted": "SELECT count(*) AS c FROM logs WINDOW 3 RECORDS",
    "sized": "SELECT count(*) AS c FROM logs WINDOW 64 BYTES",
    "numbered": "SELECT count(*) AS c FROM logs WINDOW 4 OF n",
    "highest": "SELECT max(n) AS m FROM logs WINDOW 10 SECONDS",
    "some": "SELECT n % 2 AS k, count(*) AS c FROM logs WHERE n > 4 GROUP BY k WINDOW 5 SECONDS",
}
FORMATS = {
    "json": "json",
    "csv": "csv",
    "regex": "regex '^(?P<t>[0-9]+) (?P<n>[^ ]+)$'",
    "parquet": "parquet",
}
WRITTEN: dict[str, Callable[[int, int], str]] = {
    "json": lambda t, n: json.dumps({"t": t, "n": n}),
    "csv": lambda t, n: f"{t},{n}",
    "regex": lambda t, n: f"{t} {n}",
}
ODD = {
    "json": ["", "no json", '{"t": null, "n": 1}', '{"t": 1, "n": "x"}', "\ufeff", '{"n": "é"}'],
    "csv": ["", "1", "1,2,3", ",1", "1,x", '"1","2"', '1,"2', "é,é"],
    "regex": ["", "x", "1", "1 x", "é"],
}
Numbers = tuple[int, int]
Pieces = list[list[Numbers | int]]  # of each file its lines: a record, or the number of an odd one


@pytest.fixture(autouse=True)
def nothing_torn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "_torn", set())


def program(folder: Path, format_: str, jobs: Sequence[str], bad: str = "SKIP") -> Program:
    made = "".join(f"CREATE JOB {name} AS {JOBS[name]};" for name in jobs)
    return sql(
        f"CREATE STREAM logs (t BIGINT, n BIGINT) FROM '{folder}/*' FORMAT {FORMATS[format_]} "
        f"TIMESTAMP t ON BAD ROW {bad}; {made}"
    )


def write(folder: Path, format_: str, sources: Sequence[Pieces]) -> list[tuple[WorkOrder, ...]]:
    """A lane for each source, with an order for each of its files."""
    lanes = []
    for source, files in enumerate(sources):
        lane = []
        for number, rows in enumerate(files):
            path = folder / f"web-{source}.{number}"
            end = len(rows) and 1
            if format_ == "parquet":
                pairs = [row for row in rows if not isinstance(row, int)]
                columns = {"t": [BASE + t for t, _ in pairs], "n": [n for _, n in pairs]}
                schema = pa.schema({"t": pa.int64(), "n": pa.int64()})
                pq.write_table(pa.table(columns, schema=schema), path)
            else:
                odd, written = ODD[format_], WRITTEN[format_]
                lines = [
                    odd[row % len(odd)] if isinstance(row, int) else written(BASE + row[0], row[1])
                    for row in rows
                ]
                lines = ["t,n", *lines] if format_ == "csv" else lines
                path.write_text("\n".join(lines))  # the last line has no end
                end = path.stat().st_size
            lane.append(WorkOrder("logs", f"web-{source}", str(path), 0, end))
        if source % 2:
            lane.append(WorkOrder("logs", f"web-{source}", str(folder / "gone"), 0, 9))
        lanes.append(tuple(lane))
    return lanes


def canonical(recipes: Sequence[Recipe], several: Sequence[Blocks]) -> dict[str, list[str]]:
    """All rows by shape, merged and in one order."""
    found = {}
    for shape in (recipe.shape for recipe in recipes):
        blocks = [blocks[shape.id] for blocks in several if shape.id in blocks]
        if blocks:
            rows: list[dict[str, Any]] = merge(shape, [*blocks, blocks[0].slice(0, 0)]).to_pylist()
            found[shape.id] = sorted(map(str, rows))
    return found


def bare(readings: Sequence[Reading]) -> dict[str, Reading]:
    """Readings by source, without what depends on the clock or on the order of tallies."""
    ordered = (replace(r, costs={}, tallies=tuple(sorted(r.tallies, key=str))) for r in readings)
    return {reading.source: reading for reading in ordered}


def untold(readings: dict[str, Reading]) -> dict[str, Reading]:
    """The same, with whether there is something to say and not what."""
    said = {name: ("something",) if r.notes else () for name, r in readings.items()}
    return {name: replace(r, notes=said[name]) for name, r in readings.items()}


numbers = st.tuples(st.integers(0, 29), st.integers(0, 9))
lines = st.one_of(numbers, numbers, numbers, st.integers(0, 9))
files = st.lists(st.lists(lines, max_size=8), min_size=1, max_size=3)


@settings(max_examples=60)
@given(
    sources=st.lists(files, min_size=1, max_size=6),
    format_=st.sampled_from(sorted(FORMATS)),
    jobs=st.sets(st.sampled_from(sorted(JOBS)), min_size=1, max_size=3)
    | st.just({"panes", "sliding", "sources", "highest", "some"}),
    piece_bytes=st.sampled_from([1, 60, 1 << 20]),
    slack_us=st.sampled_from([None, 0, 5_000_000]),
    needs=st.none() | st.integers(0, 30),
    latest=st.none() | st.integers(0, 30),
    many=st.sampled_from([1, 16]),
    held=st.sampled_from([1, 500, 1 << 20]),
)
@example(
    [[[1]], [[(1, 1), 3, (9, 1)]], [[(2, 2)]]], "csv", {"panes"}, 1 << 20, 0, None, None, 16, 1
)
@example([[[3, 1]]], "csv", {"apart"}, 1, None, None, None, 1, 1)
@example(
    [[[]], [[(1, 0), (2, 0)]]],
    "json",
    {"panes", "sliding", "sources", "highest", "some"},
    1 << 20,
    0,
    30,
    None,
    16,
    1,
)
@example([[[(1, 0), (1, 0), (1, 0), (0, 0)]]], "json", {"apart"}, 60, None, None, 0, 1, 1)
def test_any_company_gives_the_same(
    tmp_path: Path,
    sources: Sequence[Pieces],
    format_: str,
    jobs: set[str],
    piece_bytes: int,
    slack_us: int | None,
    needs: int | None,
    latest: int | None,
    many: int,
    held: int,
) -> None:
    """Also where shapes are many, which get more records at once, in fewer deliveries."""
    records._torn.clear()
    jobs -= {"sized"} if format_ == "parquet" else set()
    found = program(tmp_path, format_, sorted(jobs or {"panes"}))
    (stream,) = found.streams.values()
    known = None if needs is None else (BASE + needs) * 1_000_000
    recipes = [  # of sessions it is never known what they need
        replace(recipe, needs=known if recipe.windows else None)
        for recipe in recipes_of(found.jobs.values())
    ]
    end = None if latest is None else (BASE + latest) * 1_000_000
    since = {POSITION: BASE * 1_000_000}
    lanes = [
        (replace(lane[0], latest=end, since=since if number % 3 else {}), *lane[1:])
        for number, lane in enumerate(write(tmp_path, format_, sources))
    ]
    alone = [read_lane(lane, stream, recipes, slack_us, piece_bytes) for lane in lanes]
    records._torn.clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records, "_MANY_SHAPES", many)
        patch.setattr(records, "_HELD_BYTES", held)
        together = list(read_lanes(lanes, stream, recipes, slack_us, piece_bytes))
    read, expected = bare([r for _, some in together for r in some]), bare([r for _, r in alone])
    if many == 1:  # of the bad rows of one piece another one may be told, and pieces are larger
        read, expected = untold(read), untold(expected)
    assert read == expected
    assert canonical(recipes, [blocks for blocks, _ in together]) == canonical(
        recipes, [blocks for blocks, _ in alone]
    )


def test_a_bad_row_among_many_files_is_told_with_its_file_and_line(tmp_path: Path) -> None:
    lanes = write(tmp_path, "json", [[[(1, 1), (2, 2)]], [[(1, 1), 1]], [[(3, 3)]]])[::2]
    lanes += write(tmp_path, "json", [[[(1, 1), (2, 2), 3]]])
    found = program(tmp_path, "json", ["panes"])
    (stream,) = found.streams.values()
    ((_, readings),) = read_lanes(lanes[1:], stream, recipes_of(found.jobs.values()), None)
    notes = [note for reading in readings for note in reading.notes]
    assert notes == [
        f"{tmp_path}/web-0.0, line 3: a row does not fit stream 'logs': "
        'column "n" is not BIGINT: {"t": 1, "n": "x"}'
    ]
    failing = program(tmp_path, "json", ["panes"], bad="FAIL")
    (stream,) = failing.streams.values()
    with pytest.raises(BadRowError, match=r"web-0\.0, line 3: "):
        list(read_lanes(lanes[1:], stream, recipes_of(failing.jobs.values()), None))


def test_only_sources_with_torn_lines_are_read_with_care(tmp_path: Path) -> None:
    lanes = write(tmp_path, "json", [[[(1, 1)]], [[(1, 1)]], [[(1, 1), 1]]])
    found = program(tmp_path, "json", ["panes"])
    (stream,) = found.streams.values()
    ((_, readings),) = read_lanes(lanes, stream, recipes_of(found.jobs.values()), None)
    assert sum(reading.records for reading in readings) == 3
    assert records._torn == {("logs", "web-2")}


def test_an_error_of_the_engine_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lanes = write(tmp_path, "json", [[[(1, 1)]], [], [[(1, 2)]]])[::2]
    found = program(tmp_path, "json", ["panes"])
    (stream,) = found.streams.values()
    real = run

    def fails(text: str, tables: dict[str, pa.Table], doing: str) -> pa.Table:
        if any('"n": 2' in line for line in tables["fields"]["line"].to_pylist()):
            raise EngineError(doing, "no", text)
        return real(text, tables, doing)

    monkeypatch.setattr(records, "run", fails)
    with pytest.raises(EngineError, match=r"parsing .*web-2\.0"):
        list(read_lanes(lanes, stream, recipes_of(found.jobs.values()), None))
