"""What must survive: results and checkpoints, as Delta tables under one state folder."""
