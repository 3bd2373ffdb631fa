"""On several executors, the same key groups of all steps are on the same executor."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from muntin.spark.internals import spark_home
from tests.waiting import PATIENCE

# Follows a log for some batches, then asks Spark which executor has each partition of each step.
PROGRAM = """
import json
import sys
import time
from pathlib import Path

import muntin as mt
from muntin.fidelity.scoreboard import Source
from muntin.kernel.due import Due
from muntin.run.catalog import Catalog
from muntin.run.contracts import Request
from muntin.run.files import LogFiles
from muntin.spark.collection import SparkCollection
from muntin.spark.context import start_context

folder = Path(sys.argv[1])
program = mt.sql(f'''
CREATE STREAM s (t BIGINT, k VARCHAR, n BIGINT) FROM '{folder}/{{source}}.jsonl'
FORMAT json TIMESTAMP t;
CREATE JOB sums AS SELECT k, sum(n) AS n FROM s GROUP BY k WINDOW 1 MINUTE, 2 MINUTES;
''')
context = start_context("local-cluster[2,2,1024]")
catalog = Catalog.of(program.streams["s"], program.jobs.values())
files, collection = LogFiles(program.streams["s"], True), SparkCollection(context)
sources = {}
rows = []
for batch in range(4):
    with (folder / "web-1.jsonl").open("a") as log:
        for n in range(200):
            log.write(json.dumps({"t": 60 * batch, "k": f"key {n}", "n": 1}) + "\\n")
    found = files.next(Request(1.0, True, None, sources, 0, None))
    for reading in collection.add(found.work, catalog.recipes, {}):
        sources[reading.source] = Source(sequence=reading.sequence)
    due = Due({"sums": [[batch + 1], [batch + 1] if batch % 2 else []]}, more=True)
    rows.append(collection.answer(catalog, due, {}).rows["sums"].num_rows)
held = [step.held.id() for step in collection.steps] + [h.id() for h in collection._made.values()]
store = context._jsc.sc().statusStore()

def executors(rdd):
    # By partition, who has it: what executors have told of their blocks.
    parts = store.rdd(rdd).partitions().get()
    blocks = (parts.apply(number) for number in range(parts.size()))
    return {int(b.blockName().rsplit("_", 1)[1]): b.executors().mkString(",") for b in blocks}

limit = time.monotonic() + 60
while any(len(executors(rdd)) < collection.groups for rdd in held):
    assert time.monotonic() < limit, [executors(rdd) for rdd in held]
    time.sleep(0.1)
places = {g: [executors(rdd)[g] for rdd in held] for g in range(collection.groups)}
print(json.dumps({"rows": rows, "steps": len(held), "places": places}))
context.stop()
"""


def test_partitions_of_all_steps_are_where_the_first_are(tmp_path: Path) -> None:
    home = tmp_path / "spark"
    home.mkdir()
    for part in ("bin", "jars", "python"):  # executors work in this folder
        (home / part).symlink_to(spark_home() / part)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        cwd=Path(__file__).parents[2],
        env=os.environ | {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["rows"] == [200, 400, 200, 400]
    assert told["steps"] >= 4
    assert all(len(set(each)) == 1 for each in told["places"].values()), told
    assert len({each[0] for each in told["places"].values()}) == 2  # all executors have some
