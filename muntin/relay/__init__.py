"""A process between agents and pipelines: passes on what they say, and merges blocks on the way."""
