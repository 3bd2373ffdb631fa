"""The process that Spark forks its Python workers from, with all that they need loaded.

Spark's own daemon forks first and imports later, once in every worker, and collects garbage
after every task. What is loaded here is shared by all workers and exempt from collection.
"""

from __future__ import annotations

import gc

from muntin.spark.nursery import Bed, hand_over


def load() -> None:
    """Imports all that a worker needs, and exempts it from collection."""
    import pyarrow as pa

    import muntin.spark.collection
    import muntin.spark.first_tasks  # noqa: F401
    from muntin.spark import internals

    internals.load_worker()
    pa.array([])  # Arrow looks for pandas when it makes its first array
    gc.collect()
    gc.freeze()


def main() -> None:
    bed = Bed.asked_for()
    if bed is None and hand_over():
        return
    load()
    if bed is not None and not bed.take_over():
        return
    from muntin.spark.internals import serve_workers

    serve_workers()


if __name__ == "__main__":
    main()
