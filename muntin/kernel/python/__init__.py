"""Jobs in Python: records to blocks of pickled values, blocks to windows, windows to rows."""
