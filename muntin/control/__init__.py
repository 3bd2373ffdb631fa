"""The control service: what a running program answers to those who ask, order and follow."""
