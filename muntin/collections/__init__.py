"""Collections of steps: how keys are parted, grouped, placed, kept and checkpointed. Pure."""
