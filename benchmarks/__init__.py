"""Muntin against plain Spark on the same files and cores; not part of the package."""
