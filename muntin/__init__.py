"""Muntin: standing questions over logs, answered window by window."""

from muntin.api import attach, results, run_on_spark
from muntin.emission import Result
from muntin.errors import (
    BadRowError,
    BlockError,
    CodeError,
    EngineError,
    InputError,
    LanguageError,
    MuntinError,
    StateError,
)
from muntin.fidelity.score import C2, Reason, State
from muntin.inline import run_inline as run
from muntin.jobs import Incremental, MapReduce
from muntin.model import Counts, Job, Program, Stream
from muntin.program import load, sql, with_job

__all__ = [
    "C2",
    "BadRowError",
    "BlockError",
    "CodeError",
    "Counts",
    "EngineError",
    "Incremental",
    "InputError",
    "Job",
    "LanguageError",
    "MapReduce",
    "MuntinError",
    "Program",
    "Reason",
    "Result",
    "State",
    "StateError",
    "Stream",
    "attach",
    "load",
    "results",
    "run",
    "run_on_spark",
    "sql",
    "with_job",
]
