"""The process that Spark forks its Python workers from, with all that they need loaded.

Spark's own daemon forks first and imports later, once in every worker, and collects garbage
after every task: with our libraries loaded that alone takes 40 ms a task. What is loaded here
is shared by all workers and exempt from collection.
"""

from __future__ import annotations

import gc

from pyspark import daemon

import muntin.kernel.block
import muntin.logs.records  # noqa: F401

if __name__ == "__main__":
    gc.collect()
    gc.freeze()
    daemon.manager()
