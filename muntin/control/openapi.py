"""What the service offers, as an OpenAPI document."""

from __future__ import annotations

from importlib import metadata
from typing import Any

_Json = dict[str, Any]


def _object(properties: _Json, required: tuple[str, ...] = ()) -> _Json:
    return {"type": "object", "properties": properties, "required": list(required)}


def _ref(name: str) -> _Json:
    return {"$ref": f"#/components/schemas/{name}"}


_TEXT: _Json = {"type": "string"}
_TEXTS: _Json = {"type": "array", "items": {"type": "string"}}
_NUMBER: _Json = {"type": "integer"}
_POSITION: _Json = {"oneOf": [{"type": "string", "format": "date-time"}, _NUMBER]}
_EXPECTED = {
    "type": "integer",
    "description": "the version that the job has as far as the writer knows; 409 if it is another",
}
_SCHEMAS: _Json = {
    "Job": _object(
        {
            "job": _TEXT,
            "stream": _TEXT,
            "version": _NUMBER,
            "paused": {"type": "boolean"},
            "windows": {"type": "array", "items": _TEXT},
            "columns": {"type": "array", "items": _TEXT},
            "parameters": {"type": "object", "additionalProperties": _TEXT},
            "text": _TEXT,
        },
    ),
    "Result": _object(
        {
            "id": _TEXT,
            "job": _TEXT,
            "version": _NUMBER,
            "window": _TEXT,
            "start": _POSITION,
            "end": _POSITION,
            "revision": _NUMBER,
            "emitted_at": {"type": "string", "format": "date-time"},
            "records": {"type": "object", "additionalProperties": _NUMBER},
            "c2": {"type": ["object", "null"]},
            "used": {
                "type": "array",
                "items": _object(
                    {"job": _TEXT, "window": _TEXT, "end": _POSITION, "version": _NUMBER}
                ),
            },
            "rows": {"type": "array", "items": {"type": "object"}},
            "rows_in_all": {"type": "integer", "description": "Where not all rows are sent"},
        },
    ),
    "Reply": _object(
        {
            "effects": {
                "type": "array",
                "items": _object(
                    {
                        "does": _TEXT,
                        "job": _TEXT,
                        "version": _NUMBER,
                        "from": {"oneOf": [_POSITION, {"type": "null"}]},
                        "by": {"enum": ["start", "end"]},
                        "axis": _TEXT,
                    }
                ),
            },
            "notes": {"type": "array", "items": _TEXT},
        },
    ),
    "Error": _object(
        {
            "error": _object(
                {
                    "kind": _TEXT,
                    "message": _TEXT,
                    "line": _NUMBER,
                    "column": _NUMBER,
                    "version": _NUMBER,
                },
                ("kind", "message"),
            )
        }
    ),
}


def _call(
    summary: str,
    answer: _Json,
    body: _Json | None = None,
    parameters: tuple[_Json, ...] = (),
    status: int = 200,
    media: str = "application/json",
) -> _Json:
    call: _Json = {
        "summary": summary,
        "responses": {
            str(status): {"description": "done", "content": {media: {"schema": answer}}},
            "default": {
                "description": "refused; nothing has changed",
                "content": {"application/json": {"schema": _ref("Error")}},
            },
        },
    }
    if body is not None:
        call["requestBody"] = {"content": {"application/json": {"schema": body}}}
    if parameters:
        call["parameters"] = list(parameters)
    return call


def _in(where: str, name: str, schema: _Json, description: str = "") -> _Json:
    about = {"description": description} if description else {}
    return {"name": name, "in": where, "required": where == "path", "schema": schema, **about}


_JOB = _in("path", "job", _TEXT)
_MATCH = _in("header", "If-Match", _TEXT, "the version, as in the field expected")
_STATEMENT = {"type": "string", "description": "a statement of SQL"}
_ONLY_EXPECTED = _object({"expected": _EXPECTED})


def _order(summary: str) -> _Json:
    return {"post": _call(summary, _ref("Reply"), _ONLY_EXPECTED, (_JOB, _MATCH))}


_PATHS: _Json = {
    "/status": {"get": _call("How jobs and sources are doing", {"type": "object"})},
    "/sql": {
        "post": _call(
            "Do what a text says: all of it or nothing",
            _ref("Reply"),
            _object(
                {
                    "text": _STATEMENT,
                    "expected": {"type": "object", "additionalProperties": _EXPECTED},
                },
                ("text",),
            ),
        )
    },
    "/jobs": {
        "get": _call(
            "All jobs, and the columns of all streams",
            _object({"jobs": {"type": "array", "items": _ref("Job")}, "streams": _object({})}),
        ),
        "post": _call(
            "CREATE JOB", _ref("Reply"), _object({"text": _STATEMENT}, ("text",)), status=201
        ),
    },
    "/jobs/{job}": {
        "get": _call("A job; its version is the ETag", _ref("Job"), parameters=(_JOB,)),
        "put": _call(
            "CREATE OR REPLACE JOB, AT NEXT WINDOW or PANE",
            _ref("Reply"),
            _object(
                {"text": _STATEMENT, "at": {"enum": ["window", "pane"]}, "expected": _EXPECTED},
                ("text",),
            ),
            (_JOB, _MATCH),
        ),
        "delete": _call("DROP JOB", _ref("Reply"), _ONLY_EXPECTED, (_JOB, _MATCH)),
    },
    "/jobs/{job}/pause": _order("PAUSE JOB"),
    "/jobs/{job}/resume": _order("RESUME JOB"),
    "/jobs/{job}/reset": _order("RESET JOB"),
    "/jobs/{job}/parameters/{parameter}": {
        "put": _call(
            "SET job.parameter",
            _ref("Reply"),
            _object(
                {
                    "value": {"type": ["string", "number", "boolean", "null"]},
                    "sql": {"type": "string", "description": "a constant, instead of the value"},
                    "expected": _EXPECTED,
                }
            ),
            (_JOB, _in("path", "parameter", _TEXT), _MATCH),
        )
    },
    "/jobs/{job}/results": {
        "get": _call(
            "Results: of the latest windows, or all",
            _object({"results": {"type": "array", "items": _ref("Result")}}),
            parameters=(_JOB, _in("query", "window", {"enum": ["latest", "all"]})),
        )
    },
    "/jobs/{job}/events": {
        "get": _call(
            "Results as they are committed: server-sent events, a Result each",
            _TEXT,
            parameters=(
                _JOB,
                _in("query", "from", {"enum": ["now", "start"]}),
                _in("header", "Last-Event-ID", _TEXT, "goes on behind that result"),
            ),
            media="text/event-stream",
        )
    },
    "/ask": {
        "post": _call(
            "A question about any range of what jobs retain: rows, and the score of each range",
            _object({"rows": {"type": "array"}, "ranges": {"type": "array"}, "notes": _TEXTS}),
            body=_object({"text": _TEXT, "explain": {"type": "boolean"}}, ("text",)),
        )
    },
}

DOCUMENT: _Json = {
    "openapi": "3.1.0",
    "info": {
        "title": "Muntin",
        "version": metadata.version("muntin"),
        "description": "Jobs of a running program: their results, and orders to them.",
    },
    "paths": _PATHS,
    "components": {
        "schemas": _SCHEMAS,
        "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
    },
    "security": [{}, {"token": []}],
}
