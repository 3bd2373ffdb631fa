"""What `muntin state` prints, and how it ends."""

from __future__ import annotations

import json
import sys
import tarfile
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from muntin.cli import main
from muntin.show.state import draw, size_text
from muntin.store.inspection import Shown, StreamShown, TableShown
from tests.store.test_migrations import SAMPLES


def printed(capsys: pytest.CaptureFixture[str], *args: object) -> tuple[str, object]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["muntin", "state", *map(str, args)])
        patch.setenv("COLUMNS", "160")
        with pytest.raises(SystemExit) as ended:
            main()
    return capsys.readouterr().out, ended.value.code


def test_a_state_is_shown_and_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with tarfile.open(SAMPLES[0]) as archive:
        archive.extractall(tmp_path, filter="data")
    out, code = printed(capsys, "show", tmp_path)
    assert code == 0
    assert " open panes " in out
    assert " sums, mine " in out
    assert (
        json.loads(printed(capsys, "show", tmp_path, "--json")[0])["streams"][0]["records"] == 143
    )
    assert printed(capsys, "check", tmp_path) == (
        "every file can be read, and all fits together\n", 0
    )  # fmt: skip
    next((tmp_path / "streams" / "s").glob("ledger-*")).unlink()
    out, code = printed(capsys, "check", tmp_path)
    assert code == 1
    assert out.startswith("damaged: ")
    assert out.endswith("1 file or table is damaged\n")
    found = json.loads(printed(capsys, "check", tmp_path, "--json")[0])["findings"]
    assert [finding["weight"] for finding in found] == ["damaged"]


def test_what_is_left_over_is_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with tarfile.open(SAMPLES[0]) as archive:
        archive.extractall(tmp_path, filter="data")
    stream = tmp_path / "streams" / "s"
    for number in range(300):
        (stream / f"blocks-{number}.tape").touch()
    out, code = printed(capsys, "check", tmp_path)
    assert code == 0
    told, verdict = out.splitlines()
    assert told == (
        f"left over: {stream}: 300 files, each of which belongs to no state that counts, and is "
        "removed by the next run"
    )
    assert verdict == "every file can be read, and all fits together"
    out, _ = printed(capsys, "check", tmp_path, "--all")
    assert out.count("left over: ") == 300
    assert f"left over: {stream}/blocks-7.tape: belongs to no state" in out


@pytest.mark.parametrize(("width", "wide"), [(80, False), (160, True)])
def test_names_of_jobs_are_not_broken(width: int, wide: bool) -> None:
    jobs = ("errors_by_path", "slow_requests_of_shops", "sessions_by_country", "totals_of_the_day")
    shown = Shown("state", 2_000, [StreamShown("access", 7, 9, jobs, 3, 12_345, 60, 5, 1_500)])
    shown.tables += [TableShown(job, 7, 1, 500) for job in jobs]
    out = StringIO()
    draw(shown, Console(file=out, width=width, highlight=False))
    lines = out.getvalue().splitlines()
    assert all(len(line) <= width for line in lines)
    assert all(sum(job in line for line in lines) == 2 for job in jobs)
    assert (" open panes " in lines[1] and " 12,345 " in lines[2]) is wide
    if not wide:
        assert lines[1:5] == [
            "stream access: batch 7, sources 3, records 12,345, open panes 60, files 5, size ",
            "1.5 kB",
            "jobs of access: errors_by_path, slow_requests_of_shops, sessions_by_country, ",
            "totals_of_the_day",
        ]


def test_sizes_are_told_in_units() -> None:
    sizes = [size_text(size) for size in (0, 999, 1000, 1_234_567, 5e9, 7e12, 1e16)]
    assert sizes == ["0 B", "999 B", "1.0 kB", "1.2 MB", "5.0 GB", "7.0 TB", "10,000.0 TB"]
