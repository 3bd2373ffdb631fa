"""Where resource managers are, from settings of Hadoop in some of their forms."""

from __future__ import annotations

from pathlib import Path

import pytest

from muntin.spark.yarn import managers


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        ({"hostname": "a"}, ["a:8032"]),
        ({"hostname": "a", "address": " a:9 "}, ["a:9"]),
        ({"ha.rm-ids": "x, y", "hostname.x": "a", "address.y": "b:9"}, ["a:8032", "b:9"]),
        ({"ha.rm-ids": "x,y", "hostname.x": "a"}, []),
        ({"hostname": "a", "address": "${some.host}:9"}, []),
        ({}, []),
    ],
)
def test_addresses(settings: dict[str, str], found: list[str], tmp_path: Path) -> None:
    every = "".join(
        f"<property><name>yarn.resourcemanager.{name}</name><value>{value}</value></property>"
        for name, value in settings.items()
    )
    (tmp_path / "yarn-site.xml").write_text(f"<configuration>{every}</configuration>")
    assert managers({"YARN_CONF_DIR": str(tmp_path)}) == found


def test_without_settings_nothing_is_known(tmp_path: Path) -> None:
    assert managers({}) == managers({"HADOOP_CONF_DIR": str(tmp_path)}) == []
    (tmp_path / "yarn-site.xml").write_text("<configuration>")
    assert managers({"HADOOP_CONF_DIR": str(tmp_path)}) == []
