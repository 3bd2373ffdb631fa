"""Which panes make which windows."""
