"""Kinds of job: each a module with one class behind the protocol of `kind.py`."""

from __future__ import annotations

from muntin.kernel.kinds.kind import Kind
from muntin.kernel.kinds.living import Living
from muntin.kernel.kinds.pairs import Pairs
from muntin.kernel.kinds.panes import Panes
from muntin.kernel.kinds.sessions import Sessions
from muntin.model.shapes import Shape


def kind_of(shape: Shape) -> Kind:
    """The kind of job that a shape's blocks are of: the one place that tells them apart."""
    if shape.gap is not None:
        return Sessions(shape)
    if shape.code is None or shape.code.style == "cells":
        return Panes(shape)
    return Living(shape) if shape.code.style == "states" else Pairs(shape)
