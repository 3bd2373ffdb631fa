"""How many examples property tests look at: so many, or in a soak EFFORT times as many."""

from __future__ import annotations

import os

from hypothesis import settings

EFFORT = int(os.environ.get("EFFORT", "1"))


def examples(usual: int) -> settings:
    """Decorates a property test that looks at so many examples where nobody asks for more."""
    return settings(max_examples=usual * EFFORT)
