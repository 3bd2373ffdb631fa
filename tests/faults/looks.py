"""Whether what is stored is whole at any moment, whatever has just happened."""

from __future__ import annotations

import time

from muntin.errors import InputError, MuntinError
from muntin.store.findings import Weight
from muntin.store.inspection import check, show
from muntin.store.storage import Place

_LOOKS = 4
_PAUSE_SECONDS = 1.0


def damage(state: Place) -> list[str]:
    """What `muntin state check` and `show` find wrong, in look after look.

    A program that runs may take files away between two of them, and one look may meet that.
    """
    found = _look(state)
    for _ in range(_LOOKS - 1):
        if not found:
            break
        time.sleep(_PAUSE_SECONDS)
        found &= _look(state)
    return sorted(found)


def _look(state: Place) -> set[str]:
    try:
        show(state)
        findings = list(check(state))
    except InputError:  # there is none yet
        return set()
    except MuntinError as error:
        return {str(error)}
    return {f"{each.place} {each.text}" for each in findings if each.weight is Weight.DAMAGE}
