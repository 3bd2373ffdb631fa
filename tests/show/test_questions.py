"""Questions over stored results: LATEST, and mistakes at their place."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from muntin.errors import LanguageError
from tests.control.running import SQL, Running, running
from tests.show.test_shell import said
from tests.waiting import wait_for


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("questions")) as program:
        program.write(1, 2, 3, 4)
        wait_for(lambda: len(program.results("sums")) == 3)
        yield program


def test_questions_are_refused_at_their_place(here: Running) -> None:
    for text, place, message in (
        ("SELECT product, FROM sums WHERE", (1, 27), "'WHERE' in this, or something is missing"),
        ("SELECT 1;\n SELECT 'ü', m FROM sums", (2, 14), "there is no column 'm'"),
        (
            "SELECT n, user FROM sums",
            (1, 11),
            "there is no column 'user'; known are c2, emitted_at",
        ),
        ("SELECT 'user', s.n, user FROM sums s", (1, 21), "there is no column 'user'"),
        ("SELECT produc FROM sums", (1, 8), r"no column 'produc'; did you mean product\?"),
        ("SELECT m FROM LATEST(sums)", (1, 8), "no column 'm'; known are n, product, result_area"),
        ("SELECT *\nFROM sun", (2, 6), "there are no results of a job 'sun'; known are sums"),
        ("SELECT * FROM LATEST(sums) JOIN x ON z", (1, 33), "no results of a job 'x'"),
        ("SELEC 1", (1, 1), "unknown statement 'SELEC'; did you mean SELECT?"),
        ("SHOW TABLES", (1, 1), "expected SHOW JOBS or SHOW STREAMS"),
        ("FROM LATEST()", (1, 6), r"expected the name of a job, .* LATEST\(x, 1 HOUR\)"),
        ("FROM LATEST(su)", (1, 13), "there are no results of a job 'su'; did you mean sums?"),
        ("FROM LATEST(sums, 1 DAY)", (1, 19), "job 'sums' has no window '1 day'; known are"),
    ):
        with pytest.raises(LanguageError, match=message) as caught:
            said(here, text)
        assert (caught.value.line, caught.value.column) == place, text


def test_the_newest_result_is_a_table(here: Running) -> None:
    told = said(here, "SELECT * FROM LATEST(Sums)")
    for part in ("pen", "result_start", "2026-03-01T12:00:03Z", "result_window", "1 second"):
        assert part in told
    text = "SELECT l.n, result_area AS area, (SELECT count(*) FROM sums) AS windows\n"
    for call in ("LATEST(sums)", "latest(sums, 1 second)", "LATEST ( sums, '1 second' )"):
        assert "│ 3 │    1 │       3 │" in said(here, f"{text} FROM {call} l")


def test_of_several_windows_it_says_which(tmp_path: Path) -> None:
    with running(tmp_path, sql=SQL.replace("1 SECOND", "1 SECOND, 2 SECONDS")) as program:
        program.write(1, 2, 3, 4)
        wait_for(lambda: len(program.results("sums", "latest")) == 2)
        with pytest.raises(LanguageError, match=r"several windows; .* LATEST\(sums, '1 second'\)"):
            said(program, "SELECT * FROM LATEST(sums)")
        for window, answer in {"1 SECOND": "│ 3 │", "2 SECONDS": "│ 5 │"}.items():
            assert answer in said(program, f"SELECT n FROM LATEST(sums, {window})")


def test_what_is_open_is_no_result_yet(tmp_path: Path) -> None:
    sql = SQL.replace("1 SECOND", "2 SECONDS EMIT CHANGES")
    with running(tmp_path, sql=sql) as program:
        program.write(0, 1, 2, 3, 4, 5)
        wait_for(lambda: len(program.results("sums")) >= 3)
        assert "│ 5 │" in said(program, "SELECT n FROM LATEST(sums)")
        newest = "SELECT n FROM sums ORDER BY window_end DESC LIMIT 1"
        assert "│ 9 │" in said(program, newest), "2026-03-01 12:00:04 is open"
