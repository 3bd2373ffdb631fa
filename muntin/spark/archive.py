"""An archive of Java's classes, with which Spark starts sooner.

The first run without one writes down which classes it loads; after its end Java makes the
archive from that list, in the background and at the lowest priority. Java itself checks that an
archive is of its own version and of these jars, and goes without one that is not.

MUNTIN_CACHE names the folder for archives; where it is empty, there are none.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from muntin.spark.java import Java

_AGAIN_SECONDS = 86_400.0  # after which an archive that could not be made is tried again
UNUSED_SECONDS = 90 * 86_400.0
# Made under another name, so that nobody meets half an archive. What remains of one that could
# not be made is its folder, which tells the next run to leave it for now.
_MAKE = """
cd "$1" || exit
shift
{ if nice -n 19 "$@"; then mv -f archive ../"$ARCHIVE"; rm -rf "$PWD"; else rm -f ./*; fi; } &
"""


@dataclass(frozen=True)
class Archive:
    """The place of the archive for one Java and one Spark."""

    path: Path
    java: Java
    class_path: str

    @staticmethod
    def of(java: Java) -> Archive | None:
        """None where archives are not wanted, or have no place."""
        folder = cache_folder()
        if folder is None:
            return None
        class_path = java.class_path(os.environ)
        jars = java.home / "jars"
        known = [
            str(java.java),
            class_path,
            *(str(p.stat().st_mtime_ns) for p in (java.java, jars)),
        ]
        key = hashlib.sha256("\n".join(known).encode()).hexdigest()[:16]
        return Archive(folder / f"spark-{key}.jsa", java, class_path)

    def options(self, classes: Path | None) -> list[str]:
        """Java's options: to use the archive or, where there is none, to list its classes."""
        try:
            os.utime(self.path)  # in use
        except FileNotFoundError:
            wanted = classes is not None and self._may_make()
            return [f"-XX:DumpLoadedClassList={classes}"] if wanted else []
        except OSError:
            pass  # somebody else's, perhaps
        return [f"-XX:SharedArchiveFile={self.path}"]

    def make(self, classes: Path) -> None:
        """Begins to make the archive from a list of classes, unless somebody else does.

        Neither waits nor fails: without an archive all goes on as it did.
        """
        making = self._making()
        with suppress(OSError):
            making.parent.mkdir(parents=True, exist_ok=True)
            self._clean()
            making.mkdir()
            shutil.move(classes, making / "classes")
            files = ["-XX:SharedClassListFile=classes", "-XX:SharedArchiveFile=archive"]
            java = [str(self.java.java), "-Xshare:dump", *files, "-Xmx1g", "-cp", self.class_path]
            subprocess.run(
                ["sh", "-c", _MAKE, "sh", str(making), *java],
                env=os.environ | {"ARCHIVE": self.path.name},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )

    def _making(self) -> Path:
        return self.path.with_suffix(".making")

    def _may_make(self) -> bool:
        return not _is_younger(self._making(), _AGAIN_SECONDS)

    def _clean(self) -> None:
        """Removes archives that nobody uses any more, and an attempt of long ago."""
        for path in self.path.parent.glob("spark-*.jsa"):
            if not _is_younger(path, UNUSED_SECONDS):
                path.unlink(missing_ok=True)
        if self._may_make():
            shutil.rmtree(self._making(), ignore_errors=True)


def cache_folder() -> Path | None:
    """Where archives are; None where none are wanted, or there is no place for them."""
    named = os.environ.get("MUNTIN_CACHE")
    if named is not None:
        return Path(named).absolute() if named else None
    with suppress(RuntimeError):  # of a user without a home
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "muntin"
    return None


def _is_younger(path: Path, seconds: float) -> bool:
    try:
        return time.time() - path.stat().st_mtime < seconds
    except OSError:
        return False
