"""Patterns find files and name their sources."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from muntin.logs.patterns import PathPattern, path_patterns, unmatched


def found(folder: Path, pattern: str) -> dict[str, str]:
    """Paths below the folder that match, with their sources."""
    hits = PathPattern(str(folder / pattern)).find()
    return {path.relative_to(folder).as_posix(): source for path, source in hits}


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    for name in (
        "web1/access.log",
        "web1/access.log.1",
        "web2/access.log",
        "web2/error.log",
        "web2/old/access.log",
        "app-ünï.log",
        "app-b[1].log",
        "what?.log",
        "whats.log",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return tmp_path


def test_source_is_a_folder(logs: Path) -> None:
    assert found(logs, "{source}/access.log*") == {
        "web1/access.log": "web1",
        "web1/access.log.1": "web1",
        "web2/access.log": "web2",
    }


def test_source_is_part_of_a_name(logs: Path) -> None:
    assert found(logs, "app-{source}.log") == {"app-ünï.log": "ünï", "app-b[1].log": "b[1]"}
    assert found(logs, "web*/{source}.log") == {
        "web1/access.log": "access",
        "web2/access.log": "access",
        "web2/error.log": "error",
    }


def test_without_source_each_file_is_one(logs: Path) -> None:
    assert found(logs, "web*/access.log") == {
        "web1/access.log": "web1/access.log",
        "web2/access.log": "web2/access.log",
    }
    assert found(logs, "web2/error.log") == {"web2/error.log": "error.log"}


def test_only_star_is_wild(logs: Path) -> None:
    assert list(found(logs, "app-b[1].log")) == ["app-b[1].log"]
    assert list(found(logs, "what?.log")) == ["what?.log"]
    assert found(logs, "app-[a-z].log") == {}


def test_star_stays_within_a_part(logs: Path) -> None:
    assert "web2/old/access.log" not in found(logs, "*/access.log")
    assert list(found(logs, "*/*/access.log")) == ["web2/old/access.log"]


def test_folders_and_missing_folders_match_nothing(logs: Path) -> None:
    assert found(logs, "web1") == {}
    assert found(logs, "nowhere/*.log") == {}


def test_relative_patterns(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(logs / "web1")
    for pattern in ("access.log", "./access.log", "../web1/acc*.log", "acc*s.log"):
        assert [source for _, source in PathPattern(pattern).find()] == ["access.log"]
    assert [source for _, source in PathPattern("../{source}/error.log").find()] == ["web2"]


def test_files_of_several_patterns_are_told_apart(
    logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sources(*texts: str) -> list[str]:
        return [source for pattern in path_patterns(texts) for _, source in pattern.find()]

    monkeypatch.chdir(logs)
    assert sources("web1/*.log", "web2/acc*.log") == ["web1/access.log", "web2/access.log"]
    assert sources("web2/*.log", "web2/old/*.log")[1:] == ["error.log", "old/access.log"]
    assert sources("*1/*.log", "web2/{source}.log") == ["web1/access.log", "access", "error"]
    assert sources("what?.log", "web2/e*.log") == ["what?.log", "web2/error.log"]
    mixed = f"{logs}/web1/*.log"
    assert sources(mixed, "web2/e*.log") == [f"{logs}/web1/access.log", "web2/error.log"]
    assert sources("web1/*.log") == ["access.log"]


def test_source_of() -> None:
    pattern = PathPattern("logs/{source}/*.log")
    assert pattern.source_of(Path("logs/web1/a.log")) == "web1"
    assert pattern.source_of(Path("logs/web1/a.txt")) is None
    assert pattern.source_of(Path("other/web1/a.log")) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "names no file"),
        (".", "names no file"),
        ("/", "names no file"),
        ("{source}/{source}.log", "more than once"),
        ("{host}/a.log", "only hold {source} in braces"),
        ("{source/a.log", "only hold {source} in braces"),
        ("logs/**/a.log", "'\\*\\*' is not possible"),
    ],
)
def test_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PathPattern(text)


def test_names_that_are_not_utf_8_are_told_as_text(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    folder.mkdir()
    (folder / "ü.log").touch()
    for pattern, source in (("{source}/*.log", r"caf\xe9"), ("*/*.log", r"caf\xe9/ü.log")):
        every = PathPattern(f"{tmp_path}/{pattern}")
        assert list(every.find()) == [(folder / "ü.log", source)]
        assert every.source_of(folder / "ü.log") == source


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{folder}/*.none", ""),
        ("{folder}/nowhere/*.log", "; there is no folder {folder}/nowhere"),
        ("{folder}/{source}", "; {folder}/web is a folder; name the files in it, as in "
         "'{folder}/{source}/*.log'"),
        ("~/logs/*.log", "; '~' stands for itself; write out the folder that is meant"),
    ],
)  # fmt: skip
def test_why_nothing_matches(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "web").mkdir()
    patterns = path_patterns([text.replace("{folder}", str(tmp_path))])
    assert unmatched(patterns) == told.replace("{folder}", str(tmp_path))
