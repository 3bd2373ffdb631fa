"""What must survive: results and checkpoints, in one folder or under one URL."""

DEFAULT_STATE = ".muntin"
