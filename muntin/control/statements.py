"""Requests as statements: what is asked by HTTP is what would be written in a text."""

from __future__ import annotations

import json
from typing import Any

from muntin.control.refusals import RefusedError
from muntin.errors import LanguageError
from muntin.kernel.engine import literal, quote
from muntin.language.dialect import CreateJob, Muntin
from muntin.language.script import Script

_INSERTED = " OR REPLACE"


def named(job: str) -> str:
    """A job's name as SQL takes it."""
    return job if job.isidentifier() else quote(job)


def created(text: str) -> CreateJob:
    """The statement that a text is, which has to be one that creates a job."""
    statements = Script(text).statements
    if len(statements) != 1 or not isinstance(statements[0], CreateJob):
        message = "expected one statement here, CREATE JOB … AS …"
        raise LanguageError(f"{message}; `muntin sql` and POST /sql take any text", text, 0)
    return statements[0]


def replacing(text: str, at: str | None) -> str:
    """The text of a job as one that takes the place of what there is.

    `at` says when, as `AT NEXT` does: `window` or `pane`.
    """
    statement = created(text)
    if at is not None:
        if at not in ("window", "pane"):
            raise RefusedError(400, "input", f"at is 'window' or 'pane', not '{at[:100]}'")
        if statement.args.get("at") is not None:
            raise RefusedError(400, "input", "the text says AT NEXT itself; leave out 'at'")
        text = f"{text.rstrip().removesuffix(';')}\nAT NEXT {at.upper()}"
    if statement.args.get("replaces"):
        return text
    place = _after_create(text)
    return text[:place] + _INSERTED + text[place:]


def as_written(error: LanguageError, text: str) -> LanguageError:
    """An error in what `replacing` has made of a text, at its place in the text itself."""
    if created(text).args.get("replaces"):
        return error
    place = _after_create(text)
    start = error.start if error.start < place else max(place, error.start - len(_INSERTED))
    end = min(start + error.end - error.start, len(text))
    return LanguageError(error.message, text, min(start, len(text)), end)


def _after_create(text: str) -> int:
    return int(Muntin().tokenize(text)[0].end) + 1


def setting(job: str, parameter: str, body: dict[str, Any]) -> str:
    """SET with a value of JSON, or with a constant as SQL has it."""
    if body.keys() & {"value", "sql"} == {"sql"} and isinstance(body["sql"], str):
        value = body["sql"]
    elif body.keys() & {"value", "sql"} == {"value"}:
        value = _constant(body["value"])
    else:
        message = 'expected a value, as in {"value": 5}, or {"sql": "INTERVAL \'5\' MINUTE"}'
        raise RefusedError(400, "input", message)
    return f"SET {named(job)}.{named(parameter)} = {value}"


def _constant(value: Any) -> str:
    if isinstance(value, str):
        return literal(value)
    if value is None or isinstance(value, bool | int | float):
        return json.dumps(value)
    raise RefusedError(400, "input", "a value is a number, a text, true, false or null")
