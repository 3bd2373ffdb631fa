"""What Spark reports when something goes wrong, in one sentence, with what to do.

Spark's own words are pages of Java. They go to a file, for whoever wants to know more.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from muntin.errors import LostError, SparkError, StateError
from muntin.store.storage import LocalFolder, Place, storage_of

# Seconds before what was lost is made again, time after time, as long as that leads to nothing.
WAITS = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0)
_DETAILS = "spark-error.txt"
_RAISED = re.compile(r"Traceback \(most recent call last\):\n(?: .*\n|\n)*(\S.*)")
_LOST = re.compile(r"ExecutorLostFailure \((.*?)\)(?: Reason: ([^\n]*))?")
_REASON = re.compile(r"(?:Exception|Error): (?!Job aborted)([^\n]+)")
_GONE = re.compile(
    r"Checkpoint block rdd_\w+ not found"  # of a step whose lineage is cut
    r"|FetchFailed|MetadataFetchFailedException|ShuffleBlockFetcherIterator"
    r"|BlockNotFoundException|Failed to get broadcast_|Could not (?:find|get) (?:local )?block"
    r"|ExecutorLostFailure|ExecutorDeadException"
)
# What py4j says of a JVM that has gone, with or without a connection.
_UNANSWERED = re.compile(
    r"An error occurred while calling \S+\s*|.*(?:Connection refused|Connection reset by peer"
    r"|Broken pipe).*|.*Error while (?:sending|receiving|sending or receiving).*"
)
_NO_MUNTIN = re.compile(r"ModuleNotFoundError: No module named 'muntin[.']")
_STAYS = "what was committed stays, and the next run goes on from there"
_LOOK = f"see its log on the page of the master, and whether it has enough memory; {_STAYS}"


@contextmanager
def explained(state: Place | None = None) -> Iterator[None]:
    """Has errors of Spark leave the block as a sentence; what Spark said goes to the state.

    A LostError, if all that is wrong is that executors have gone.
    """
    try:
        yield
    except (Py4JError, PySparkException, ConnectionError) as error:
        said = str(error)  # which only a living JVM can say
        more = ""
        if state is not None:
            with suppress(StateError):
                storage = storage_of(state)
                if not isinstance(storage, LocalFolder) or storage.path().is_dir():
                    storage.put(_DETAILS, said.encode(errors="replace"))
                    more = f"; details are in {storage.where(_DETAILS)}"
        if is_lost(said):
            raise LostError(_loss(said), _LOOK + more) from None
        raise SparkError(sentence(said) + more) from None


def is_lost(said: str) -> bool:
    """Whether executors have gone, with what they held, and nothing else is known to be wrong."""
    return not _RAISED.search(said) and _GONE.search(said) is not None


def _loss(said: str) -> str:
    lost = _LOST.search(said)
    if lost is None:
        return "Spark has lost an executor, with what it held"
    why = f": {lost[2].strip().rstrip('.')}" if lost[2] else ""
    return f"Spark has lost an executor ({lost[1]}{why})"


def last_words(said: str) -> str:
    """What a Python process of Spark has said at its end, or the reason that Spark gives."""
    told = re.search(r"Error from python worker:\n((?: .*\n)+)", said)
    if told is not None:
        return str(told[1]).strip().splitlines()[-1].strip()
    if raised := _RAISED.findall(said):
        return str(raised[-1]).strip()
    reason = re.search(r"Cannot run program [^\n]+", said) or _REASON.search(said)
    return "no reason is known" if reason is None else reason[0].strip()


def sentence(said: str) -> str:
    """What happened, and what to do."""
    if raised := _RAISED.findall(said):
        if _NO_MUNTIN.search(raised[-1]):
            return (
                "the Python of Spark's tasks has no Muntin: it is python3 on the PATH, unless "
                f"PYSPARK_PYTHON names another before the session begins, as {sys.executable}"
            )
        return f"a task of Spark failed with {raised[-1].strip()}; {_STAYS}"
    if "Python worker exited unexpectedly" in said or "failed to connect back" in said:
        return (
            "a Python worker of Spark was killed or has crashed, most often because memory ran "
            "out; give it more memory, or Spark fewer cores, as in --master 'local[2]'; " + _STAYS
        )
    if "OutOfMemoryError" in said:
        return f"Java ran out of memory; set spark.driver.memory in spark-defaults.conf; {_STAYS}"
    if is_lost(said):
        return f"{_loss(said)}; {_LOOK}"
    if _UNANSWERED.fullmatch(said):
        return (
            "the Java process of Spark was killed or has crashed, most often because memory ran "
            f"out; {_STAYS}"
        )
    if "SparkContext was shut down" in said or "stopped SparkContext" in said or not said:
        return f"Spark has ended, perhaps because its master has gone or it was stopped; {_STAYS}"
    if reason := _REASON.search(said):
        return f"Spark has failed: {reason[1].strip()}; {_STAYS}"
    return (
        f"Spark has failed: {next(iter(said.strip().splitlines()), 'no reason is known')}; {_STAYS}"
    )
