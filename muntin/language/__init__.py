"""SQL text to streams and jobs: parse, check, explain."""
