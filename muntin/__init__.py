"""Muntin: standing questions over logs, answered window by window."""

from muntin.api import attach, results, run_on_spark
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
from muntin.kernel.python.jobs import Incremental, MapReduce
from muntin.language.program import load, sql, with_job
from muntin.model import Counts, Job, Program, Stream
from muntin.run.inline import run_inline as run
from muntin.run.results import Result

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
