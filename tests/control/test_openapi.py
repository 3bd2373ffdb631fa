"""The document says what there is."""

from __future__ import annotations

from pathlib import Path

from starlette.routing import Route

from muntin.ask.answering import Asking
from muntin.control.feed import Feed
from muntin.control.openapi import DOCUMENT
from muntin.control.ordering import Ordering
from muntin.control.reading import Reading
from muntin.run.door import Door


def test_it_has_every_call_and_no_other(tmp_path: Path) -> None:
    ordering = Ordering(Door(), tmp_path)
    reading = Reading(Feed(tmp_path), None, ordering.name_of, Asking(tmp_path))  # type: ignore[arg-type]
    routes: list[Route] = [*ordering.routes, *reading.routes]
    offered = {
        (route.path, method.lower())
        for route in routes
        for method in route.methods or ()
        if method != "HEAD"
    }
    told = {(path, method) for path, calls in DOCUMENT["paths"].items() for method in calls}
    assert offered - {("/openapi.json", "get")} == told


def test_calls_name_their_parameters() -> None:
    for path, calls in DOCUMENT["paths"].items():
        for call in calls.values():
            named = {p["name"] for p in call.get("parameters", ()) if p["in"] == "path"}
            assert named == {part[1:-1] for part in path.split("/") if part.startswith("{")}
            assert call["summary"]
            assert "default" in call["responses"]
