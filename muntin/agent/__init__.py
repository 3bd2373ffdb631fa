"""A small process beside a service: reads its logs where they are, and ships blocks."""
