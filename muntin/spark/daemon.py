"""The process that Spark forks its Python workers from, with all that they need loaded.

Spark's own daemon forks first and imports later, once in every worker, and collects garbage
after every task: with our libraries loaded that alone takes 40 ms a task. What is loaded here
is shared by all workers and exempt from collection.
"""

from __future__ import annotations

import gc

import pyarrow as pa
import pyspark.worker  # noqa: F401
from pyspark import daemon

import muntin.spark.collection
import muntin.spark.context  # noqa: F401

if __name__ == "__main__":
    pa.array([])  # Arrow looks for pandas when it makes its first array
    gc.collect()
    gc.freeze()
    daemon.manager()
