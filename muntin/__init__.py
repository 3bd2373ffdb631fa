"""Muntin: standing questions over logs, answered window by window."""

from muntin.api import attach, results, run_on_spark
from muntin.errors import (
    BadRowError,
    BlockError,
    EngineError,
    InputError,
    LanguageError,
    MuntinError,
    StateError,
)
from muntin.inline import run_inline as run
from muntin.model import Counts, Job, Program, Result, Stream
from muntin.program import load, sql

__all__ = [
    "BadRowError",
    "BlockError",
    "Counts",
    "EngineError",
    "InputError",
    "Job",
    "LanguageError",
    "MuntinError",
    "Program",
    "Result",
    "StateError",
    "Stream",
    "attach",
    "load",
    "results",
    "run",
    "run_on_spark",
    "sql",
]
