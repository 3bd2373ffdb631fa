"""Co-locality, groups, replication and recovery on three executors, as Spark measures them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.spark.collections.cluster import EXECUTORS, PARTITIONS, RECOVERY, group_of
from tests.waiting import PATIENCE

Homes = dict[str, list[str]]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.spark.collections.cluster",
            tmp_path_factory.mktemp("cluster"),
        ],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
    )
    assert not done.returncode, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def home_of(partition: int, homes: Homes) -> str:
    return next(at[0] for name, at in homes.items() if partition in group_of(name).partitions)


pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("cluster")]


def test_a_partition_of_every_step_lies_in_one_executor(told: dict[str, Any]) -> None:
    assert len({home for homes in told["homes"].values() for home in homes}) == EXECUTORS
    assert len(told["held"]) == 4
    for holders in told["held"].values():
        assert holders == {str(p): [home_of(p, told["homes"])] for p in range(PARTITIONS)}


@pytest.mark.parametrize("asked", ["cogroup", "union"])
def test_cogroups_and_unions_read_local_memory_only(told: dict[str, Any], asked: str) -> None:
    tasks = told[asked]
    assert len(tasks) == len(told["homes"])
    assert {task["locality"] for task in tasks} == {"PROCESS_LOCAL"}
    assert sorted(task["executor"] for task in tasks) == sorted(
        h for (h,) in told["homes"].values()
    )
    assert sum(task["shuffle_remote"] + task["shuffle_local"] for task in tasks) == 0
    assert sum(task["input_bytes"] for task in tasks) > 4 * 6000 * 100
    assert told["rows"] == 4 * 6000


def test_groups_split_and_merge_and_data_stays(told: dict[str, Any]) -> None:
    assert len(told["split"]) > len(told["homes"])
    assert "0-1" in told["split"]
    for name, holders in told["held"].items():
        assert told["held after"][name] == holders
    assert told["rows after"] == 4 * 6000 + 12000
    assert len(told["merged"]) < len(told["split"])
    assert told["rows merged"] == told["rows after"] + 60


def test_hot_groups_have_more_homes_until_they_are_cold(told: dict[str, Any]) -> None:
    more = {name: homes for name, homes in told["hot"].items() if len(homes) > 1}
    assert [5 in group_of(name).partitions for name in more] == [True]
    (homes,) = more.values()
    seen = {task["executor"] for tasks in told["hot facts"] for task in tasks}
    assert seen == set(homes)
    for tasks in told["hot facts"]:
        assert [task["locality"] for task in tasks] == ["PROCESS_LOCAL"]
    assert all(len(homes) == 1 for homes in told["cold"].values())


def test_an_executor_that_is_lost_in_a_question_changes_no_answer(told: dict[str, Any]) -> None:
    assert told["answer"] == [told["expected"]]
    assert told["again"] == told["expected"]
    assert told["bound"] <= RECOVERY
    assert told["seconds"] <= RECOVERY
    assert told["lost"] not in {home for homes in told["after"].values() for home in homes}
    assert [note for note in told["notes"] if f"executor {told['lost']} on" in note] != []
    assert "is computed again when it is asked for" in told["notes"][0]


def test_an_executor_that_is_lost_in_a_question_about_the_past_changes_no_answer(
    told: dict[str, Any],
) -> None:
    assert told["killed"] == [False, True]
    assert told["past there"] == told["past here"]
    assert [row["c"] for row in told["past here"]] == [280] * 3
