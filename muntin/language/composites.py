"""Several streams as one, for jobs that join what they make of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from muntin.kernel.engine import quote
from muntin.language.scope import Shown, View
from muntin.model.records import MEMBER, Column
from muntin.model.streams import Format, Stream


def composed(streams: Sequence[Stream]) -> Stream:
    """The stream of which all of these are members, in the order of their names."""
    streams = sorted(streams, key=lambda stream: stream.name)
    columns = [
        [Column(f"{stream.name}.{c.name}", c.type) for c in stream.visible_columns()]
        for stream in streams
    ]
    members = tuple(
        replace(stream, beside=tuple(c for own in columns if own is not mine for c in own))
        for stream, mine in zip(streams, columns, strict=True)
    )
    slacks = [stream.slack_us for stream in streams if stream.slack_us is not None]
    return Stream(
        name="+".join(stream.name for stream in streams),
        patterns=(),
        format=Format("text"),
        columns=(*(column for own in columns for column in own), Column(MEMBER, "VARCHAR")),
        timestamp="",
        slack_us=max(slacks, default=None),
        spans=streams[0].spans,
        sources=tuple(member.before + name for member in members for name in member.sources),
        members=members,
    )


def view_of(composite: Stream, name: str, *called: str) -> View:
    """What a SELECT sees of the records of one member."""
    member = next(member for member in composite.members if member.name == name)
    shown = {
        c.name: Shown(quote(own := member.column(c.name)), c.type, frozenset({own}))
        for c in member.visible_columns()
    }
    return View(composite, (name, *called), shown, member=member)
