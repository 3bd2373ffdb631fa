"""What tasks send to the driver, counted."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from pyspark import RDD

from muntin.spark.telling import Telling


class Sent:
    """The bytes of all that tasks send: results of jobs, and what they tell beside them."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        """Counts until the patch is undone; no more than it has to are sent as few."""
        self.bytes = 0
        collect, told_by = RDD.collect, Telling.heard

        def counted(rdd: RDD[Any]) -> list[Any]:
            return self._count(collect(rdd))

        def heard(telling: Telling[Any], tasks: int) -> list[Any]:
            return self._count(told_by(telling, tasks))

        patch.setattr(RDD, "collect", counted)
        patch.setattr(Telling, "heard", heard)
        patch.setattr("muntin.spark.collection.ROWS_AT_HAND", 1 << 14)
        patch.setattr("muntin.spark.collection.SAVED_BY_DRIVER", 1 << 14)

    def _count(self, found: list[Any]) -> list[Any]:
        self.bytes += len(pickle.dumps(found))
        return found
