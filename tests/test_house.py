"""The shape of the house: imports point one way, exports are few, examples in prose run."""

from __future__ import annotations

import ast
from pathlib import Path

import muntin

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "muntin"
TESTS = ROOT / "tests"

# Modules without a test of their name, each with what shows that it works.
TESTED_ELSEWHERE = {
    "store/findings": "values without behaviour, for all that tests/store/test_inspection.py finds",
    "ask/columns": "whatever is asked and refused in tests/ask/test_answering.py",
    "ask/question": "whatever is asked and refused in tests/ask/test_answering.py",
    "control/connection": "silent clients and a thousand of them in tests/control/test_service.py",
    "control/refusals": "statuses and messages in tests/control/test_ordering.py",
    "kernel/kinds/unfinished": "rows that SQL refuses in tests/whole/test_bad_values.py",
    "kernel/refusals": "records that SQL refuses in tests/whole/test_bad_values.py",
    "kernel/python/jobs": "protocols and bases without behaviour, for all jobs in tests",
    "kernel/python/mapping": "every job of tests/whole/test_python_jobs.py",
    "kernel/python/partials": "every job of tests/whole/test_python_jobs.py",
    "kernel/python/reducing": "every job of tests/whole/test_python_jobs.py",
    "language/calendars": "windows.sql and windows_errors.sql in tests/language/test_over.py",
    "language/grouped": "jobs.sql and queries_errors.sql in tests/language/test_queries.py",
    "language/scope": "jobs.sql and queries_errors.sql in tests/language/test_queries.py",
    "logs/folders": "tests/logs/test_watch.py: folders, links and roots that change",
    "logs/orphans": "tests/logs/test_register.py: files that are gone, and who goes on for them",
    "logs/sightings": "tests/logs/test_watch.py: files that change, are renamed and replaced",
    "logs/bad": "messages of bad rows in tests/logs/test_records.py",
    "model/tables": "versions that begin with a pane in tests/kernel/test_tables.py",
    "run/answers": "tests/whole/test_live.py and test_bounds.py, step by step",
    "run/leaps": "tests/whole/test_wrong_clocks.py: sources that leap ahead",
    "run/catalog": "jobs exchanged between turns in tests/run/test_loop.py",
    "run/chooser": "every sharing in tests/whole/test_answers.py",
    "run/contracts": "protocols and values without behaviour",
    "run/due": "tests/whole/test_live.py and test_bounds.py, step by step",
    "run/heirs": "versions that change at a pane in tests/run/test_succession.py",
    "run/inline": "every inline answer of tests/whole",
    "run/many": "rows that tasks have and files that have them in tests/spark/test_rows.py",
    "run/needs": "what is read of finite input in tests/whole/test_finite_fidelity.py",
    "run/notices": "what is told once in tests/whole/test_bounds.py and tests/run/test_skipping.py",
    "run/receipt": "what is delivered twice in tests/run/test_loop.py",
    "run/recipes": "sources of finite input in tests/whole/test_finite_fidelity.py",
    "run/results": "tests/whole/test_live_on_spark.py and tests/store/test_results.py",
    "run/retention": "tests/whole/test_edges.py: what is forgotten, and what is not",
    "show/jobs": "SHOW JOBS in tests/show/test_shell.py",
    "show/demo/shop": "writes the logs that show/demo/show follows",
    "store/blocks": "tests/store/test_checkpoint.py, and tests/spark/test_collection.py from tasks",
    "wire/lines": "whoever is spoken to on one in tests/wire/test_looks.py",
    "cli_state": "what it prints in tests/show/test_state.py",
    "store/buckets": "S3 and what speaks like it in tests/store/test_objects.py",
    "store/requests": "a protocol and errors; kept by both kinds in tests/store/test_objects.py",
    "store/decisions": "commits of two programs in tests/store/test_lease.py, and every checkpoint",
    "store/parts": "files that tasks write in tests/spark/test_rows.py",
    "store/history": "memory and tables tell the same in tests/control/test_feed.py",
    "spark/collections/options": "settings that cannot be, in tests/spark/collections",
    "spark/collections/packing": "whatever is added in tests/spark/collections/test_collection.py",
    "spark/collections/piece": "memory, disk and copies in tests/spark/collections",
    "spark/collections/places": "tests/spark/collections/test_collection_cluster.py",
    "spark/collections/range": "whatever is asked in tests/spark/collections/test_collection.py",
    "spark/context": "the session of every test on Spark",
    "spark/daemon": "the workers of every test on Spark",
    "spark/first_tasks": "the session of every test on Spark, and tests/spark/test_cluster.py",
    "spark/frames": "tests/spark/test_attach.py and tests/whole/test_frames.py",
    "spark/answering": "tests/spark/test_collection.py, and every answer on Spark",
    "spark/holdings": "tests/spark/test_collection.py: what steps hold and let go",
    "spark/newest": "LATEST on Spark and on frames, in tests/whole/test_latest.py",
    "spark/nursery": "the workers of every run in tests/show/test_console.py",
    "spark/settings": "the session of every test on Spark, and tests/spark/test_java.py",
}

