"""All records of a pane are joined with one version of a table, whenever its file has changed."""

from __future__ import annotations

import json
import os
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin.errors import InputError, LanguageError
from muntin.language.program import sql
from muntin.run.inline import InlineRun
from muntin.run.loop import Rules
from muntin.run.results import Emission
from tests.effort import examples

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PANE = 10
Seen = Counter[tuple[int, str]]  # records by window and the version that they were joined with


def write_table(folder: Path, version: str, at: int) -> None:
    """Puts another file in the place of the one that is there, with a time of its own."""
    path = folder / "new"
    path.write_text(f"k,version\nx,{version}\n")
    os.utime(path, (at, at))
    path.rename(folder / "names.csv")


def append(folder: Path, source: str, seconds: list[int]) -> None:
    with (folder / f"{source}.log").open("a") as file:
        file.writelines(json.dumps({"t": t, "k": "x"}) + "\n" for t in seconds)


def text(folder: Path) -> str:
    return (
        f"CREATE STREAM s (t BIGINT, k VARCHAR) FROM '{folder}/{{source}}.log' FORMAT json "
        f"TIMESTAMP t SLACK 100 SECONDS; CREATE TABLE names FROM '{folder}/names.csv';"
        "CREATE JOB beside AS SELECT version, count(*) AS n FROM s JOIN names USING (k) "
        f"GROUP BY version WINDOW {PANE} SECONDS;"
        "CREATE JOB around AS SELECT version, n FROM (SELECT k, count(*) AS n FROM s GROUP BY k) "
        f"JOIN names USING (k) WINDOW {PANE} SECONDS"
    )


def seen(emissions: list[Emission], job: str) -> Seen:
    found: Seen = Counter()
    for emission in emissions:
        for result in emission.results():
            for row in result.rows.to_pylist() if result.job == job else ():
                found[result.start // 1_000_000, row["version"]] += row["n"]
    return found


def about_tables(note: str) -> None:
    """Fails on what is said of tables; that records leap in time is no matter here."""
    if "leaps ahead" not in note:
        pytest.fail(note)


steps = st.lists(
    st.tuples(st.booleans(), st.sampled_from("ab"), st.lists(st.integers(0, 99), max_size=6)),
    max_size=5,
)


@given(steps=steps)
@examples(6)
def test_a_pane_sees_one_version(steps: list[tuple[bool, str, list[int]]]) -> None:
    """Each version holds from the first pane on that lies behind all that was read before it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_table(folder, "v0", 1)
        append(folder, "a", [])
        append(folder, "b", [])
        program = sql(text(folder))
        jobs = list(program.jobs.values())
        run = InlineRun(program.streams["s"], jobs, Rules(True, 1e9), about_tables)
        begins, furthest, written = [(-1, "v0")], -1, []
        left = [run.turn(1_000_000.0)]
        for number, (changes, source, seconds) in enumerate(steps, 1):
            if changes:
                write_table(folder, f"v{number}", 1 + number)
                first = -1 if furthest < 0 else -(-(furthest * 1_000_000 + 1) // (PANE * 1_000_000))
                begins = [*begins, (first, f"v{number}")] if furthest >= 0 else [(-1, f"v{number}")]
            append(folder, source, seconds)
            left.append(run.turn(1_000_000.0 + 20 * number))
            written += seconds
            furthest = max([furthest, *seconds])
        for source in "ab":
            append(folder, source, [100, 130, 180, 230])
        left.append(run.turn(2_000_000.0))
        wanted: Seen = Counter()
        for second in written:
            version = [v for first, v in begins if first <= second // PANE][-1]
            wanted[second // PANE * PANE, version] += 1
    for job in ("beside", "around"):
        found = {key: n for key, n in seen(left, job).items() if key[0] < 100}
        assert found == wanted, job


def test_what_cannot_be_read_is_told_of_once_and_the_rows_stay(tmp_path: Path) -> None:
    write_table(tmp_path, "v0", 1)
    append(tmp_path, "a", [1, 11])
    program, notes = sql(text(tmp_path)), list[str]()
    jobs = [program.jobs["beside"]]
    run = InlineRun(program.streams["s"], jobs, Rules(True, 1e9), notes.append)
    run.turn(1_000_000.0)
    (tmp_path / "names.csv").write_text("k\nx\n")
    for turn in range(3):
        append(tmp_path, "a", [21 + turn])
        run.turn(1_000_020.0 + 20 * turn)
    (note,) = notes
    assert note.startswith(f"table 'names': {tmp_path}/names.csv cannot be read: ")
    assert note.endswith("; the rows from before stay until it can be read")
    write_table(tmp_path, "mended", 9)
    append(tmp_path, "a", [31, 80, 130, 180, 230])
    left = [run.turn(1_000_200.0 + 20 * turn) for turn in range(2)]
    assert [each for each in notes if "names" in each] == [note]
    wanted = {(0, "v0"): 1, (10, "v0"): 1, (20, "v0"): 3, (30, "mended"): 1}
    found = {key: n for key, n in seen(left, "beside").items() if key[0] < 80}
    assert found == wanted


def test_one_that_is_missing_at_the_start_is_refused(tmp_path: Path) -> None:
    append(tmp_path, "a", [1])
    with pytest.raises(LanguageError, match="cannot be read"):
        sql(text(tmp_path))
    write_table(tmp_path, "v0", 1)
    program = sql(text(tmp_path))
    (tmp_path / "names.csv").unlink()
    run = InlineRun(program.streams["s"], list(program.jobs.values()), Rules(True, 1e9))
    with pytest.raises(InputError, match="cannot be read"):
        run.turn(1_000_000.0)


def test_versions_survive_a_restart_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    from muntin.api import run_on_spark

    write_table(tmp_path, "v0", 1)
    append(tmp_path, "a", [1, 11])
    append(tmp_path, "b", [2])
    first = list(run_on_spark(sql(text(tmp_path)), tmp_path / "state", spark))
    write_table(tmp_path, "v1", 2)
    append(tmp_path, "a", [12, 25, 80, 130, 180])
    append(tmp_path, "b", [13, 26, 80, 130, 180])
    (tmp_path / "state").rename(tmp_path / "moved")
    second = list(run_on_spark(sql(text(tmp_path)), tmp_path / "moved", spark))
    for job in ("beside", "around"):
        found = [
            (result.start // 1_000_000, row["version"], row["n"])
            for result in [*first, *second]
            for row in result.rows.to_pylist()
            if result.job == job and result.start < 80_000_000
        ]
        assert sorted(found)[-1] == (20, "v1", 2)
        assert all(version == "v0" for start, version, _ in found if start < 20)
    kept = sorted(path.name for path in (tmp_path / "moved/streams/s/joined").iterdir())
    # No window needs the first version any more.
    assert [name.rpartition("-")[0] for name in kept] == ["names-1"]
