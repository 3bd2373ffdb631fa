"""Jobs of mrjob's own examples run as they are, and answer as mrjob's inline runner does."""

from __future__ import annotations

import gzip
import importlib
import json
import os
import sys
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
    return by_class(getattr(found, name), lines)


def by_class(job_class: Any, lines: str, *args: str) -> list[Any]:
    job = job_class(args=["-r", "inline", "--no-conf", *args, "-"])
    job.sandbox(stdin=BytesIO(lines.encode()))
    with job.make_runner() as runner:
        runner.run()
        return sorted(json.dumps(pair) for pair in job.parse_output(runner.cat_output()))


def text(folder: Path, job: str, window: str) -> str:
    return (
        f"CREATE STREAM lines FROM '{folder}/{{source}}.txt' FORMAT text TIMESTAMP 0;"
        f"CREATE JOB job AS PYTHON 'mrjob.examples.{job}' FROM lines WINDOW {window};"
    )


def pairs(rows: list[dict[str, str]]) -> list[str]:
    """Rows as the pairs that mrjob gives."""
    values = [(json.loads(row["key"]), json.loads(row["value"])) for row in rows]
    return sorted(map(json.dumps, values))


@pytest.mark.parametrize("module", JOBS)
def test_examples_of_mrjob(module: str, tmp_path: Path) -> None:
    (tmp_path / "book.txt").write_text(TEXT)
    program = sql(text(tmp_path, f"{module}:{JOBS[module]}", "1 DAY"))
    rows = [r for windows in windows_inline(program, pytest.fail) for r in windows.results()]
    (result,) = rows
    assert pairs(result.rows.to_pylist()) == by_mrjob(module, JOBS[module], TEXT)


def test_they_run_continuously(tmp_path: Path, spark: SparkSession) -> None:
    from muntin.api import run_on_spark

    (tmp_path / "book.txt").write_text(TEXT)
    program = sql(text(tmp_path, "mr_word_freq_count:MRWordFreqCount", "2 RECORDS"))
    results = list(run_on_spark(program, tmp_path / "state", spark))
    lines = TEXT.splitlines(keepends=True)
    for number, result in enumerate(results):
        piece = "".join(lines[2 * number : 2 * number + 2])
        module = "mr_word_freq_count"
        assert pairs(result.rows.to_pylist()) == by_mrjob(module, JOBS[module], piece)
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


JOB = """
from mrjob.job import MRJob
from mrjob.protocol import *
from mrjob.step import MRStep


class Job(MRJob):
    INPUT_PROTOCOL = {input}
    INTERNAL_PROTOCOL = {internal}
    OUTPUT_PROTOCOL = {output}

    def configure_args(self):
        super().configure_args()
        self.add_passthru_arg("--least", type=int, default=1)

    def mapper(self, key, value):
        yield (str(key)[:1], str(value)[:1]), {{"n": (1, 2)}}

    def reducer(self, key, values):
        count = sum(len(value["n"]) for value in values)
        if count > self.options.least:
            yield type(key).__name__ + "-".join(map(str, key)), count

    def again(self, key, count):
        yield key, str(count)

    def steps(self):
        return [MRStep(mapper=self.mapper, reducer=self.reducer), MRStep(mapper=self.again)]
"""


@pytest.mark.parametrize(
    ("protocols", "lines"),
    [
        (("RawValueProtocol", "JSONProtocol", "JSONProtocol"), "a b\nb c\nab\n"),
        (("JSONProtocol", "JSONProtocol", "JSONValueProtocol"), '"a"\t[1]\n"a"\t[2]\n"b"\t0\n'),
        (("JSONValueProtocol", "PickleProtocol", "ReprProtocol"), '{"x": 1}\n[2]\n[3]\n'),
        (("RawProtocol", "ReprProtocol", "RawProtocol"), "k\tv\nk\tw\nl\tv\n"),
        (("ReprValueProtocol", "JSONProtocol", "RawValueProtocol"), "(1, 2)\n'x'\n"),
    ],
)
@pytest.mark.parametrize("args", [(), ("--least", "3")])
def test_protocols_and_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    protocols: tuple[str, str, str], lines: str, args: tuple[str, ...],
) -> None:  # fmt: skip
    names = dict(zip(("input", "internal", "output"), protocols, strict=True))
    name = f"job_{abs(hash((protocols, args)))}"
    (tmp_path / f"{name}.py").write_text(JOB.format(**names))
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "book.txt").write_text(lines)
    wanted = by_class(importlib.import_module(name).Job, lines, *args)
    called = " ".join([f"{name}:Job", *args])
    program = sql(
        f"CREATE STREAM lines FROM '{tmp_path}/{{source}}.txt' FORMAT text TIMESTAMP 0;"
        f"CREATE JOB job AS PYTHON '{called}' FROM lines WINDOW 1 DAY;"
    )
    left = windows_inline(program, pytest.fail)
    rows = [row for w in left for result in w.results() for row in result.rows.to_pylist()]
    # The runner leaves the end of the line in texts that no protocol takes apart.
    assert pairs(rows) == [pair.replace("\\n", "") for pair in wanted]


