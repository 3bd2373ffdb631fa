"""Faults at random moments: after each the results are the truth, or say what they lack."""
