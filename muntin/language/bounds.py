"""When windows may leave: WITHIN, FIDELITY, STRAGGLERS, REVISE, EMIT; MAX ERRORS, RETAIN."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

from sqlglot import exp

from muntin.errors import LanguageError
from muntin.kernel.around import looks_back
from muntin.kernel.kinds import kind_of
from muntin.language.over import Over, duration_of
from muntin.language.script import Script
from muntin.model.jobs import Bounds, Job
from muntin.model.records import ORIGIN
from muntin.model.shapes import Key, Sample

_HOUR_US = 3_600_000_000
MOST_SHOWN = 60  # windows that a record may change at once


def bounds_of(script: Script, node: exp.Expr, over: Over) -> Bounds:
    """What the clauses say, if they fit the job's windows."""
    return _Clauses(script, node, over).bounds()


def bounded(script: Script, node: exp.Expr, over: Over, job: Job) -> Job:
    """The job with its bounds, and blocks that hold what these need to know."""
    bounds, shape = bounds_of(script, node, over), job.shape
    clause = node.args.get("fidelity")
    if bounds.form == "sampled" and bounds.fidelity is not None:
        if shape.spans is not None:
            message = "SAMPLED takes panes of moments; declare the stream's spans BY START or END"
            raise script.error(message, clause)
        shape = replace(shape, sample=Sample(job.name, bounds.fidelity))
    if bounds.form == "time" and bounds.fidelity is not None:
        if shape.code is not None:
            message = "OF TIME has to tell sources apart, which is possible in SQL only"
            raise script.error(message, clause)
        shape = replace(shape, apart="sources", keys=(*shape.keys, Key(ORIGIN, "VARCHAR")))
    if bounds.form == "space" and bounds.fidelity is not None and not kind_of(shape).has_windows:
        message = "OF SPACE chooses panes of a window, but this job has none"
        raise script.error(message, clause)
    if bounds.form in ("area", "space") and bounds.fidelity is not None:
        shape = replace(shape, apart="panes" if kind_of(shape).has_windows else None)
    if bounds.revise_us is not None:
        if not kind_of(shape).has_windows:
            message = "REVISE needs windows; without them, results leave as records come"
            raise script.error(message, node.args["revise"])
        if looks_back(job):
            message = (
                "REVISE changes results that have left, and PREVIOUS has made others of them; a "
                "job has one or the other"
            )
            raise script.error(message, node.args["revise"])
        shape = replace(shape, revise_us=bounds.revise_us)
    if bounds.changes and looks_back(job):
        message = (
            "EMIT CHANGES shows windows before those one step earlier have left, which PREVIOUS "
            "looks back at; a job has one or the other"
        )
        raise script.error(message, node.args["emit"])
    job = _retaining(script, node.args.get("retain"), replace(job, shape=shape, bounds=bounds))
    errors = node.args.get("max")
    return job if errors is None else _allowing(job, int(errors.name))


def _retaining(script: Script, clause: exp.Expr | None, job: Job) -> Job:
    """The job with how long its panes are kept, if any range of them can be merged."""
    if clause is None:
        return job
    length = duration_of(script, clause)
    if length <= 0:
        raise script.error("RETAIN must be longer than zero", clause)
    why = not_retained(job)
    if why is not None:
        raise script.error(
            f"RETAIN keeps panes, to be asked about any range of time; {why}", clause
        )
    return replace(job, retain_us=length)


def not_retained(job: Job) -> str | None:
    """Why the panes of a job cannot be kept for questions, in words; None: they can."""
    shape, kind = job.shape, kind_of(job.shape)
    if not kind.has_panes or not kind.has_windows:
        return (
            "this job has none, as its states live on: give it windows of time"
            if (kind.has_panes)
            else "this job has none: give it windows of time"
        )
    if not shape.axis.is_time:
        return f"windows in {shape.axis.kind} are at no time that could be asked for"
    if shape.spans == "touch":
        return "spans BY TOUCH count once in each window, and so not in any range"
    if shape.sample is not None:
        return "FIDELITY SAMPLED leaves some of them out"
    if shape.copies > 1 or shape.sets or shape.members:
        return "this query groups in several ways (or joins streams): make each a job of its own"
    return None


