"""The command line as a user meets it: right input, wrong input, formats."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from muntin.cli import main
from muntin.spark import gateway
from muntin.store.hold import locked
from muntin.wire.keys import make_keys, read_keys
from tests.agent.serving import serving
from tests.waiting import PATIENCE

SQL = """
CREATE STREAM hits FROM '{folder}/logs/{{source}}.jsonl' FORMAT json TIMESTAMP ts{options};
CREATE JOB paths AS SELECT path, count(*) AS n, avg(ms) AS ms FROM hits
GROUP BY path WINDOW 1 MINUTE;
CREATE JOB totals AS SELECT count(*) AS n FROM hits WINDOW 5 MINUTES;
"""
ROWS = [
    {"ts": "2026-03-01T12:00:03Z", "path": "/a", "ms": 1},
    {"ts": "2026-03-01T12:00:04Z", "path": "/b", "ms": 2},
    {"ts": "2026-03-01T12:01:05Z", "path": "/a", "ms": 4},
]


@pytest.fixture
def sql(tmp_path: Path) -> Path:
    (tmp_path / "logs").mkdir()
    write(tmp_path, [json.dumps(row) for row in ROWS])
    return with_options(tmp_path, "")


def write(folder: Path, lines: list[str]) -> None:
    (folder / "logs" / "web-1.jsonl").write_text("".join(line + "\n" for line in lines))


def with_options(folder: Path, options: str) -> Path:
    file = folder / "jobs.sql"
    file.write_text(SQL.format(folder=folder, options=options))
    return file


def muntin(capsys: pytest.CaptureFixture[str], *args: object) -> tuple[int, str, str]:
    """Exit code, output and messages of one call."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["muntin", *map(str, args)])
        patch.setenv("COLUMNS", "200")
        code = 0
        try:
            main()
        except SystemExit as done:
            code = int(done.code or 0)
    captured = capsys.readouterr()
    return code, captured.out, " ".join(captured.err.split())


