"""The user's Python: found by name, sent by value where a worker could not find it.

Code of installed packages is imported by name everywhere. What is in the user's own files, in a
notebook or in `__main__` is pickled by value, so that workers need no copy of those files.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import io
import linecache
import os
import shlex
import sys
import sysconfig
from collections.abc import Callable
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Any
from weakref import WeakValueDictionary

import cloudpickle

from muntin.errors import CodeError
from muntin.kernel.python.rounds import CAUGHT
from muntin.kernel.python.versions import digest
from muntin.model.shapes import Code

# Classes that were made in this process. To load one here would change it: cloudpickle gives the
# class that is there already the methods it had when it was pickled.
_HERE: WeakValueDictionary[bytes, type] = WeakValueDictionary()


def find(reference: str, folder: str | None = None, anew: bool = False) -> Any:
    """What `module:name` stands for; modules are looked for in the folder too.

    What follows a space are arguments, which are none of its name. Asked for it `anew`, modules of
    the folder are read again. What was found before stays as it is.
    """
    reference, *_ = reference.split(maxsplit=1) or [""]
    module_name, colon, name = reference.partition(":")
    if not (module_name and colon and name):
        raise CodeError(f"'{reference}' names no Python; expected 'module:Class'")
    try:
        if anew and folder is not None:
            _forget(folder)
        module = _imported(module_name, folder)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        where = f" (looked for in {folder} and on Python's path)" if folder else ""
        raise CodeError(f"module '{module_name}' cannot be imported{where}: {reason}") from error
    target: Any = module
    for attribute in name.split("."):
        if not hasattr(target, attribute):
            raise CodeError(f"module '{module_name}' has no '{name}'; it has {_classes(module)}")
        target = getattr(target, attribute)
    return target


def reference_of(target: Any) -> str:
    named = target if hasattr(target, "__qualname__") else type(target)
    return f"{named.__module__}:{named.__qualname__}"


def payload_of(target: Any) -> bytes | None:
    """The code by value, or None where every process can import it."""
    named = target if hasattr(target, "__qualname__") else type(target)
    module = sys.modules.get(named.__module__)
    if module is not None and _is_installed(module) and "<locals>" not in named.__qualname__:
        return None
    try:
        payload = _pickled(target, module)
    except Exception as error:
        message = f"{reference_of(target)} cannot be sent to workers: {error}"
        raise CodeError(f"{message}; what it refers to has to be picklable") from error
    if inspect.isclass(target):
        _HERE[payload] = target
    return payload


def version_of(target: Any, payload: bytes | None) -> str:
    """Changes when the text of the code does; of code sent by value, when what it uses does too."""
    if payload is not None:
        return digest(target, lambda module: not _is_installed(module))
    try:
        text = inspect.getsource(target if inspect.isclass(target) else type(target)).encode()
    except (OSError, TypeError):
        text = b""
    return sha256(text).hexdigest()[:12]


def target_of(code: Code) -> Any:
    """The code itself, in this process."""
    return _target(code, code.payload)


@lru_cache(maxsize=256)
def _target(code: Code, payload: bytes | None) -> Any:
    if code.folder is not None and code.folder not in sys.path:
        sys.path.append(code.folder)
    if payload is None:
        return find(code.reference)
    return _HERE[payload] if payload in _HERE else _known(code, cloudpickle.loads, payload)


def new_job(code: Code) -> Any:
    """An instance of a job's class."""
    return _known(code, lambda target: instance_of(target, code.reference), target_of(code))


def loaded(code: Code) -> Any:
    """This process's instance of a job's class."""
    return _job(code, code.payload)


@lru_cache(maxsize=256)
def _job(code: Code, payload: bytes | None) -> Any:
    """Two codes of one text may be sent with different values."""
    return new_job(code)


def _known(code: Code, make: Callable[[Any], Any], given: Any) -> Any:
    """What was possible where the job was created, and may not be where it runs."""
    try:
        return make(given)
    except CAUGHT as error:
        message = f"{code.reference} cannot be loaded: {type(error).__name__}: {error}"
        raise CodeError(f"{message}; what it needs has to be on every machine") from error


def methods_of(code: Code) -> list[str]:
    """The methods of a job that Muntin calls, in the order in which data meets them."""
    names = ("steps", "map_batches", "mapper", "map", "init", "update", "combiner", "uncombiner",
             "reducer", "finalize")  # fmt: skip
    return [name for name in names if callable(getattr(target_of(code), name, None))]


def instance_of(target: Any, reference: str = "") -> Any:
    """A job of a class, with the arguments that follow the name in a reference, if it takes some.

    Classes of mrjob read the command line unless they are told not to.
    """
    _, *arguments = shlex.split(reference) or [""]
    takes_args = (
        inspect.isclass(target) and hasattr(target, "steps") and "args" in _parameters(target)
    )
    if arguments and not takes_args:
        raise CodeError(f"{reference_of(target)} takes no arguments; expected 'module:Class' alone")
    if not inspect.isclass(target):
        return target
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            job: Any = target(**({"args": arguments} if takes_args else {}))
    except SystemExit:  # how a parser of arguments refuses them
        _, refused, reason = said.getvalue().strip().rpartition("error: ")
        if not refused:
            raise
        told = (
            f"refuses {shlex.join(arguments)}" if arguments else "cannot be made without arguments"
        )
        raise CodeError(f"{reference_of(target)} {told}: {reason}") from None
    if hasattr(job, "sandbox"):
        job.sandbox(stderr=_Nowhere())  # where mrjob reports counters
    return job


class _Nowhere:
    def write(self, data: object) -> None: ...

    def flush(self) -> None: ...


def _parameters(target: Any) -> list[str]:
    """What the constructors of a class and of those it derives from are called with."""
    makers = [vars(each)["__init__"] for each in inspect.getmro(target) if "__init__" in vars(each)]
    parameters = [p for make in makers for p in inspect.signature(make).parameters.values()]
    return [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]


def _imported(module: str, folder: str | None) -> ModuleType:
    if folder is not None and folder not in sys.path:
        sys.path.insert(0, folder)
        try:
            importlib.invalidate_caches()
            return importlib.import_module(module)
        finally:
            sys.path.remove(folder)
    return importlib.import_module(module)


def _forget(folder: str) -> None:
    """Has modules of a folder imported again by whoever asks for them next."""
    within = folder.rstrip(os.sep) + os.sep  # of a thousand modules, so not as paths
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__file__", None)
        inside = path is not None and str(path).startswith(within)
        if inside and name != "__main__" and not _is_installed(module):
            del sys.modules[name]
    linecache.checkcache()


def _is_installed(module: ModuleType) -> bool:
    path = getattr(module, "__file__", None)
    if module.__name__ == "__main__" or path is None:
        return False
    homes = {sysconfig.get_path(kind) for kind in ("purelib", "platlib", "stdlib")}
    own = module.__name__.partition(".")[0] == __name__.partition(".")[0]
    return own or any(Path(path).is_relative_to(home) for home in homes)


def _pickled(target: Any, module: ModuleType | None) -> bytes:
    if module is None or module.__name__ == "__main__":
        return bytes(cloudpickle.dumps(target))
    cloudpickle.register_pickle_by_value(module)
    try:
        return bytes(cloudpickle.dumps(target))
    finally:
        cloudpickle.unregister_pickle_by_value(module)


def _classes(module: ModuleType) -> str:
    own = [n for n, v in vars(module).items() if getattr(v, "__module__", "") == module.__name__]
    return ", ".join(own) or "nothing of its own"
