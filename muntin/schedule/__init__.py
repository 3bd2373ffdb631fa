"""When work is done: how long batches take here, and which deadlines are ahead."""
