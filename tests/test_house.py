"""The shape of the house: imports point one way, exports are few, examples in prose run."""

from __future__ import annotations

import ast
from pathlib import Path

import muntin

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "muntin"

# Lower floors know nothing of higher ones.
FLOORS = [
    {"errors", "model", "windows"},
    {"units"},
    {"fidelity"},
    {"kernel"},
    {"logs"},
    {"language"},
    {"schedule"},
    {"run"},
    {"store"},
    {"spark"},
    {"show"},
    {"api"},
    {"cli"},
]


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def part_of(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def imported(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found


def floor_of(part: str) -> int | None:
    return next((i for i, floor in enumerate(FLOORS) if part in floor), None)


def test_imports_point_one_way() -> None:
    wrong = []
    for path in modules():
        part = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        here = floor_of(part)
        if part in ("__init__", "__main__"):
            continue
        assert here is not None, f"{path} is on no floor"
        for module in imported(path):
            there = floor_of(part_of(module)) if module.startswith("muntin.") else None
            if there is not None and there > here:
                wrong.append(f"{path.relative_to(ROOT)} imports {module}")
    assert wrong == []


def test_only_the_spark_folder_imports_pyspark() -> None:
    outside = [
        path.relative_to(ROOT).as_posix()
        for path in modules()
        if any(module.split(".")[0] in ("pyspark", "py4j") for module in imported(path))
        and path.relative_to(PACKAGE).parts[0] != "spark"
    ]
    # These name Spark's types in signatures, and import them for the type checker only.
    assert outside == ["muntin/api.py", "muntin/show/console.py"]


def test_exports_are_the_short_list() -> None:
    public = {name for name in vars(muntin) if not name.startswith("_")}
    inner = {path.name.removesuffix(".py") for path in PACKAGE.iterdir()}
    assert public - inner <= set(muntin.__all__)
    assert all(hasattr(muntin, name) for name in muntin.__all__)


def test_modules_open_by_saying_what_they_are() -> None:
    silent = [p for p in modules() if not ast.get_docstring(ast.parse(p.read_text()))]
    assert silent == []