def test_try_as_json(sql: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = muntin(capsys, "try", sql, "--job", "paths", "--format", "json")
    assert (code, err) == (0, "")
    assert json.loads(out.splitlines()[0]) == {
        "job": "paths",
        "window_name": "1 minute",
        "window_start": "2026-03-01T12:00:00Z",
        "window_end": "2026-03-01T12:01:00Z",
        "path": "/a",
        "n": 1,
        "ms": 1.0,
        "records_read": 2,
        "records_bad": 0,
        "records_late": 0,
        "records_failed": 0,
        "c2": {"area": 1.0, "time": 1.0, "space": 1.0, "reason": "complete"},
    }
    assert len(out.splitlines()) == 3


def test_try_as_csv_and_table(sql: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = muntin(capsys, "try", sql, "--job", "totals", "--format", "csv")
    assert out.splitlines() == [
        "job,window_name,window_start,window_end,n,records_read,records_bad,records_late,"
        "records_failed,c2_area,c2_time,c2_space,c2_reason",
        "totals,5 minutes,2026-03-01T12:00:00Z,2026-03-01T12:05:00Z,3,3,0,0,0,1.0,1.0,1.0,complete",
    ]
    _, out, _ = muntin(capsys, "try", sql)
    assert "2026-03-01 12:00:00 – 12:01:00 │ /a" in out
    assert "totals" in out


def test_bad_and_late_records_are_told(sql: Path, capsys: pytest.CaptureFixture[str]) -> None:
    late = json.dumps({"ts": "2026-03-01T11:58:00Z", "path": "/late", "ms": 1})
    write(sql.parent, [*map(json.dumps, ROWS), "nonsense", late])
    with_options(sql.parent, " SLACK 10 SECONDS")
    code, out, err = muntin(capsys, "try", sql, "--job", "paths", "--format", "json")
    assert code == 0
    assert "/late" not in out
    assert "a row does not fit stream 'hits'" in err
    assert "nonsense" in err
    assert "1 row was bad; records read: 4" in err
    assert "1 record came too late; SLACK 65 SECONDS would have kept them" in err
    with_options(sql.parent, " SLACK 65 SECONDS")
    _, out, _ = muntin(capsys, "try", sql, "--job", "paths", "--format", "json")
    assert "/late" in out


def test_bad_rows_can_be_refused(sql: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(sql.parent, [json.dumps(ROWS[0]), '{"ts": "never", "path": 1}'])
    with_options(sql.parent, " ON BAD ROW FAIL")
    code, out, err = muntin(capsys, "try", sql)
    assert (code, out) == (1, "")
    assert "error:" in err
    assert '{"ts": "never", "path": 1}' in err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("CREATE JOB j AS SELECT count(*) FROM hist WINDOW 1 HOUR", "unknown stream 'hist'"),
        ("", "nothing is defined here"),
        (
            "CREATE STREAM s FROM 'none/*.log' FORMAT json TIMESTAMP ts",
            "no file with content matches",
        ),
    ],
)
def test_wrong_files_are_refused(
    text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "wrong.sql").write_text(text)
    code, out, err = muntin(capsys, "try", tmp_path / "wrong.sql")
    assert (code, out) == (1, "")
    assert said in err


def test_wrong_arguments_are_refused(
    sql: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        "unknown job 'nope'; the file defines paths, totals"
        in muntin(capsys, "try", sql, "--job", "nope")[2]
    )
    assert "cannot be read: No such file" in muntin(capsys, "try", tmp_path / "none.sql")[2]
    assert (
        "--for 3 parsecs: unknown unit 'parsecs'"
        in muntin(capsys, "run", sql, "--for", "3 parsecs")[2]
    )
    for idle in ("0", "0s", "-5s"):
        code, _, err = muntin(capsys, "run", sql, "--idle", idle)
        assert (code, err) == (1, f"error: --idle must be longer than 0 seconds, not {idle}")
    assert "give one of them" in muntin(capsys, "run", sql, "--once", "--for", "3s")[2]
    code, _, err = muntin(capsys, "results", "paths", "--state", tmp_path / "none")
    assert code == 1
    assert "no results of job 'paths'" in err
    for words in ([], ["paths", "--all"]):
        code, _, err = muntin(capsys, "results", *words, "--state", tmp_path / "none")
        told = "give the names of jobs, or --all; there are results of: none yet"
        assert (code, err) == (1, f"error: {told}")
    assert muntin(capsys, "fly")[0] == 2


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--idle", "soon", "--idle soon: unknown unit 'soon'; expected"),
        ("--idle", "0s", "--idle must be longer than 0 seconds, not 0s"),
        ("--recovery", "never", "--recovery never: unknown unit"),
        ("--for", "-5s", "--for must be longer than 0 seconds, not -5s"),
        ("--sharing", "some", "--sharing is auto, shared or separate, not 'some'"),
        ("--master", "lokal", "--master lokal is no Spark master; give local[4] or local[*]"),
        ("--master", "local[x]", "--master local[x] is no Spark master"),
        ("--control", "7080", "--control 7080 is no address"),
        ("--control-token", "none", "none, which has the token, cannot be read: No such"),
        ("--keys", "none", "none"),
        ("--summary", "none/file", "none/file cannot be written: No such file or directory"),
        ("--state", "ftp://a/b", "ftp://a/b is no place for a state"),
        ("--local-dir", "jobs.sql/a", "--local-dir jobs.sql/a cannot be written to"),
    ],
)
def test_a_bad_option_is_refused_before_spark_is_started(
    sql: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    option: str,
    value: str,
    message: str,
) -> None:
    monkeypatch.setattr(gateway, "starting", _unwanted)
    monkeypatch.chdir(sql.parent)
    code, out, err = muntin(capsys, "run", "jobs.sql", option, value)
    assert (code, out) == (1, "")
    assert err.startswith("error: ")
    assert message in err
    assert sorted(path.name for path in sql.parent.iterdir()) == ["jobs.sql", "logs"]


def test_so_is_a_file_that_is_not_there(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway, "starting", _unwanted)
    code, _, err = muntin(capsys, "run", "none.sql")
    assert (code, err) == (1, "error: none.sql cannot be read: No such file or directory")


def _unwanted(*_: object) -> None:
    raise AssertionError("Spark was started")


