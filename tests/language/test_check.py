"""Statements to streams and jobs: names, patterns, formats, times and windows."""

from __future__ import annotations

import pytest

from muntin.errors import LanguageError
from muntin.language.check import check
from muntin.model.records import Column
from muntin.model.streams import Stream
from tests.language.cases import (
    SHOP,
    Mistake,
    Pair,
    facts_of_stream,
    mistakes,
    pairs,
    program,
)


@pytest.mark.parametrize("case", mistakes("check_errors.sql"), ids=lambda case: case.text)
def test_mistake_is_shown_at_its_place(case: Mistake) -> None:
    with pytest.raises(LanguageError) as raised:
        program(case.text)
    assert str(raised.value) == case.shown()


@pytest.mark.parametrize("case", pairs("streams.sql"), ids=lambda case: case.text)
def test_stream_becomes(case: Pair) -> None:
    *_, stream = program(case.text).streams.values()
    facts = facts_of_stream(stream)
    assert {kind: facts[kind] for kind in case.facts} == case.facts


def test_files_are_looked_at_only_for_columns_not_declared() -> None:
    seen = []

    def columns_of(stream: Stream) -> tuple[Column, ...]:
        seen.append(stream.name)
        return (Column("ts", "TIMESTAMP"),)

    check(f"{SHOP}; CREATE STREAM other FROM 'x' FORMAT json TIMESTAMP ts", columns_of)
    assert seen == ["other"]


def test_jobs_are_dropped_and_defined_again_in_order() -> None:
    text = """
    CREATE JOB a AS SELECT count(*) AS n FROM shop WINDOW 1 DAY;
    CREATE JOB b AS SELECT count(*) AS n FROM shop WINDOW 1 DAY;
    DROP JOB A;
    CREATE JOB a AS SELECT sum(ms) AS s FROM shop WINDOW 1 DAY;
    """
    jobs = program(text).jobs
    assert list(jobs) == ["b", "a"]
    assert jobs["a"].outputs[0].name == "s"


def test_names_may_be_of_any_script() -> None:
    text = """
    CREATE STREAM логи (время TIMESTAMP, 店 VARCHAR) FROM 'ж/*' FORMAT json TIMESTAMP время;
    CREATE JOB "топ-10" AS SELECT 店, count(*) AS số FROM логи GROUP BY 店 WINDOW 1 HOUR;
    """
    job = program(text).jobs["топ-10"]
    assert [output.name for output in job.outputs] == ["店", "số"]
    assert job.stream == "логи"


def test_marks_and_spaces_of_other_editors_are_no_text() -> None:
    text = "\ufeffCREATE JOB j AS\r\nSELECT\u00a0count(*)\tAS n\r\nFROM shop WINDOW 1\u00a0DAY;\r\n"
    assert program(text).jobs["j"].outputs[0].name == "n"


@pytest.mark.parametrize("text", ["", "\n \n", "-- nothing yet\n"])
def test_nothing_is_an_error(text: str) -> None:
    with pytest.raises(LanguageError, match=r"^line 1, column 1: nothing is defined here"):
        check(text, lambda stream: ())


def test_caret_follows_what_a_terminal_shows() -> None:
    """Wide characters take two places, marks none, and tabs stay tabs."""
    text = (
        "CREATE JOB j AS\r\nSELECT\t'日本' || 'e\u0301' AS x, max(nothing) FROM shop WINDOW 1 DAY"
    )
    with pytest.raises(LanguageError) as raised:
        program(text)
    assert (raised.value.line, raised.value.column) == (2, 31)
    first, line, carets = str(raised.value).split("\n")
    assert first.startswith("line 2, column 31: ")
    assert line == "  2 | SELECT\t'日本' || 'e\u0301' AS x, max(nothing) FROM shop WINDOW 1 DAY"
    assert carets == "    |       \t                        ^^^^^^^"


def test_streams_from_agents_leave_to_them_what_they_do_not_say() -> None:
    asked = []

    def columns_of(stream: Stream) -> tuple[Column, ...]:
        return (Column("ts", "TIMESTAMP"), Column("ms", "BIGINT"))

    def settings_of(stream: str, agents: tuple[str, ...]) -> dict[str, str]:
        asked.append((stream, agents))
        return {"FORMAT": "json", "TIMESTAMP": "epoch_ms(ms)", "SLACK": "5 SECONDS"}

    def read(text: str) -> Stream:
        program = check(text, columns_of, settings_of=settings_of)
        return program.streams["shop"]

    places = "FROM AGENTS 'web01:7070', 'agents.txt'"
    stream = read(f"CREATE STREAM shop {places};")
    assert stream.agents == ("web01:7070", "agents.txt")
    assert (stream.format.kind, stream.slack_us, stream.patterns) == ("json", 5_000_000, ())
    assert stream.timestamp == 'epoch_ms("ms")'
    assert asked == [("shop", stream.agents)]
    assert read(f"CREATE STREAM shop {places} SLACK 1 SECOND").slack_us == 1_000_000
    assert read(f"CREATE STREAM shop {places} FORMAT csv TIMESTAMP ts").format.kind == "csv"
    assert len(asked) == 2
    with pytest.raises(LanguageError, match="this is no address of an agent; expected 'host:port'"):
        read("CREATE STREAM shop FROM AGENTS 'web01:x'")
    with pytest.raises(LanguageError, match="expected a quoted address 'host:port'"):
        read("CREATE STREAM shop FROM AGENTS web01")
    with pytest.raises(LanguageError, match="agents say no format for stream 'shop'"):
        check(f"CREATE STREAM shop {places}", columns_of)
