"""Collections of steps in Spark's memory: what is kept where, and asked for."""
