"""Tests of the language, mostly as pairs in fixtures/: what is written, and what comes of it."""
