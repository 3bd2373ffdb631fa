"""A short run of what `make faults` does at length: the real command line, killed and starved."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.harness import problems, run, table
from tests.faults.trial import Setting

SEED = "7"
KINDS = (
    "kill -9 driver",
    "kill -9 JVM",
    "SIGSTOP driver",
    "log rotated and compressed",
    "log copied and truncated",
    "log truncated",
    "log deleted",
)


@pytest.mark.jvm
def test_results_are_the_truth_after_faults(tmp_path: Path) -> None:
    setting = Setting(tmp_path / "trial", agents=1, supervised=True)
    outcome = run(setting, SEED, [[kind] for kind in KINDS])
    told = [*map(str, outcome.struck), *problems(outcome)]
    assert outcome.is_good, "\n".join([*told, table([outcome])])
    assert len(outcome.verdict.windows) > 50
    assert any(window.is_complete for window in outcome.verdict.windows)
    assert {each.job for each in outcome.verdict.ranges} == {"kept", "shipped", "web"}
    assert any(each.is_complete for each in outcome.verdict.ranges)
    assert "Traceback" not in (tmp_path / "trial" / "program.txt").read_text()
