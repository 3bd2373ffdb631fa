"""What is found where a state is looked at."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Weight(Enum):
    """How bad something is that was found."""

    DAMAGE = "damaged"  # something is lost, or a run is refused
    LEFTOVER = "left over"  # a file that nobody needs, and that goes by itself
    NOTE = "note"


@dataclass(frozen=True)
class Finding:
    weight: Weight
    place: str
    text: str
