"""The values everything else speaks in. No behaviour beyond what their fields imply.

SQL inside these values is DuckDB's, already checked against the stream's columns, so that a
value can be sent to any process and mean the same there.
"""
