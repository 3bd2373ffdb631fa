"""Where the resource managers of YARN are, as Hadoop's settings say."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree

_VARIABLES = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")
_PREFIX = "yarn.resourcemanager."
_PORT = 8032


def managers(environment: Mapping[str, str]) -> list[str]:
    """The addresses, HOST:PORT; none where the settings do not simply have them."""
    told: dict[str, str] = {}
    for folder in filter(None, map(environment.get, _VARIABLES)):
        told |= _settings(Path(folder) / "yarn-site.xml")
    ids = told.get(f"{_PREFIX}ha.rm-ids", "")
    found = [_address(told, f".{each.strip()}") for each in ids.split(",")] if ids else []
    known = found or [_address(told, "")]
    return [] if None in known else [address for address in known if address is not None]


def _address(told: Mapping[str, str], suffix: str) -> str | None:
    address, host = (told.get(f"{_PREFIX}{name}{suffix}") for name in ("address", "hostname"))
    address = address or (f"{host}:{_PORT}" if host else None)
    return None if address is None or "$" in address else address


def _settings(file: Path) -> dict[str, str]:
    try:
        every = ElementTree.parse(file).getroot().iter("property")
    except (OSError, ElementTree.ParseError):  # of which Hadoop itself tells
        return {}
    pairs = ((each.findtext("name", ""), each.findtext("value", "")) for each in every)
    return {name.strip(): value.strip() for name, value in pairs}
