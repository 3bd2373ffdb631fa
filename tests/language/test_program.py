"""Text and files to programs, and one more job to a program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from muntin.errors import InputError, LanguageError
from muntin.language.program import load, sql, with_job

STREAM = "CREATE STREAM s (t BIGINT, k VARCHAR) FROM 'x' FORMAT json TIMESTAMP t;"
JOB = "CREATE JOB j AS SELECT count(*) AS n FROM s WINDOW 1 MINUTE;"


class Words:
    def mapper(self, record: Any) -> None: ...


def test_columns_that_are_not_declared_are_those_of_the_logs(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("t,name\n1700000000,x\n")
    found = sql(f"CREATE STREAM s FROM '{tmp_path}/*.csv' FORMAT csv TIMESTAMP t").streams["s"]
    assert [(c.name, c.type) for c in found.columns] == [("t", "BIGINT"), ("name", "VARCHAR")]
    assert found.inferred


def test_python_is_found_beside_the_file(tmp_path: Path) -> None:
    (tmp_path / "beside_the_file.py").write_text("class Counts:\n    def mapper(self, r): ...\n")
    file = tmp_path / "jobs.sql"
    job = "CREATE JOB j AS PYTHON 'beside_the_file:Counts' FROM s WINDOW 1 MINUTE;"
    file.write_text(STREAM + job)
    code = load(file).jobs["j"].shape.code
    assert code is not None
    assert code.reference == "beside_the_file:Counts"
    with pytest.raises(LanguageError, match="'beside_another' cannot be imported"):
        sql(STREAM + job.replace("the_file", "another"))


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no\.sql cannot be read: No such file"):
        load(tmp_path / "no.sql")
    (tmp_path / "odd.sql").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match=r"odd\.sql is not UTF-8 text"):
        load(tmp_path / "odd.sql")


def test_one_more_job_leaves_the_others_as_they_are() -> None:
    before = sql(STREAM + JOB)
    after = with_job(before, "words", Words, stream="s", where="k <> 'x'", window="5 MINUTES")
    assert list(before.jobs) == ["j"]
    assert list(after.jobs) == ["j", "words"]
    assert after.jobs["j"] == before.jobs["j"]
    (window,) = after.jobs["words"].windows
    assert window.range == 300_000_000
    with pytest.raises(LanguageError, match="already a job named 'j'"):
        with_job(before, "j", Words, stream="s", window="5 MINUTES")
    with pytest.raises(LanguageError, match="stream"):
        with_job(before, "words", Words, stream="nowhere", window="5 MINUTES")


def test_a_text_that_the_clause_parses_itself_is_not_taken_for_a_time(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("t,seen\n2026-03-01 12:00:00,2026-03-01 12:00:00\n")
    create = f"CREATE STREAM s FROM '{tmp_path}/*.csv' FORMAT csv TIMESTAMP "
    plain = sql(create + "t").streams["s"]
    assert [c.type for c in plain.columns] == ["TIMESTAMP", "TIMESTAMP"]
    parsed = sql(create + "strptime(t, '%Y-%m-%d %H:%M:%S')").streams["s"]
    assert [c.type for c in parsed.columns] == ["VARCHAR", "TIMESTAMP"]
    with pytest.raises(LanguageError, match=r"no column 'nowhere'"):
        sql(create + "strptime(nowhere, '%Y')")
    with pytest.raises(LanguageError, match=r"no strptime\(TIMESTAMP, INTEGER"):
        sql(create + "strptime(t, 7)")
    job = "; CREATE JOB j AS SELECT count(*) FROM s WHERE split(seen, ' ')[1] = 'x' WINDOW 1 HOUR"
    expected = r'column "seen" was taken for TIMESTAMP .* CREATE STREAM s \(seen VARCHAR, …\)'
    with pytest.raises(LanguageError, match=expected):
        sql(create + "t" + job)
