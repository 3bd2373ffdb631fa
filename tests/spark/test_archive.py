"""The archive of Java's classes: made once, used when there, and missed by nobody."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from muntin.spark.archive import Archive
from muntin.spark.java import Java
from tests.waiting import wait_for

CLASSES = "java/lang/Object id: 0\njava/lang/String id: 1\njava/util/TreeMap id: 2\n"


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Archive:
    monkeypatch.setenv("MUNTIN_CACHE", str(tmp_path / "cache"))
    java = Java.plain("local", {k: v for k, v in os.environ.items() if "SPARK" not in k})
    assert java is not None
    archive = Archive.of(java)
    assert archive is not None
    return archive


def listed(folder: Path, text: str = CLASSES) -> Path:
    classes = folder / "classes"
    classes.write_text(text)
    return classes


def test_an_archive_is_made_from_a_list_and_then_used(archive: Archive, tmp_path: Path) -> None:
    classes = listed(tmp_path)
    assert archive.options(classes) == [f"-XX:DumpLoadedClassList={classes}"]
    assert archive.options(None) == []
    archive.make(classes)
    wait_for(lambda: archive.path.exists() and not archive.path.with_suffix(".making").exists())
    assert [path.name for path in archive.path.parent.iterdir()] == [archive.path.name]
    use = f"-XX:SharedArchiveFile={archive.path}"
    assert archive.options(classes) == [use]
    java = [str(archive.java.java), use, "-Xshare:on", "-cp", archive.class_path, "-version"]
    subprocess.run(java, check=True, capture_output=True)


def test_two_runs_make_one_archive_and_a_failure_is_not_repeated_at_once(
    archive: Archive, tmp_path: Path
) -> None:
    making = archive.path.with_suffix(".making")
    archive.make(listed(tmp_path, "no list at all"))
    wait_for(lambda: not any(making.iterdir()) or archive.path.exists())
    assert archive.options(tmp_path / "classes") == []
    archive.make(listed(tmp_path))  # as by another run that has begun before
    assert list(making.iterdir()) == []
    assert (tmp_path / "classes").exists()
    os.utime(making, (0, 0))
    assert archive.options(tmp_path / "classes") != []


def test_unused_archives_go(archive: Archive, tmp_path: Path) -> None:
    archive.path.parent.mkdir()
    old, new = (archive.path.with_name(f"spark-{name}.jsa") for name in ("old", "new"))
    for path in (old, new):
        path.touch()
    os.utime(old, (0, 0))
    archive.path.with_suffix(".making").mkdir()
    archive.make(listed(tmp_path))
    assert (old.exists(), new.exists()) == (False, True)


def test_a_folder_that_cannot_be_written_is_no_matter(
    archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("MUNTIN_CACHE", str(tmp_path / "file" / "cache"))
    nowhere = Archive.of(archive.java)
    assert nowhere is not None
    nowhere.make(listed(tmp_path))
    assert not nowhere.path.exists()


def test_archives_can_be_switched_off(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUNTIN_CACHE", "")
    assert Archive.of(archive.java) is None


def test_java_starts_without_an_archive_that_is_none(archive: Archive) -> None:
    archive.path.parent.mkdir()
    archive.path.write_bytes(b"nonsense" * 1000)
    (use,) = archive.options(None)
    java = [str(archive.java.java), use, "-cp", archive.class_path, "-version"]
    subprocess.run(java, check=True, capture_output=True)
