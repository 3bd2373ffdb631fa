"""The command that starts Spark's JVM, beside the one that spark-submit works out."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from muntin.spark.internals import spark_home
from muntin.spark.java import MAIN_CLASS, Java, given, submit_arguments
from muntin.spark.settings import settings_on


@pytest.fixture
def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if "SPARK" not in name}


def test_the_command_is_the_one_of_spark_submit(environment: dict[str, str]) -> None:
    settings = settings_on("local[2]")
    java = Java.plain("local[2]", environment)
    assert java is not None
    assert java.home == spark_home()
    ours = java.command(settings, environment)
    launcher = [str(java.java), "-cp", f"{java.home}/jars/*", "org.apache.spark.launcher.Main"]
    done = subprocess.run(
        [*launcher, MAIN_CLASS, *submit_arguments(settings), "pyspark-shell"],
        env=environment | java.variables(environment),
        capture_output=True,
        check=True,
    )
    theirs = [word for word in done.stdout.decode().strip("\0\n").split("\0") if word.strip()]
    main = ours.index(MAIN_CLASS) + 1
    assert ours[1:main] == theirs[1:main]
    assert sorted(ours[main:]) == sorted(theirs[main:])  # which have no order
    assert Path(theirs[0]).resolve() == java.java


@pytest.mark.parametrize(
    "told",
    [
        {"PYSPARK_SUBMIT_ARGS": "--driver-memory 2g pyspark-shell"},
        {"SPARK_DRIVER_MEMORY": "2g"},
        {"SPARK_SUBMIT_OPTS": "-Dx=y"},
        {"HADOOP_CONF_DIR": "/etc/hadoop"},
        {"SPARK_HOME": "/nowhere"},
        {"JAVA_HOME": "/nowhere"},
    ],
)
def test_what_the_environment_says_is_left_to_spark_submit(
    environment: dict[str, str], told: dict[str, str]
) -> None:
    assert Java.plain("local[2]", environment | told) is None


@pytest.mark.parametrize("name", ["spark-defaults.conf", "spark-env.sh", "java-opts"])
def test_files_of_settings_are_left_to_spark_submit(
    environment: dict[str, str], tmp_path: Path, name: str
) -> None:
    environment["SPARK_CONF_DIR"] = str(tmp_path)
    assert Java.plain("local", environment) is not None
    (tmp_path / name).touch()
    assert Java.plain("local", environment) is None


@pytest.mark.parametrize("master", ["spark://a:7077", "yarn", "local-cluster[2,1,1024]", "foo"])
def test_clusters_are_left_to_spark_submit(environment: dict[str, str], master: str) -> None:
    assert Java.plain(master, environment) is None


def test_settings_that_are_given_are_known(environment: dict[str, str], tmp_path: Path) -> None:
    assert given(environment | {"SPARK_HOME": "/nowhere"}) == set()
    environment["PYSPARK_SUBMIT_ARGS"] = "--conf spark.a=1 --conf 'spark.b=x y' pyspark-shell"
    assert given(environment) == {"spark.a", "spark.b"}
    environment["SPARK_CONF_DIR"] = str(tmp_path)
    (tmp_path / "spark-defaults.conf").write_text("# spark.c 1\n\nspark.d  1\n spark.e=1\n")
    assert given(environment) == {"spark.a", "spark.b", "spark.d", "spark.e"}
