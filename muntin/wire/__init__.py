"""What agents, relays and pipelines say to each other, and how it is carried."""

import os

# gRPC has lines of its own for whatever goes wrong, above the message that says what to do.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
