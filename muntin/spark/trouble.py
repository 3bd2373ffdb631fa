"""What Spark reports when something goes wrong, in one sentence, with what to do.

Spark's own words are pages of Java. They go to a file, for whoever wants to know more.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from muntin.errors import SparkError

_DETAILS = "spark-error.txt"
_RAISED = re.compile(r"Traceback \(most recent call last\):\n(?: .*\n|\n)*(\S.*)")
_LOST = re.compile(r"ExecutorLostFailure \((.*?)\)(?: Reason: ([^\n]*))?")
_REASON = re.compile(r"(?:Exception|Error): (?!Job aborted)([^\n]+)")
_STAYS = "what was committed stays, and the next run goes on from there"


@contextmanager
def explained(details: Path | None = None) -> Iterator[None]:
    """Has errors of Spark leave the block as a sentence; what Spark said goes into a folder."""
    try:
        yield
    except (Py4JError, PySparkException) as error:
        said = str(error)  # which only a living JVM can say
        message = sentence(said)
        if details is not None:
            with suppress(OSError):
                (details / _DETAILS).write_text(said, errors="replace")
                message += f"; details are in {details / _DETAILS}"
        raise SparkError(message) from None


def sentence(said: str) -> str:
    """What happened, and what to do."""
    if raised := _RAISED.findall(said):
        return f"a task of Spark failed with {raised[-1].strip()}; {_STAYS}"
    if "Python worker exited unexpectedly" in said or "failed to connect back" in said:
        return (
            "a Python worker of Spark was killed or has crashed, most often because memory ran "
            "out; give it more memory, or Spark fewer cores, as in --master 'local[2]'; " + _STAYS
        )
    if "OutOfMemoryError" in said:
        return f"Java ran out of memory; set spark.driver.memory in spark-defaults.conf; {_STAYS}"
    if lost := _LOST.search(said):
        why = f": {lost[2].strip().rstrip('.')}" if lost[2] else ""
        return (
            f"Spark has lost an executor too often ({lost[1]}{why}); see its log on the page of "
            f"the master, and whether it has enough memory; {_STAYS}"
        )
    if "SparkContext was shut down" in said or "stopped SparkContext" in said or not said:
        return f"Spark has ended, perhaps because its master has gone or it was stopped; {_STAYS}"
    if reason := _REASON.search(said):
        return f"Spark has failed: {reason[1].strip()}; {_STAYS}"
    return (
        f"Spark has failed: {next(iter(said.strip().splitlines()), 'no reason is known')}; {_STAYS}"
    )
