"""What is sent to executors: all that tasks need, once. That it works there: test_cluster.py."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest
from pyspark.sql import SparkSession

import muntin
from muntin.errors import StartError
from muntin.spark import shipping
from muntin.spark.shipping import distributions, provide


def test_all_that_pipelines_need_is_sent_and_nothing_of_spark() -> None:
    names = {each.name for each in distributions()}
    assert names >= {"muntin", "duckdb", "pyarrow", "numpy", "cloudpickle", "msgspec", "deltalake"}
    assert "pytz" in names  # of pandas: what others need in turn
    assert names.isdisjoint({"pyspark", "py4j", "pytest", "mypy", "ruff"})


def test_the_archive_is_made_once_and_old_ones_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = [each for each in distributions() if each.name in ("muntin", "cloudpickle")]
    monkeypatch.setattr(shipping, "distributions", lambda: small)
    monkeypatch.setenv("MUNTIN_CACHE", str(tmp_path / "cache"))
    old = tmp_path / "cache" / "packages-old.zip"
    old.parent.mkdir()
    old.touch()
    os.utime(old, (0, 0))
    told: list[str] = []
    path = shipping._archive(told.append)
    assert [told[0].startswith("an archive of the package"), len(told)] == [True, 1]
    assert list(path.parent.iterdir()) == [path]
    with ZipFile(path) as archive:
        names = set(archive.namelist())
        assert archive.read("muntin/__init__.py") == Path(muntin.__file__).read_bytes()
    assert names >= {"muntin/py.typed", "muntin/spark/daemon.py", "cloudpickle/cloudpickle.py"}
    assert not [name for name in names if name.endswith((".pyc", ".pth")) or "../" in name]
    made = path.stat().st_ino
    assert shipping._archive(pytest.fail).stat().st_ino == made


def test_a_folder_that_cannot_be_written_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(shipping, "distributions", list)
    monkeypatch.setenv("MUNTIN_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(StartError, match="MUNTIN_CACHE names another folder"):
        shipping._archive(lambda _: None)


def test_the_python_of_executors_is_the_users_or_of_the_same_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    assert shipping._plain_python() == f"python3.{sys.version_info.minor}"
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")
    assert shipping._plain_python() == "/opt/python"


def test_nothing_is_sent_on_one_machine(spark: SparkSession) -> None:
    provide(spark.sparkContext, pytest.fail)
    assert shipping._missing(spark.sparkContext) is None
    assert "PYTHONPATH" not in spark.sparkContext.environment
