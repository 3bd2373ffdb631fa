"""Storages for the tests of everything that is stored."""

import pytest

from tests.store.hdfs import hdfs, hdfs_server
from tests.store.s3 import s3, s3_port

__all__ = ["hdfs", "hdfs_server", "s3", "s3_port", "url"]


@pytest.fixture(params=["s3", "hdfs"])
def url(request: pytest.FixtureRequest) -> str:
    """A place for a state on each kind of storage under a URL."""
    found = request.getfixturevalue(request.param)
    return str(found if request.param == "hdfs" else found[0])
