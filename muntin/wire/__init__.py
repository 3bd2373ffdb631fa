"""What agents, relays and pipelines say to each other, and how it is carried."""