def test_a_summary_that_cannot_be_written_is_refused_before_the_run(
    sql: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = sql.parent / "nowhere" / "totals.json"
    code, _, err = muntin(capsys, "run", sql, "--once", "--summary", path)
    assert (code, err) == (1, f"error: {path} cannot be written: No such file or directory")


def test_explain_prints_every_stage(sql: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = muntin(capsys, "explain", sql)
    assert code == 0
    for wanted in ("STREAM hits", "JOB paths", "pane", "cell", "compute", "merge", "finish"):
        assert wanted in out


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = muntin(capsys, "--version")
    assert code == 0
    assert re.fullmatch(r"muntin \d+\.\d+\.\d+\n", out)


def test_what_is_told_is_no_markup(sql: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = r"x :smile: \[(.*?)\] [red]"
    (sql.parent / "web.jsonl").write_text(line)
    stream = f"s (ts TIMESTAMP) FROM '{sql.parent}/web.jsonl' FORMAT json TIMESTAMP ts"
    sql.write_text(f"CREATE STREAM {stream}; CREATE JOB j AS SELECT count(*) FROM s WINDOW 1 DAY;")
    _, _, err = muntin(capsys, "try", sql)
    assert f": it is not a JSON object: {line}" in err.replace("\n", "")


def test_no_records_are_told(sql: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(sql.parent, [])
    columns = "hits (ts TIMESTAMP, path VARCHAR, ms DOUBLE) FROM"
    sql.write_text(sql.read_text().replace("hits FROM", columns, 1))
    assert muntin(capsys, "try", sql) == (0, "", "no records, no windows")


def test_an_interrupted_try_says_that_it_stopped(sql: Path) -> None:
    minutes = (datetime(2026, 3, 1) + timedelta(minutes=n) for n in range(2000))
    write(sql.parent, [json.dumps(ROWS[0] | {"ts": at.isoformat()}) for at in minutes])
    command = [sys.executable, "-m", "muntin", "try", str(sql), "--format", "json"]
    root = str(Path(__file__).parents[1])
    process = subprocess.Popen(
        command,
        env=os.environ | {"PYTHONPATH": root},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline()  # the rest is more than a pipe holds, so it goes on
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, err) == (130, "stopped\n")


def test_a_stream_without_any_time_is_refused(
    sql: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(sql.parent, [json.dumps(row | {"ts": "never"}) for row in ROWS])
    code, out, err = muntin(capsys, "try", sql)
    assert (code, out) == (1, "")
    assert err.startswith("error: stream 'hits': all 3 rows are bad; FORMAT json, the types of")
    assert "line 1: a row does not fit stream 'hits': TIMESTAMP \"ts\" gives no time" in err
    assert "; if 'never' is one, say TIMESTAMP strptime(ts, '%d.%m.%Y %H:%M:%S'): {" in err


def test_types_from_a_sample_are_told_as_such(
    sql: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(sql.parent, [json.dumps(ROWS[0]), json.dumps(ROWS[0] | {"ms": "n/a"})])
    code, out, err = muntin(capsys, "explain", sql)
    assert code == 1
    assert re.search(r"^ +ms +VARCHAR$", out, re.MULTILINE)
    assert 'column "ms" was taken for VARCHAR from a sample of the files' in err
    assert "CREATE STREAM hits (ms BIGINT, …)" in err


def test_an_interrupted_query_says_that_it_stopped(tmp_path: Path) -> None:
    """DuckDB notices Ctrl-C by itself."""
    slow = "SELECT count(*) FROM range(100000000000)"
    (tmp_path / "slow.py").write_text(
        "import sys\n"
        "from muntin import cli\n"
        "from muntin.kernel import engine\n"
        "@cli.app.command()\n"
        "def slow() -> None:\n"
        "    engine.connection()\n"
        "    print('ready', flush=True)\n"
        f"    engine.run({slow!r}, {{}}, 'counting')\n"
        "sys.argv = ['muntin', 'slow']\n"
        "cli.main()\n"
    )
    process = subprocess.Popen(
        [sys.executable, str(tmp_path / "slow.py")],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, err) == (130, "stopped\n")


def test_colours_are_for_terminals_alone(sql: Path) -> None:
    """Also where the environment asks for them, as in many pipelines."""
    write(sql.parent, [*map(json.dumps, ROWS), "nonsense"])
    root = str(Path(__file__).parents[1])
    coloured = {"FORCE_COLOR": "1", "CLICOLOR_FORCE": "1", "PY_COLORS": "1", "GITHUB_ACTIONS": "1"}
    for args in (["try", str(sql)], ["try", "none.sql"], ["try", "--nope"], ["--help"], ["status"]):
        done = subprocess.run(
            [sys.executable, "-m", "muntin", *args],
            env=os.environ | coloured | {"PYTHONPATH": root},
            capture_output=True,
            cwd=sql.parent,
            timeout=PATIENCE,
            check=False,
        )
        assert b"\x1b" not in done.stdout + done.stderr, args


@pytest.mark.parametrize(("environment", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_colours_on_a_terminal(sql: Path, environment: dict[str, str], coloured: bool) -> None:
    ours, theirs = pty.openpty()
    root = str(Path(__file__).parents[1])
    unset = {"FORCE_COLOR", "NO_COLOR"}
    usual = {name: value for name, value in os.environ.items() if name not in unset}
    process = subprocess.Popen(
        [sys.executable, "-m", "muntin", "try", "none.sql"],
        env=usual | {"PYTHONPATH": root, "TERM": "xterm-256color"} | environment,
        stdout=theirs,
        stderr=theirs,
        cwd=sql.parent,
    )
    process.wait(PATIENCE)
    os.close(theirs)
    said = os.read(ours, 4096)
    os.close(ours)
    assert b"none.sql cannot be read" in said
    assert (b"\x1b[1;31m" in said) == coloured


def test_what_is_no_number_keeps_its_name(sql: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values = (float("nan"), float("inf"), float("-inf"))
    write(sql.parent, [json.dumps(row | {"ms": ms}) for row, ms in zip(ROWS, values, strict=True)])
    for form, written in (("json", '"{}"'), ("csv", ",{},"), ("table", " {} ")):
        _, out, _ = muntin(capsys, "try", sql, "--job", "paths", "--format", form)
        for name in ("NaN", "Infinity", "-Infinity"):
            assert written.format(name) in out


def test_a_state_folder_in_use_is_refused_before_anything_is_started(
    sql: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(*_: object, **__: object) -> None:
        raise AssertionError

    monkeypatch.setattr("muntin.spark.gateway.Jvm", start)
    with locked(sql.parent / "state"):
        code, _, err = muntin(capsys, "run", sql, "--state", sql.parent / "state")
    assert (code, f"in use by process {os.getpid()} on " in err) == (1, True)
    assert "stop it" in err


def test_names_that_are_not_utf_8_are_read_and_told(
    sql: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = sql.parent / os.fsdecode(b"caf\xe9")
    folder.mkdir()
    (folder / "web.jsonl").write_text(json.dumps(ROWS[0]) + "\nnonsense\n")
    stream = f"s FROM '{sql.parent}/{{source}}/web.jsonl' FORMAT json TIMESTAMP ts"
    job = "CREATE JOB j AS SELECT source, count(*) AS n FROM s GROUP BY source WINDOW 1 DAY"
    (folder / "jobs.sql").write_text(f"CREATE STREAM {stream}; {job};")
    for form in ("json", "csv", "table"):
        code, out, err = muntin(capsys, "try", folder / "jobs.sql", "--format", form)
        assert (code, r"caf\xe9" in out.replace("\\\\", "\\")) == (0, True)
        assert "web.jsonl" in err  # the bad row
    code, _, err = muntin(capsys, "results", "j", "--state", folder)
    assert (code, "its name is not UTF-8" in err) == (1, True)


@pytest.mark.parametrize("others", [0, 1])
def test_a_program_of_which_every_job_stops_has_failed(
    sql: Path, capsys: pytest.CaptureFixture[str], others: int
) -> None:
    stream, *jobs = sql.read_text().split("CREATE JOB")
    bad = " bad AS SELECT sum(CAST(path AS BIGINT)) AS n FROM hits WINDOW 1 DAY MAX ERRORS 0;"
    sql.write_text("CREATE JOB".join([stream, *jobs[:others], bad]))
    code, _, err = muntin(capsys, "try", sql)
    assert "job 'bad' stops" in err
    assert code == 1 - others


def test_plans_of_streams_from_agents_need_their_keys(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    make_keys(tmp_path / "keys", ["web01"])
    keys = read_keys(tmp_path / "keys", "web01", required=True)
    (tmp_path / "web01").mkdir()
    (tmp_path / "web01" / "a.log").write_text('{"t": 1, "k": "a"}\n')
    with serving("web01", tmp_path / "web01", keys) as (_, place):
        file = tmp_path / "jobs.sql"
        file.write_text(
            f"CREATE STREAM logs FROM AGENTS '{place}';"
            "CREATE JOB n AS SELECT count(*) AS n FROM logs WINDOW 1 MINUTE;"
        )
        code, _, told = muntin(capsys, "explain", file)
        assert (code, "needs --keys" in told) == (1, True)
        code, out, told = muntin(capsys, "explain", file, "--keys", tmp_path / "keys")
        assert (code, f"agents     {place}" in out, told) == (0, True, "")
        code, _, told = muntin(capsys, "try", file, "--keys", tmp_path / "keys")
        assert code == 1
        assert "stream 'logs' comes from agents, which go on, so there is no end" in told
