"""Jobs that come, change and go over HTTP while a program runs on Spark."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from muntin.control.client import connect
from muntin.store.results import Results
from tests.control.running import running_on_spark, sums
from tests.waiting import wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PEAKS = "CREATE JOB peaks AS SELECT max(n) AS n FROM clicks WINDOW 1 SECOND"


def test_a_job_comes_and_goes_and_others_notice_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    with running_on_spark(tmp_path, spark.sparkContext) as here:
        app = connect(here.state)
        here.write(1, 2, 3)
        wait_for(lambda: len(app.results("sums")) == 2)
        (created,) = app.create(PEAKS)
        here.write(4, 5, 6, 7)
        wait_for(lambda: len(app.latest("peaks")) and app.latest("peaks")[0].rows[0]["n"] == 6)
        (replaced,) = app.replace("peaks", PEAKS.replace("max(n)", "min(n) + 100"), expected=1)
        assert (created.version, replaced.version) == (1, 2)
        here.write(8, 9, 10, 11)
        wait_for(lambda: app.latest("peaks")[0].rows[0]["n"] == 110)
        app.drop("peaks", expected=2)
        here.write(12, 13, 14)
        wait_for(lambda: len(app.results("sums")) == 13)
        assert sums(here.results("sums")) == [(f"{n:02}", "pen", n) for n in range(1, 14)]
        assert {each["c2"]["area"] for each in here.results("sums")} == {1.0}
        peaks = [(each.version, row["n"]) for each in app.results("peaks") for row in each.rows]
        assert {(1, 5), (1, 6), (2, 109), (2, 110)} <= {*peaks}
        assert all(version == 1 if n < 100 else version == 2 for version, n in peaks)
        assert [job["job"] for job in app.status()["jobs"]] == ["sums"]
        followed = [each.rows[0]["n"] for each in islice(app.follow("sums", start=True), 13)]
    assert followed == list(range(1, 14))
    assert Results(tmp_path / "state").read("sums")["n"].to_pylist() == followed
