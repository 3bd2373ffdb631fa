"""Strikes a running program with faults, and says whether its results are the truth.

python -m tests.faults --faults 200 --seed 1
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path

from tests.faults.harness import table, trials
from tests.faults.kinds import FAULTS
from tests.faults.trial import PLACES, Setting

# One trial after the other is on such a place, and supervised or not.
SETTINGS = (
    ("local", False), ("cluster", True), ("local", True), ("storage", False),
    ("local", False), ("cluster", False), ("local", True), ("storage", True),
)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.faults", description=(__doc__ or "").strip())
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--each", type=int, default=25, help="faults of a trial")
    parser.add_argument("--first", type=int, default=0, help="the trial of the seed to begin with")
    parser.add_argument("--only", action="append", choices=FAULTS, help="a kind of fault")
    parser.add_argument("--agents", type=int, default=2)
    parser.add_argument("--on", action="append", choices=PLACES, help="where to run")
    parser.add_argument("--folder", type=Path, default=None)
    given = parser.parse_args()
    folder = given.folder or Path(tempfile.mkdtemp(prefix="muntin-faults-"))
    print(f"seed {given.seed}, in {folder}", flush=True)
    settings = [
        Setting(folder, agents=given.agents, on=place, supervised=supervised)
        for place, supervised in SETTINGS
        if place in (given.on or PLACES)
    ]
    kinds = given.only or list(FAULTS)
    found = trials(folder, given.seed, given.faults, given.each, settings, kinds, given.first)
    outcomes = list(found)
    print(table(outcomes))
    bad = [outcome.seed for outcome in outcomes if not outcome.is_good]
    print(f"trials that failed: {', '.join(bad) or 'none'}; seed {given.seed}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