# Lower floors know nothing of higher ones.
FLOORS = [
    {"durations", "errors", "interrupts", "lean", "loading", "model", "supervision", "windows"},
    {"units"},
    {"collections"},
    {"fidelity"},
    {"kernel"},
    {"logs"},
    {"wire"},
    {"language"},
    {"schedule"},
    {"run"},
    {"store"},
    {"ask"},
    {"agent", "relay"},
    {"spark"},
    {"control"},
    {"show"},
    {"api"},
    {"cli_cluster", "cli_control", "cli_state"},
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
    assert outside == ["muntin/api.py", "muntin/ask/answering.py", "muntin/show/console.py"]


def test_exports_are_the_short_list() -> None:
    public = {name for name in vars(muntin) if not name.startswith("_")}
    inner = {path.name.removesuffix(".py") for path in PACKAGE.iterdir()}
    assert public - inner <= set(muntin.__all__)
    assert all(hasattr(muntin, name) for name in muntin.__all__)


def test_modules_open_by_saying_what_they_are() -> None:
    silent = [p for p in modules() if not ast.get_docstring(ast.parse(p.read_text()))]
    assert silent == []


def test_modules_have_a_test_of_their_name() -> None:
    """`muntin/a/b.py` is tested by `tests/a/test_b.py`, or by `test_b_*.py` there."""
    untested = {name for name in map(module_name, modules()) if not named_after(name)}
    assert untested - set(TESTED_ELSEWHERE) == set(), "there is no test of its name"
    assert set(TESTED_ELSEWHERE) - untested == set(), "there is one now: take it off the list"


def test_tests_have_the_name_of_a_module() -> None:
    """What is about no single module is in `tests/whole`, or with the harness in `tests/faults`."""
    named = {test for path in modules() for test in named_after(module_name(path))}
    apart = (TESTS / "whole", TESTS / "faults")
    there = {path for path in TESTS.rglob("test_*.py") if path.parent not in apart}
    assert there - named == set()


def module_name(path: Path) -> str:
    return path.relative_to(PACKAGE).with_suffix("").as_posix()


def named_after(module: str) -> list[Path]:
    folder, _, name = module.rpartition("/")
    if name.startswith("__"):
        return [Path(__file__)]  # nothing but a docstring, exports or one call
    tests = (TESTS / folder).glob(f"test_{name}*.py")
    return [path for path in tests if f"{path.stem}_".startswith(f"test_{name}_")]


def private_names(path: Path) -> set[str]:
    """Names with an underscore that a module takes from others: imported, or of a value."""
    tree = ast.parse(path.read_text())
    own = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and getattr(node.value, "id", "") in ("self", "cls")
    }
    own |= {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    names = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)} - own
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(("pyspark", "py4j")):
            names |= {alias.name for alias in node.names}
    return {name for name in names if name.startswith("_") and not name.startswith("__")}


def test_only_one_module_leans_on_internals_of_pyspark() -> None:
    spark = PACKAGE / "spark"
    leaning = {p.name: names for p in spark.rglob("*.py") if (names := private_names(p))}
    assert leaning.keys() == {"internals.py"}
