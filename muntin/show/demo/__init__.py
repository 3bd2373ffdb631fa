"""A web shop of a few servers that writes logs, and three standing questions about it."""
