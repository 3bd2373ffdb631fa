"""The same path on Spark: tasks compute blocks, executors keep them, partitions finish them."""
