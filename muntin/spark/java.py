"""The command that starts Spark's JVM: what `spark-submit` would come to, without asking it.

`spark-submit` is three scripts and a JVM of its own, which work out class path and options from
scripts, files and variables. Where none of them is there, on a local master, the outcome is
known. Anywhere else `spark-submit` is asked.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

MAIN_CLASS = "org.apache.spark.deploy.SparkSubmit"
NEEDS_JAVA = "Spark needs Java 17 or later, found through JAVA_HOME or PATH."
_LOCAL = re.compile(r"local(\[[^\]]*\])?")
# What these say has no part in the command, only in the JVM that it starts.
_HARMLESS = frozenset(
    [
        "SPARK_HOME",
        "SPARK_CONF_DIR",
        "SPARK_LOCAL_DIRS",
        "SPARK_LOCAL_IP",
        "SPARK_LOCAL_HOSTNAME",
        "SPARK_USER",
    ]
)
_TELLING = frozenset(("HADOOP_CONF_DIR", "YARN_CONF_DIR"))
_FILES = ("spark-defaults.conf", "spark-env.sh", "java-opts")
_OPENED = [
    "java.base/java.lang",
    "java.base/java.lang.invoke",
    "java.base/java.lang.reflect",
    "java.base/java.io",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
    "java.base/sun.nio.cs",
    "java.base/sun.security.action",
    "java.base/sun.util.calendar",
    "java.security.jgss/sun.security.krb5",
]
_OPTIONS = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    "--add-modules=jdk.incubator.vector",
    *(f"--add-opens={package}=ALL-UNNAMED" for package in _OPENED),
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
    "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
    "-Dderby.connection.requireAuthentication=false",
)


@dataclass(frozen=True)
class Java:
    """A Java and a Spark that need no script to find each other."""

    java: Path
    home: Path

    @staticmethod
    def found(environment: Mapping[str, str]) -> Java | None:
        """The Java and the Spark that there are; None if one of them is missing."""
        java, home = _java(environment), _home(environment)
        return None if java is None or home is None else Java(java, home)

    @staticmethod
    def plain(master: str, environment: Mapping[str, str]) -> Java | None:
        """What to start on `master`, or None where `spark-submit` has to be asked."""
        found = Java.found(environment)
        if found is None or not _LOCAL.fullmatch(master):
            return None
        conf = Path(environment.get("SPARK_CONF_DIR") or found.home / "conf")
        told = {name for name in environment if name.startswith("SPARK_")} - _HARMLESS
        told |= _TELLING & environment.keys()
        if environment.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell").strip() != "pyspark-shell":
            return None
        if told or any((conf / name).exists() for name in _FILES):
            return None
        return found

    def class_path(self, environment: Mapping[str, str]) -> str:
        conf = environment.get("SPARK_CONF_DIR") or str(self.home / "conf")
        logging = sorted((self.home / "jars").glob("slf4j-api-*.jar"))
        return os.pathsep.join([conf, *map(str, logging), str(self.home / "jars" / "*")])

    def command(
        self, settings: Mapping[str, str], environment: Mapping[str, str], *more: str
    ) -> list[str]:
        """The command with these settings of Spark, and `more` options for Java."""
        driver = shlex.split(settings.get("spark.driver.extraJavaOptions", ""))
        words = [MAIN_CLASS, *submit_arguments(settings), "pyspark-shell"]
        return self.process(["-Xmx1g", *driver, *more], words, environment)

    def process(
        self, options: Sequence[str], words: Sequence[str], environment: Mapping[str, str]
    ) -> list[str]:
        """The command that runs a class of Spark, the first of the words."""
        start = [str(self.java), "-cp", self.class_path(environment)]
        return [*start, *options, *_OPTIONS, *words]

    def variables(self, environment: Mapping[str, str]) -> dict[str, str]:
        """What the scripts would set."""
        conf = environment.get("SPARK_CONF_DIR") or str(self.home / "conf")
        return {
            "SPARK_HOME": str(self.home),
            "SPARK_CONF_DIR": conf,
            "SPARK_ENV_LOADED": "1",
            "SPARK_SCALA_VERSION": "2.13",
            "PYTHONHASHSEED": "0",
        }


def given(environment: Mapping[str, str]) -> set[str]:
    """The settings that somebody has given, in `spark-defaults.conf` or to `spark-submit`."""
    words = shlex.split(environment.get("PYSPARK_SUBMIT_ARGS", ""))
    named = {word.partition("=")[0] for before, word in pairwise(words) if before == "--conf"}
    conf = environment.get("SPARK_CONF_DIR")
    home = _home(environment)
    if not conf and home is None:
        return named
    with suppress(OSError, UnicodeError):
        text = Path(conf or f"{home}/conf", "spark-defaults.conf").read_text()
        lines = [line.strip() for line in text.splitlines()]
        named |= {re.split(r"[\s=:]", line)[0] for line in lines if line and line[0] not in "#!"}
    return named


def submit_arguments(settings: Mapping[str, str]) -> list[str]:
    return [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]


def _java(environment: Mapping[str, str]) -> Path | None:
    java_home = environment.get("JAVA_HOME")
    java = Path(java_home) / "bin" / "java" if java_home else shutil.which("java")
    return Path(java).resolve() if java and os.access(java, os.X_OK) else None


def _home(environment: Mapping[str, str]) -> Path | None:
    """Spark as SPARK_HOME or the installed package has it."""
    home = environment.get("SPARK_HOME")
    if not home:
        spec = find_spec("pyspark")  # which loads nothing
        if spec is None or spec.origin is None:
            return None
        home = str(Path(spec.origin).resolve().parent)
        if (Path(home) / "spark-distribution").exists():
            return None
    whole = all((Path(home) / name).exists() for name in ("bin/spark-submit", "jars"))
    return Path(home) if whole else None
