"""What must survive: results and checkpoints, as Delta tables under one state folder."""

from pathlib import Path

DEFAULT_STATE = Path(".muntin")
