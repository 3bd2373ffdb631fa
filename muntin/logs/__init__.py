"""Log files: which there are, how they grow, and how their bytes become records."""
