"""The loop that all runs share: what is read, what is due, what has left, what is kept."""
