"""Who looks after executors. That they come, go and are waited for: test_cluster.py."""

from __future__ import annotations

import threading

import pytest
from pyspark.sql import SparkSession

from muntin.errors import SparkError
from muntin.spark.executors import Executors


def test_on_one_machine_there_is_nobody_to_look_after(spark: SparkSession) -> None:
    executors = Executors(spark.sparkContext, threading.Event(), pytest.fail)
    before = threading.active_count()
    with executors.watched(), executors.busy():
        assert threading.active_count() == before
        assert not executors.have_come()
        assert not executors.have_come(0.0)
    assert not executors.gave_up


def test_errors_of_others_stay_theirs(spark: SparkSession) -> None:
    executors = Executors(spark.sparkContext, threading.Event(), pytest.fail)
    with pytest.raises(SparkError, match="mine"), executors.busy():
        raise SparkError("mine")
