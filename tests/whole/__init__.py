"""Tests of no single module: what a user gets, through every layer that takes part.

Here belong answers against an oracle (inline, on Spark, attached), examples, benchmarks and the
documents, which have to run as printed. A test of one module's own contract belongs in the
folder that mirrors the module's.
"""