def _allowing(job: Job, errors: int) -> Job:
    """The job with a limit of errors of its own; its Python has to know it too."""
    code = job.shape.code
    shape = replace(job.shape, code=replace(code, max_errors=errors)) if code else job.shape
    return replace(job, shape=shape, allowed=errors)


class _Clauses:
    def __init__(self, script: Script, node: exp.Expr, over: Over) -> None:
        self._script = script
        self._node = node
        self._over = over

    def bounds(self) -> Bounds:
        bounds = self._within(Bounds())
        bounds = self._fidelity(bounds)
        if self._over.gap is not None:
            refused = (("stragglers", "STRAGGLERS"), ("revise", "REVISE"), ("emit", "EMIT"))
            for clause, words in refused:
                if self._node.args.get(clause):
                    raise self._refuse_session(words, clause)
        stragglers = self._node.args.get("stragglers")
        leap = stragglers is not None and stragglers.name == "leap"
        return self._changes(self._revise(replace(bounds, leap=leap)))

    def _within(self, bounds: Bounds) -> Bounds:
        within = self._node.args.get("within")
        if within is None:
            return bounds
        if not self._over.axis.is_time:
            message = (
                f"windows in {self._over.axis.kind} end at no time that WITHIN could count from"
            )
            raise self._script.error(f"{message}; bound them with FIDELITY", within)
        length = duration_of(self._script, within.this)
        if length <= 0:
            raise self._script.error("WITHIN must be longer than zero", within.this)
        at = within.args.get("at")
        share = self._share(at, "AT") if at is not None else 1.0
        return replace(bounds, within_us=length, at=share)

    def _fidelity(self, bounds: Bounds) -> Bounds:
        fidelity = self._node.args.get("fidelity")
        if fidelity is None:
            return bounds
        if self._over.gap is not None:
            raise self._refuse_session("FIDELITY", "fidelity")
        share = self._share(fidelity.this, "FIDELITY")
        return replace(bounds, fidelity=share, form=fidelity.args["form"])

    def _revise(self, bounds: Bounds) -> Bounds:
        revise = self._node.args.get("revise")
        if revise is None:
            return bounds
        if not self._over.axis.is_time:
            message = "REVISE is for late data, which windows of time alone can have"
            raise self._script.error(message, revise)
        longest = max(spec.range for spec in self._over.windows)
        usual = max(_HOUR_US, longest)
        length = duration_of(self._script, revise.this) if revise.this else usual
        if length <= 0:
            raise self._script.error("REVISE FOR must be longer than zero", revise.this)
        return replace(bounds, revise_us=length)

    def _changes(self, bounds: Bounds) -> Bounds:
        emit = self._node.args.get("emit")
        if emit is None or emit.name == "final":
            return bounds
        most = max(self._over.windows, key=lambda spec: spec.overlap)
        if most.overlap > MOST_SHOWN:
            message = (
                f"a record is in {most.overlap:,} of these windows, and EMIT CHANGES shows all "
                f"that have changed with every batch; at most {MOST_SHOWN} may overlap: let them "
                "leave less often (EVERY), or say nothing, and they leave at their end"
            )
            raise self._script.error(message, emit)
        return replace(bounds, changes=True)

    def _share(self, node: exp.Expr, clause: str) -> float:
        share = float(Decimal(node.name) / 100)
        if not 0 < share <= 1:
            message = f"{clause} is more than 0 and at most 100 PERCENT, not {node.name}"
            raise self._script.error(message, node)
        return share

    def _refuse_session(self, words: str, clause: str) -> LanguageError:
        message = f"{words} needs windows made of panes; sessions have none{self._over.hint}"
        return self._script.error(message, self._node.args[clause])
