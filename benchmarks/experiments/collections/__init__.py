"""Collections of steps against Spark alone: co-locality, moving skew, checkpoints and rates."""
