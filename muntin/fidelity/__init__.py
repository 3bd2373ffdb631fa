"""How complete a window is, when it may leave, and what of the logs a job looks at."""
