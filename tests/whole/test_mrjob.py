"""Jobs of mrjob's own examples run as they are, and answer as mrjob's inline runner does."""

from __future__ import annotations

import importlib
import json
import warnings
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from muntin.errors import LanguageError
from muntin.language.program import sql
from muntin.run.inline import windows_inline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TEXT = """It was the best of times, it was the worst of times,
it was the age of wisdom, it was the age of foolishness,
it was the epoch of belief, it was the epoch of incredulity,
it was the season of Light, it was the season of Darkness
"""
JOBS = {
    "mr_word_freq_count": "MRWordFreqCount",
    "mr_count_lines_right": "MRCountLinesRight",
    "mr_wc": "MRWordCountUtility",
    "mr_next_word_stats": "MRNextWordStats",
    "mr_most_used_word": "MRMostUsedWord",
}


@pytest.fixture(autouse=True)
def imported() -> None:
    """mrjob imports modules that Python 3.12 and 3.13 leave out, and 3.11 warns of."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        pytest.importorskip("mrjob")
        importlib.import_module("mrjob.job")


def by_mrjob(module: str, name: str, lines: str) -> list[Any]:
    """The pairs that mrjob's runner gives, as JSON."""
    found = importlib.import_module(f"mrjob.examples.{module}")
    job = getattr(found, name)(args=["-r", "inline", "--no-conf", "-"])
    job.sandbox(stdin=BytesIO(lines.encode()))
    with job.make_runner() as runner:
        runner.run()
        return sorted(json.dumps(pair) for pair in job.parse_output(runner.cat_output()))


def text(folder: Path, job: str, window: str) -> str:
    return (
        f"CREATE STREAM lines FROM '{folder}/{{source}}.txt' FORMAT text TIMESTAMP 0;"
        f"CREATE JOB job AS PYTHON 'mrjob.examples.{job}' FROM lines WINDOW {window};"
    )


def pairs(rows: list[dict[str, str]], module: str) -> list[str]:
    """Rows as the pairs that mrjob gives; the protocol of one job leaves out the key."""
    values = [(json.loads(row["key"]), json.loads(row["value"])) for row in rows]
    if module == "mr_most_used_word":
        values = [(None, value) for _, value in values]
    return sorted(map(json.dumps, values))


@pytest.mark.parametrize("module", JOBS)
def test_examples_of_mrjob(module: str, tmp_path: Path) -> None:
    (tmp_path / "book.txt").write_text(TEXT)
    program = sql(text(tmp_path, f"{module}:{JOBS[module]}", "1 DAY"))
    rows = [r for windows in windows_inline(program, pytest.fail) for r in windows.results()]
    (result,) = rows
    assert pairs(result.rows.to_pylist(), module) == by_mrjob(module, JOBS[module], TEXT)


def test_they_run_continuously(tmp_path: Path, spark: SparkSession) -> None:
    from muntin.api import run_on_spark

    (tmp_path / "book.txt").write_text(TEXT)
    program = sql(text(tmp_path, "mr_word_freq_count:MRWordFreqCount", "2 RECORDS"))
    results = list(run_on_spark(program, tmp_path / "state", spark))
    lines = TEXT.splitlines(keepends=True)
    for number, result in enumerate(results):
        piece = "".join(lines[2 * number : 2 * number + 2])
        module = "mr_word_freq_count"
        assert pairs(result.rows.to_pylist(), module) == by_mrjob(module, JOBS[module], piece)
    assert len(results) == 2


@pytest.mark.parametrize(
    ("job", "message"),
    [
        ("mr_jar_step_example:MRJarStepExample", "a step of MRJarStepExample is a "),
        (
            "mr_words_containing_u_freq_count:MRWordsContainingUFreqCount",
            "MRWordsContainingUFreqCount uses mapper_pre_filter, which cannot run here",
        ),
    ],
)
def test_steps_that_are_not_python_are_refused(job: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(LanguageError) as found:
        sql(text(tmp_path, job, "1 DAY"))
    assert message in str(found.value)
