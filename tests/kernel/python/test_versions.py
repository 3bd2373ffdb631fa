"""Versions of code: the same in every process, another when the code would answer otherwise."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from muntin.language.program import load, sql, with_job
from muntin.model.jobs import Program
from muntin.run.inline import windows_inline
from tests.oracle import write_logs
from tests.whole.test_python_jobs import STREAM


def make(factor: int) -> type:
    class Job:
        window = "1 MINUTE"

        def mapper(self, _: None, record: Any) -> Iterator[Any]:
            yield "n", record["n"] * factor

    return Job


NOTEBOOK = """
class Job:
    window = "1 MINUTE"
    def mapper(self, _, record):
        yield "n", helper(record["n"])
"""


def notebook(space: dict[str, Any], cell: str) -> None:
    exec(cell, space)


def value(program: Program) -> str:
    (result,) = [r for each in windows_inline(program, pytest.fail) for r in each.results()]
    return str(result.rows["value"][0].as_py())


def test_closures_are_part_of_the_code(tmp_path: Path) -> None:
    write_logs(tmp_path, {"a": [{"t": 1, "k": "k", "s": None, "n": 7, "x": None}]})
    stream = sql(STREAM.format(folder=tmp_path, slack=""))
    programs = [with_job(stream, "j", make(factor), stream="logs") for factor in (1, 2, 2)]
    assert [value(program) for program in programs] == ["7", "14", "14"]
    one, two, again = (program.jobs["j"].shape.id for program in programs)
    assert one != two
    assert two == again


def test_helpers_that_are_defined_again_are_used(tmp_path: Path) -> None:
    write_logs(tmp_path, {"a": [{"t": 1, "k": "k", "s": None, "n": 7, "x": None}]})
    stream = sql(STREAM.format(folder=tmp_path, slack=""))
    space: dict[str, Any] = {"__name__": "__main__"}
    notebook(space, "def helper(n):\n    return n")
    notebook(space, NOTEBOOK)
    before = with_job(stream, "j", space["Job"], stream="logs")
    assert value(before) == "7"
    notebook(space, "def helper(n):\n    return n + 1")
    after = with_job(stream, "j", space["Job"], stream="logs")
    assert value(after) == "8"
    assert before.jobs["j"].shape.id != after.jobs["j"].shape.id


MODULE = """
import re
from dataclasses import dataclass
from helping import Helper, TABLE

WORDS = re.compile("[a-z]+")
NAMES = {"a", "b", "c", "d"}

@dataclass(frozen=True)
class Key:
    a: str = "x"

class Words:
    window = "1 MINUTE"
    names = frozenset(["p", "q", "r"])

    def mapper(self, _, line):
        if line in {"u", "v", "w"} or line in NAMES:
            yield Key(line), Helper().help(TABLE[line])
        yield from ((word, 1) for word in WORDS.findall(line))
"""
HELPING = """
from threading import Lock
TABLE = {"u": len, "v": [1, 2], "w": lambda x: x}
class Helper:
    def help(self, what):
        return what if isinstance(what, list) else HELPS
HELPS = 5
"""


def version(folder: Path, seed: str) -> str:
    imported = "from muntin.language.program import load"
    text = f"{imported}; print(load(r'{folder}/jobs.sql').jobs['words'].shape.id)"
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONDONTWRITEBYTECODE": "1"}
    ran = subprocess.run(
        [sys.executable, "-c", text], env=environment, capture_output=True, text=True, check=True
    )
    return ran.stdout.strip()


def test_versions_are_the_same_in_every_process(tmp_path: Path) -> None:
    (tmp_path / "versioned.py").write_text(MODULE)
    (tmp_path / "helping.py").write_text(HELPING)
    (tmp_path / "jobs.sql").write_text(
        f"CREATE STREAM lines FROM '{tmp_path}/*.log' FORMAT text TIMESTAMP line;"
        "CREATE JOB words AS PYTHON 'versioned:Words' FROM lines;"
    )
    first = version(tmp_path, "1")
    assert {version(tmp_path, seed) for seed in ("2", "3")} == {first}
    (tmp_path / "helping.py").write_text(HELPING.replace("HELPS = 5", "HELPS = 6"))
    assert version(tmp_path, "1") != first


def test_versions_of_a_loaded_program_do_not_depend_on_the_run(tmp_path: Path) -> None:
    (tmp_path / "versioned_twice.py").write_text(MODULE.replace("helping", "helping_twice"))
    (tmp_path / "helping_twice.py").write_text(HELPING)
    (tmp_path / "jobs.sql").write_text(
        f"CREATE STREAM lines FROM '{tmp_path}/*.log' FORMAT text TIMESTAMP line;"
        "CREATE JOB words AS PYTHON 'versioned_twice:Words' FROM lines;"
    )
    ids = {load(tmp_path / "jobs.sql").jobs["words"].shape.id for _ in range(2)}
    assert len(ids) == 1
