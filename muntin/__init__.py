"""Muntin: standing questions over logs, answered window by window.

What is exported is loaded when it is first asked for: a command need not wait for all of it.
"""

import sys as _sys
import types as _types
from importlib import import_module as _import_module

TYPE_CHECKING = False  # as in `typing`, which takes longer to load than all of this
if TYPE_CHECKING:
    from muntin.api import ask, attach, results, run_on_spark
    from muntin.ask.answering import PastRows
    from muntin.collections.zorder import ZOrder
    from muntin.control.client import connect
    from muntin.errors import (
        BadRowError,
        BlockError,
        CodeError,
        ConflictError,
        EngineError,
        InputError,
        LanguageError,
        MuntinError,
        OrderError,
        SparkError,
        StateError,
    )
    from muntin.fidelity.score import C2, Reason, State
    from muntin.kernel.python.jobs import Incremental, MapReduce
    from muntin.language.program import load, sql, with_job
    from muntin.model.counts import Counts
    from muntin.model.jobs import Job, Program
    from muntin.model.streams import Stream
    from muntin.run.inline import run_inline as run
    from muntin.run.results import Result
    from muntin.spark.collections.collection import Collection
del TYPE_CHECKING

__all__ = [
    "C2",
    "BadRowError",
    "BlockError",
    "CodeError",
    "Collection",
    "ConflictError",
    "Counts",
    "EngineError",
    "Incremental",
    "InputError",
    "Job",
    "LanguageError",
    "MapReduce",
    "MuntinError",
    "OrderError",
    "PastRows",
    "Program",
    "Reason",
    "Result",
    "SparkError",
    "State",
    "StateError",
    "Stream",
    "ZOrder",
    "ask",
    "attach",
    "connect",
    "load",
    "results",
    "run",
    "run_on_spark",
    "sql",
    "with_job",
]


_HOMES = {
    "muntin.api": ("ask", "attach", "results", "run_on_spark"),
    "muntin.ask.answering": ("PastRows",),
    "muntin.collections.zorder": ("ZOrder",),
    "muntin.control.client": ("connect",),
    "muntin.errors": tuple(name for name in __all__ if name.endswith("Error")),
    "muntin.fidelity.score": ("C2", "Reason", "State"),
    "muntin.kernel.python.jobs": ("Incremental", "MapReduce"),
    "muntin.language.program": ("load", "sql", "with_job"),
    "muntin.model.counts": ("Counts",),
    "muntin.model.jobs": ("Job", "Program"),
    "muntin.model.streams": ("Stream",),
    "muntin.run.inline": ("run",),
    "muntin.run.results": ("Result",),
    "muntin.spark.collections.collection": ("Collection",),
}


class _Muntin(_types.ModuleType):
    """The package, which looks for an export in its home."""

    def __getattr__(self, name: str) -> object:
        home = next((home for home, names in _HOMES.items() if name in names), None)
        if home is None:
            raise AttributeError(f"module 'muntin' has no attribute '{name}'")
        value = getattr(_import_module(home), "run_inline" if name == "run" else name)
        setattr(self, name, value)
        return value

    def __setattr__(self, name: str, value: object) -> None:
        """The folders `run` and `ask` are none: functions that are exported have their names."""
        if name not in ("run", "ask") or not isinstance(value, _types.ModuleType):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *__all__})


_sys.modules[__name__].__class__ = _Muntin
