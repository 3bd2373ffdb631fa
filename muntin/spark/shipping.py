"""The package and what it needs, for executors that do not have them.

They are asked first. Where one has none of it, or another Muntin, an archive of all that is
installed here goes to every executor, which unpacks it; a plain Python of the same version is all
that has to be there. The archive is made once for the versions in it, and kept in MUNTIN_CACHE.
Spark's own Python comes with Spark.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import platform
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from importlib import metadata
from pathlib import Path, PurePath
from zipfile import ZIP_DEFLATED, ZipFile

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException

import muntin
from muntin.errors import LostError, StartError
from muntin.run.inline import ignore
from muntin.spark.archive import UNUSED_SECONDS, cache_folder
from muntin.spark.first_tasks import digest, own_digest
from muntin.spark.master import is_local
from muntin.spark.trouble import is_lost, last_words

_PACKAGE = "muntin"
_EXTRA = "run"
_PLACE = "muntin-packages"  # in the folder of an executor
_OF_SPARK = frozenset(["pyspark", "py4j"])
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_USELESS = frozenset(["tests", "__pycache__", "include"])  # for who only runs it
_USELESS_FILES = (".pyi", ".pxd", ".h", ".hpp", ".pth", ".a")


def provide(context: SparkContext, note: Callable[[str], None] = ignore) -> None:
    """Sees to it that executors have what tasks need; raises a StartError where they cannot."""
    if is_local(context.master):
        return
    missing = _missing(context)
    if missing is None:
        return
    path = _archive(note)
    size = f"{path.stat().st_size / 1e6:,.0f} MB"
    note(f"{missing}: {size} of packages are sent to the executors")
    context.addArchive(f"{path}#{_PLACE}")
    context.pythonExec = _plain_python()
    context.environment["PYTHONPATH"] = _PLACE
    missing = _missing(context)
    if missing is not None:
        raise StartError(
            f"{missing}, although all packages were sent to them; executors need "
            f"{context.pythonExec} on their PATH, or at the path that PYSPARK_PYTHON has here, of "
            f"the version that runs here, {platform.python_version()}"
        )


def _missing(context: SparkContext) -> str | None:
    """What executors lack, if they do."""
    tasks = context.defaultParallelism
    try:
        found = context.parallelize(range(tasks), tasks).map(own_digest).distinct().collect()
    except (Py4JError, PySparkException) as error:
        said = str(error)
        if is_lost(said):
            raise LostError("Spark has lost an executor", "try again") from None
        return f"an executor has no Python with Muntin ({last_words(said)})"
    return None if found == [digest()] else "an executor has another Muntin"


def _plain_python() -> str:
    """The Python of executors: what the user says, or the one of this version on their PATH."""
    told = os.environ.get("PYSPARK_PYTHON", sys.executable)
    if told != sys.executable:
        return told
    return f"python{sys.version_info.major}.{sys.version_info.minor}"


def _archive(note: Callable[[str], None]) -> Path:
    """The archive of what is installed here; it is made where there is none."""
    every = distributions()
    known = [f"{d.name}=={d.version}" for d in every]
    known += [digest(), sys.implementation.cache_tag, platform.platform()]
    key = hashlib.sha256("\n".join(known).encode()).hexdigest()[:16]
    folder = cache_folder()
    if folder is None:
        folder = Path(tempfile.mkdtemp(prefix="muntin-packages-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = folder / f"packages-{key}.zip"
    if not path.exists():
        note(f"an archive of the package and all it needs is made in {folder}, once")
        _make(path, every)
    os.utime(path)  # in use
    for other in folder.glob("packages-*.zip"):
        with suppress(OSError):
            if time.time() - other.stat().st_mtime > UNUSED_SECONDS:
                other.unlink()
    return path


def _make(path: Path, every: Iterable[metadata.Distribution]) -> None:
    """Under another name first, so that nobody meets half an archive."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix="packages-", delete=False) as file:
            made = Path(file.name)
            try:
                with ZipFile(file, "w", ZIP_DEFLATED, compresslevel=1) as archive:
                    for name, source in sorted(_files(every)):
                        archive.write(source, name)
                made.replace(path)
            except BaseException:
                made.unlink()
                raise
    except OSError as error:
        raise StartError(
            f"packages for executors cannot be put into an archive at {path}: {error.strerror}; "
            "MUNTIN_CACHE names another folder"
        ) from error


def _files(every: Iterable[metadata.Distribution]) -> Iterator[tuple[str, Path]]:
    """Names in the archive, and where the files are."""
    folder = Path(muntin.__file__).parent
    for path in folder.rglob("*"):
        if path.is_file() and not _is_useless(path.relative_to(folder)):
            yield (_PACKAGE / path.relative_to(folder)).as_posix(), path
    for distribution in every:
        is_muntin = distribution.name == _PACKAGE  # whose modules may be anywhere
        for file in distribution.files or ():
            is_module = is_muntin and ".dist-info" not in file.parts[0]
            is_outside = ".." in file.parts or file.is_absolute()
            if not (is_module or is_outside or _is_useless(file)):
                source = Path(str(distribution.locate_file(file)))
                if source.is_file():
                    yield file.as_posix(), source


def _is_useless(path: PurePath) -> bool:
    return not _USELESS.isdisjoint(path.parts) or path.name.endswith(_USELESS_FILES)


def distributions() -> list[metadata.Distribution]:
    """Muntin and all that it needs where pipelines run, less what comes with Spark."""
    try:
        metadata.distribution(_PACKAGE)
    except metadata.PackageNotFoundError as error:
        raise StartError(
            "executors have no Muntin, and what to send them is not known, as it is not installed "
            "here: pip install 'muntin[run]'"
        ) from error
    found: dict[str, metadata.Distribution] = {}
    names = [_PACKAGE]
    while names:
        name = names.pop()
        if name.lower().replace("_", "-") in _OF_SPARK | found.keys():
            continue
        with suppress(metadata.PackageNotFoundError):  # not needed on this machine
            distribution = metadata.distribution(name)
            found[name.lower().replace("_", "-")] = distribution
            names += _needs(distribution, _EXTRA if name == _PACKAGE else None)
    return sorted(found.values(), key=lambda d: d.name)


def _needs(distribution: metadata.Distribution, extra: str | None) -> Iterator[str]:
    for requirement in distribution.requires or ():
        wanted = re.search(r"extra *== *['\"]([^'\"]+)['\"]", requirement)
        name = _NAME.match(requirement)
        if name is not None and (wanted is None or wanted[1] == extra):
            yield name[0]
