"""Examples that run a program and change it meanwhile: what is stored is what logs come to.

The oracle counts the records of each window by hand, and takes of other jobs the results that are
told to have been used, as they are stored.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from muntin.store.results import Results

EXAMPLES = Path(__file__).parents[2] / "examples" / "live"
Record = dict[str, Any]
Rows = list[dict[str, Any]]


def ran(name: str, folder: Path) -> str:
    """What an example prints; its logs and state are in the folder."""
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), str(folder)]
    paths = [str(EXAMPLES.parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    told = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    assert told.returncode == 0, told.stdout + told.stderr + (folder / "run.txt").read_text()
    return told.stdout


def records(folder: Path) -> list[Record]:
    texts = (path.read_text() for path in (folder / "logs").iterdir())
    return [json.loads(line) for text in texts for line in text.splitlines()]


def stored(folder: Path, job: str) -> dict[datetime, Rows]:
    """The rows of each window that has left, by its end."""
    windows: dict[datetime, Rows] = defaultdict(list)
    for row in Results(folder / ".muntin").read(job).to_pylist():
        if row["c2"]["reason"] != "open":
            assert row["c2"]["area"] == 1.0
            windows[row["window_end"]].append(row)
    return windows


def inside(every: Iterable[Record], row: Record) -> list[Record]:
    """The records of the window that a row is of."""
    start, end = (row[name].timestamp() for name in ("window_start", "window_end"))
    return [record for record in every if start <= record["ts"] < end]


def told(rows: Rows, names: Iterable[str]) -> Rows:
    return [{name: row[name] for name in names} for row in rows]


def top(counts: Counter[Any], most: int) -> list[tuple[Any, int]]:
    return sorted(counts.items(), key=lambda each: (-each[1], each[0]))[:most]


def pairs(some: list[Record]) -> list[tuple[tuple[str, str], int]]:
    wanted = defaultdict(set)
    for record in some:
        if record["type"] in ("like", "buy"):
            wanted[record["visitor"]].add(record["product"])
    counts = Counter((a, b) for both in wanted.values() for a in both for b in both if a != b)
    return top(counts, 50)


@pytest.mark.spark
def test_applications_that_use_one_another(tmp_path: Path) -> None:
    said = ran("shop", tmp_path)
    every = records(tmp_path)
    promoted, bundled = (stored(tmp_path, job) for job in ("micro_promotion", "product_bundling"))
    predicted = stored(tmp_path, "sale_prediction")
    assert len(promoted) == 4
    assert len(bundled) == 4
    for rows in promoted.values():
        clicked = (r["product"] for r in inside(every, rows[0]) if r["type"] == "click")
        expected = [{"product": p, "clicks": n} for p, n in top(Counter(clicked), 5)]
        assert told(rows, expected[0]) == expected
    for rows in bundled.values():
        made = pairs(inside(every, rows[0]))
        expected = [{"product": p, "peer": peer, "visitors": n} for (p, peer), n in made]
        assert told(rows, expected[0]) == expected
    assert {row["results_used"][0]["job"] for rows in predicted.values() for row in rows} == {
        "product_bundling"
    }
    changed = min(predicted).replace(minute=19)
    for end, rows in predicted.items():
        used = {each["job"]: each["end"] for each in rows[0]["results_used"]}
        product = "angry birds" if end <= changed else "chess"
        clicks = {r["product"]: r["clicks"] for r in promoted[used["micro_promotion"]]}
        peers = [r for r in bundled[used["product_bundling"]] if r["product"] == product]
        bought = (r["product"] for r in inside(every, rows[0]) if r["type"] == "buy")
        buys = Counter(bought)
        expected = [
            {"product": r["peer"], "visitors": r["visitors"], "clicks": clicks.get(r["peer"]),
             "buys": buys[r["peer"]]}
            for r in sorted(peers, key=lambda r: (-r["visitors"], r["peer"]))
        ]  # fmt: skip
        assert told(rows, expected[0]) == expected
    assert {end > changed for end in predicted} == {True, False}
    assert "And from a shell beside it" in said
    newest = promoted[max(promoted)][0]
    assert any(newest["product"] in line and f"{newest['clicks']} │" in line
               for line in said.splitlines())  # fmt: skip


@pytest.mark.spark
def test_a_job_is_changed_to_zoom_in(tmp_path: Path) -> None:
    ran("spam", tmp_path)
    every = [record for record in records(tmp_path) if record["label"] == "sales"]
    windows = stored(tmp_path, "campaign")
    versions = {end: {row["job_version"] for row in rows} for end, rows in windows.items()}
    assert [len(many) for many in versions.values()] == [1] * len(windows)
    assert {number for many in versions.values() for number in many} == {1, 2, 3}
    for end, rows in windows.items():
        some, (version,) = inside(every, rows[0]), versions[end]
        if version == 1:
            counts = top(Counter(r["publisher"] for r in some), 5)
            expected = [{"publisher": p, "posts": n} for p, n in counts]
            assert told(rows, expected[0]) == expected
            continue
        (used,) = rows[0]["results_used"]
        keys = ("publisher", "location")[: used["version"]]
        suspects = {tuple(row[key] for key in keys) for row in windows[used["end"]]}
        few = 10**9 if version == 2 else 100 if end.minute <= 11 else 50
        seen = [r for r in some if tuple(r[key] for key in keys) in suspects]
        seen = [r for r in seen if r["followers"] < few]
        expected = [
            {"publisher": p, "location": place, "posts": n}
            for (p, place), n in top(Counter((r["publisher"], r["location"]) for r in seen), 5)
        ]
        assert told(rows, expected[0]) == expected


def test_all_are_listed() -> None:
    table = (EXAMPLES.parent / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| \[(\w+)\.py\]\(live/", table, re.MULTILINE)
    assert listed == [path.stem for path in sorted(EXAMPLES.glob("*.sql"))]
