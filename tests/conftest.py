"""One Spark session for all tests that need one, and hypothesis without deadlines.

Where CI is set, examples are the same in every run: what lands depends on the change alone.
Tests of two workers are shared out so that one worker has the Spark session, and the long ones
go first. `make soak` takes tests in an order that its seed decides, until its time is over.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings

from tests.effort import EFFORT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

settings.register_profile(
    "muntin",
    max_examples=100 * EFFORT,
    deadline=None,
    derandomize="CI" in os.environ,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("muntin")

# A shell has what it starts in the background ignore Ctrl-C, and so would all that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

SOAK_SEED = os.environ.get("SOAK_SEED")
SOAK_UNTIL = float(os.environ.get("SOAK_UNTIL", "inf"))  # seconds since the epoch


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker("spark")
            item.add_marker(pytest.mark.xdist_group("spark"))
    if SOAK_SEED is not None:
        random.Random(SOAK_SEED).shuffle(items)
    items.sort(key=_turn)


def _turn(item: pytest.Item) -> int:
    if item.get_closest_marker("spark"):
        return 0
    if item.get_closest_marker("jvm"):
        return 1
    return 2 if is_hypothesis_test(getattr(item, "obj", None)) else 3


def pytest_runtest_setup() -> None:
    if time.time() > SOAK_UNTIL:
        pytest.skip("the time of the soak is over")


@pytest.fixture(autouse=True)
def looking_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small windows go the ways of large ones."""
    monkeypatch.setattr("muntin.kernel.consolidate.WORTH_LOOKING_AHEAD", 0)


@pytest.fixture
def looking_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every look is at all files: a run that is stepped by hand does not wait for events."""
    monkeypatch.setattr("muntin.logs.folders.Folders.changed", lambda self: None)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from pyspark.sql import SparkSession

    from muntin.spark.context import start_context

    # Workers have the keys of the storage that tests have on this machine, and of no other.
    os.environ.setdefault("AWS_ACCESS_KEY_ID", "somebody")
    os.environ.setdefault("AWS_SECRET_ACCESS_KEY", "secret")
    session = SparkSession(start_context("local[2]"))
    yield session
    session.stop()