@pytest.mark.parametrize(
    ("job", "message"),
    [
        ("job_wrong:Job --most 3", "cannot be made: ValueError: unrecognized arguments: --most"),
        ("job_wrong:Job --least x", "argument --least: invalid int value: 'x'"),
        ("job_wrong:Needs", "without arguments: ValueError: the following arguments are required"),
        ("job_wrong:Raw", "mapper_raw of job_wrong:Raw is given files, and WHERE chooses records"),
        ("job_wrong:Plain 3", "takes no arguments; expected 'module:Class' alone"),
    ],
)
def test_what_cannot_be_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, job: str, message: str
) -> None:
    names = dict.fromkeys(("input", "internal", "output"), "JSONProtocol")
    more = (
        "class Raw(MRJob):\n    def mapper_raw(self, path, uri):\n        yield path, uri\n"
        "class Needs(Job):\n    def configure_args(self):\n"
        "        super().configure_args()\n"
        "        self.add_passthru_arg('--most', type=int, required=True)\n"
        "class Plain:\n    def mapper(self, _, line):\n        yield line, 1\n"
    )
    (tmp_path / "job_wrong.py").write_text(JOB.format(**names) + more)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "job_wrong", raising=False)
    with pytest.raises(LanguageError) as found:
        sql(
            f"CREATE STREAM lines FROM '{tmp_path}/{{source}}.txt' FORMAT text TIMESTAMP 0;"
            f"CREATE JOB job AS PYTHON '{job}' FROM lines WHERE line <> '' WINDOW 1 DAY;"
        )
    assert message in str(found.value)


FILES = """
from mrjob.compat import jobconf_from_env
from mrjob.job import MRJob


class Sizes(MRJob):
    JOBCONF = {"sizes.unit": 2}

    def mapper_raw(self, path, uri):
        with open(path, "rb") as file:
            text = file.read()
        unit = int(jobconf_from_env("sizes.unit")) * int(jobconf_from_env("sizes.more", 1))
        yield uri.rpartition("/")[2], len(text) // unit
        yield "lines", text.count(b"\\n")


class Lengths(MRJob):
    def mapper(self, _, line):
        yield len(line.strip()), 1

    def combiner(self, length, ones):
        yield length, sum(ones)

    def reducer(self, length, ones):
        yield jobconf_from_env("kind.of", "none") + str(length), sum(ones)
"""


def with_files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Two files with blank lines, one of them compressed."""
    (folder / "of_files.py").write_text(FILES)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "of_files", raising=False)
    texts = {"a.txt": b"\none\r\n\n  \ntwo\n\n", "b.txt.gz": b"\r\nthree\n\nfour\r"}
    for name, text in texts.items():
        packed = gzip.compress(text) if name.endswith(".gz") else text
        (folder / name).write_bytes(packed)
    return [folder / name for name in texts]


def of_files(folder: Path, job: str) -> str:
    return (
        f"CREATE STREAM lines FROM '{folder}/*.txt*' FORMAT text TIMESTAMP 0;"
        f"CREATE JOB job AS PYTHON '{job}' FROM lines WINDOW 1 DAY;"
    )


@pytest.mark.parametrize(
    "job",
    ["Sizes", "Sizes --jobconf sizes.more=3", "Lengths", "Lengths -D kind.of=x"],
)
def test_files_settings_and_blank_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, job: str
) -> None:
    paths = with_files(tmp_path, monkeypatch)
    name, *args = job.split()
    if name == "Sizes":
        paths.pop().unlink()  # some runners of mrjob unpack a file that is compressed, some do not
    job_class = getattr(importlib.import_module("of_files"), name)
    given = job_class(args=["-r", "inline", "--no-conf", *args, *map(str, paths)])
    with given.make_runner() as runner:
        runner.run()
        wanted = sorted(json.dumps(p) for p in given.parse_output(runner.cat_output()))
    left = windows_inline(sql(of_files(tmp_path, f"of_files:{job}")), pytest.fail)
    rows = [row for w in left for result in w.results() for row in result.rows.to_pylist()]
    assert pairs(rows) == wanted
    assert not [name for name in os.environ if name.startswith(("sizes_", "kind_", "map_input"))]


def test_a_mapper_knows_the_file_on_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: SparkSession
) -> None:
    from muntin.api import run_on_spark

    paths = with_files(tmp_path, monkeypatch)
    job = "mrjob.examples.mr_count_lines_by_file:MRCountLinesByFile"
    (result,) = run_on_spark(sql(of_files(tmp_path, job)), tmp_path / "state", spark)
    lines = [path.absolute().as_uri() for path in paths]
    assert pairs(result.rows.to_pylist()) == pairs_of({lines[0]: 6, lines[1]: 4})
    program = sql(of_files(tmp_path, "of_files:Sizes"))
    (result,) = run_on_spark(program, tmp_path / "sizes", spark)
    sizes = [("a.txt", 7), ("b.txt.gz", 7), ("lines", 3), ("lines", 6)]
    assert pairs(result.rows.to_pylist()) == sorted(map(json.dumps, sizes))


def pairs_of(counts: dict[str, int]) -> list[str]:
    return sorted(json.dumps(pair) for pair in counts.items())


def test_a_window_without_pairs_ends_no_job_of_several_steps(
    tmp_path: Path, spark: SparkSession
) -> None:
    from muntin.api import run_on_spark

    lines = [{"t": 1, "k": "no"}, {"t": 11, "k": "yes yes"}, {"t": 12, "k": "yes"}]
    (tmp_path / "a.log").write_text("".join(json.dumps(line) + "\n" for line in lines))
    program = sql(
        f"CREATE STREAM s FROM '{tmp_path}/*.log' FORMAT text "
        "TIMESTAMP CAST(line->>'t' AS BIGINT) SLACK 0 SECONDS;"
        "CREATE JOB job AS PYTHON 'mrjob.examples.mr_most_used_word:MRMostUsedWord' FROM s "
        "WHERE contains(line, 'yes') WINDOW 10 SECONDS;"
    )
    (result,) = run_on_spark(program, tmp_path / "state", spark)
    assert result.start == 10_000_000
    assert [json.loads(row["value"]) for row in result.rows.to_pylist()] == ["yes"]
