"""The demo as a newcomer has it: a process that shows answers and ends."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_demo_shows_three_tables_with_scores_and_ends(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "muntin", "demo", "--seconds", "12"],
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(tmp_path), "COLUMNS": "120"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "servers write to" in done.stdout
    captions = re.findall(r"lag .* s · ([\d,]+) records · ([\d.]+ %) of (\d+) servers", done.stdout)
    assert len(captions) == 3
    assert all(int(records.replace(",", "")) > 0 for records, _, _ in captions)
    assert "Next: write your own SQL file" in done.stdout
    assert list(tmp_path.iterdir()) == []
