"""The examples in Python answer as plain Python does over the logs they write."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from muntin.run.inline import run_inline
from muntin.run.results import Result

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = Path(__file__).parents[2] / "examples" / "python"
FILES = sorted(EXAMPLES.glob("*.py"))
Rows = list[tuple[Any, ...]]


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def rows(results: list[Result]) -> Rows:
    return [(r.start, *row.values()) for r in results for row in r.rows.to_pylist()]


def word_counts(folder: Path) -> Rows:
    windows: dict[int, Counter[str]] = {}
    for path in folder.glob("*.txt"):
        at = 0
        for line in path.read_text().splitlines():
            windows.setdefault(at // 20480 * 20480, Counter()).update(line.split())
            at += len(line) + 1
    return sorted((start, *pair) for start, counts in windows.items() for pair in counts.items())


def sessions(folder: Path) -> Rows:
    clicks: dict[tuple[float, str], list[float]] = {}
    for path in folder.glob("*.jsonl"):
        for click in map(json.loads, path.read_text().splitlines()):
            time = datetime.fromisoformat(click["ts"]).timestamp()
            clicks.setdefault((time // 86400 * 86400, click["user"]), []).append(time)
    found: Rows = []
    for (day, user), times in sorted(clicks.items()):
        times.sort()
        starts = [t for i, t in enumerate(times) if i == 0 or t - times[i - 1] >= 1800]
        ends = [t for i, t in enumerate(times) if i + 1 == len(times) or times[i + 1] - t >= 1800]
        seconds = sum(ends) - sum(starts)
        number = len(starts)
        approximate = pytest.approx(seconds / number, abs=1e-4)
        found.append((int(day * 1e6), user, number, approximate, len(times) / number))
    return found


def odd_nodes(folder: Path) -> Rows:
    """Which node is odd in which hour; how odd is left to the job's own arithmetic."""
    module = example("hdfs_writes")
    hours: dict[str, dict[str, list[int]]] = {}
    for path in folder.glob("*.log"):
        for line in path.read_text().splitlines():
            found = re.search(r"^(\S+ \d\d).* in (\d+) ms", line)
            if found:
                took = module.bucket(int(found[2]))
                hours.setdefault(found[1], {}).setdefault(path.stem, []).append(took)
    odd: Rows = []
    for hour, nodes in sorted(hours.items()):
        start = int(datetime.fromisoformat(f"{hour}:00:00+00:00").timestamp() * 1e6)
        found_odd: Rows = []
        while True:
            (ratio, node, apart, limit) = max(furthest(nodes))
            if ratio <= 1:
                break
            times = nodes.pop(node)
            near = pytest.approx(apart), pytest.approx(limit)
            found_odd.append((start, node, len(times), *near))
        odd += sorted(found_odd, key=lambda row: row[1])
    return odd


def furthest(nodes: dict[str, list[int]]) -> Iterator[tuple[float, str, float, float]]:
    for node, times in nodes.items():
        rest = [t for name, each in nodes.items() if name != node for t in each]
        apart = max(
            abs(sum(t <= x for t in times) / len(times) - sum(t <= x for t in rest) / len(rest))
            for x in {*times, *rest}
        )
        limit = 1.95 * ((len(times) + len(rest)) / (len(times) * len(rest))) ** 0.5
        yield apart / limit, node, apart, limit


ORACLES = {"word_count": word_counts, "click_sessions": sessions, "hdfs_writes": odd_nodes}


@pytest.mark.parametrize("name", ORACLES)
def test_example_inline(name: str, tmp_path: Path) -> None:
    module = example(name)
    module.write_logs(tmp_path)
    found = rows(list(run_inline(module.program(tmp_path), pytest.fail)))
    assert found
    assert found == ORACLES[name](tmp_path)


@pytest.mark.parametrize("name", ORACLES)
def test_example_on_spark(name: str, tmp_path: Path, spark: SparkSession) -> None:
    from muntin.api import run_on_spark

    module = example(name)
    module.write_logs(tmp_path)
    found = list(run_on_spark(module.program(tmp_path), tmp_path / "state", spark))
    assert rows(found) == ORACLES[name](tmp_path)


def test_the_slow_node_is_found_when_it_becomes_slow(tmp_path: Path) -> None:
    module = example("hdfs_writes")
    module.write_logs(tmp_path)
    found = rows(list(run_inline(module.program(tmp_path))))
    assert [(start // 3_600_000_000 % 24, node) for start, node, *_ in found] == [
        (13, module.SLOW),
        (14, module.SLOW),
    ]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_example_runs_as_a_script(path: Path) -> None:
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()
    assert done.stderr == ""


def test_all_are_listed() -> None:
    table = (EXAMPLES.parent / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| \[(\w+)\.py\]\(python/", table, re.MULTILINE) == [
        path.stem for path in FILES
    ]
