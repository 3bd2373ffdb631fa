"""Questions about ranges of the past, answered from panes that jobs retain."""
