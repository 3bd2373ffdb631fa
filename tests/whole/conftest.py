"""Storages for whole runs."""

from tests.store.hdfs import hdfs, hdfs_server
from tests.store.s3 import s3_port

__all__ = ["hdfs", "hdfs_server", "s3_port"]
