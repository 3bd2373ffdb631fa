"""Input of which nothing can be read is refused, or told of for as long as it goes on."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from muntin.errors import InputError
from muntin.language.program import sql
from muntin.run import unread
from muntin.run.inline import InlineRun, run_inline
from muntin.run.loop import Rules

START = 1_700_000_000


def line(number: int, **more: object) -> str:
    return json.dumps({"t": START + number, "n": number} | more) + "\n"


def program(folder: Path, columns: str = "(t BIGINT, n BIGINT)", rest: str = "FORMAT json") -> str:
    return (
        f"CREATE STREAM logs {columns} FROM '{folder}/{{source}}.log' {rest} TIMESTAMP t; "
        "CREATE JOB job AS SELECT sum(n) AS n, count(*) AS records FROM logs WINDOW 1 DAY;"
    )


def answers(text: str) -> tuple[list[object], list[str]]:
    notes: list[str] = []
    rows = [
        row for result in run_inline(sql(text), notes.append) for row in result.rows.to_pylist()
    ]
    return rows, notes


@pytest.mark.parametrize(
    ("rest", "lines", "said"),
    [
        ("FORMAT json", ["hello\n"], "the only row is bad; FORMAT json.*: it is not a JSON object"),
        ("FORMAT json", ["hello\n"] * 3, r"all 3 rows are bad;.*log, line 1: .*: hello$"),
        ("FORMAT json", [line(1, n="x")] * 2, 'all 2 rows are bad;.*column "n" is not BIGINT'),
        ("FORMAT regex '(?P<t>[0-9]+) (?P<n>.*)'", ["a b\n"] * 2, "does not match FORMAT regex"),
        ("FORMAT csv (HEADER false)", ["1,2\n"], "gives no time, as the row has none"),
    ],
)
def test_finite_input_without_a_good_row_is_refused(
    tmp_path: Path, rest: str, lines: list[str], said: str
) -> None:
    (tmp_path / "web-1.log").write_text("".join(lines))
    with pytest.raises(InputError, match=f"^stream 'logs': .*{said}") as raised:
        answers(program(tmp_path, rest=rest))
    assert "\n" not in str(raised.value)
    (tmp_path / "web-1.log").write_text("")  # nothing is not wrong
    assert answers(program(tmp_path, rest=rest)) == ([], [])


def test_a_web_log_of_another_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / "web-1.log").write_text('1.2.3.4 - - [x] "GET / HTTP/1.1" 200 5\n' * 2)
    text = (
        program(tmp_path, "", "FORMAT combined").replace("TIMESTAMP t", "").replace("sum(n)", "1")
    )
    with pytest.raises(InputError, match=r"all 2 rows are bad; FORMAT combined.* not match FORMAT"):
        answers(text)


def test_one_good_row_is_enough_and_sources_without_one_are_told(tmp_path: Path) -> None:
    (tmp_path / "web-1.log").write_text(line(1) + "x\n")
    (tmp_path / "web-2.log").write_text("x\n" * 3)
    rows, notes = answers(program(tmp_path))
    assert rows == [{"n": 1, "records": 1}]
    assert notes[-1] == "stream 'logs': all 3 rows of source 'web-2' were bad"
    assert not any("'web-1'" in note for note in notes)


def test_a_declared_column_that_no_record_has_is_told(tmp_path: Path) -> None:
    columns = "(t BIGINT, n BIGINT, stauts BIGINT, user VARCHAR, unused BIGINT)"
    text = program(tmp_path, columns).replace("sum(n)", "sum(stauts) AS s, max(user) AS u, sum(n)")
    (tmp_path / "web-1.log").write_text(line(1, status=2, user=None) * 20)
    assert answers(text)[1] == [
        "stream 'logs': no record has column 'stauts'; did you mean status?"
    ]
    (tmp_path / "web-1.log").write_text(line(1, status=2) * 20 + line(1, stauts=2, user="x"))
    assert answers(text)[1] == []


class Following:
    """A run that follows the logs of a folder, and what it has told so far."""

    def __init__(self, text: str) -> None:
        self.notes: list[str] = []
        (stream,) = (found := sql(text)).streams.values()
        jobs = list(found.jobs.values())
        self.run = InlineRun(stream, jobs, Rules(True), self.notes.append)
        self.now = START + 1000.0

    def turn(self) -> list[str]:
        self.now += 1
        self.notes.clear()
        self.run.turn(self.now)
        return list(self.notes)


def test_rows_that_are_all_bad_are_told_while_they_last(tmp_path: Path) -> None:
    log = tmp_path / "web-1.log"
    log.touch()
    following = Following(program(tmp_path))

    def written(text: str) -> list[str]:
        with log.open("a") as file:
            file.write(text)
        return following.turn()

    assert len(written("x\n")) == 1
    (summary, row) = written("x\n" * 20)
    assert re.match(
        "stream 'logs': the last 21 rows of source 'web-1' were all bad; FORMAT", summary
    )
    assert row.endswith("it is not a JSON object: x")
    assert [written("x\n" * 20) for _ in range(5)] == [[]] * 5
    assert written("x\n" * 900)[0].startswith("stream 'logs': the last 1,021 rows of source")
    assert written(line(1)) == []
    assert len(written("x\n")) == 1


def test_a_missing_column_is_told_once_while_following(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unread, "_ENOUGH", 10)
    log = tmp_path / "web-1.log"
    log.write_text(line(1, m=1))
    following = Following(
        program(tmp_path, "(t BIGINT, n BIGINT, nn BIGINT)").replace("(n)", "(nn)")
    )
    told = []
    for _ in range(4):
        told.append(following.turn())
        with log.open("a") as file:
            file.write(line(2) * 5)
    assert told == [[], [], ["stream 'logs': no record has column 'nn'; did you mean n?"], []]
