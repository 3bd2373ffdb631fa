"""Trials from a seed, and a table of what they came to.

A seed decides which faults strike, whom, in which order and after which pauses. What a process is
doing at that moment is for the machine to say, so a seed that has failed once may need several
attempts to fail again.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from tests.faults.kinds import FAULTS, OF_PLACES
from tests.faults.trial import Outcome, Setting, Struck, Trial, UnhealedError
from tests.faults.verdict import Window

_MORE_OFTEN = 3  # times, that what can strike in one place alone is chosen there
_TRIES = 100  # to find a fault that can strike now
_SHOWN = 20  # of what is wrong in one way


def run(
    setting: Setting,
    seed: str,
    faults: Iterable[Sequence[str]],
    tell: Callable[[str], object] = lambda _: None,
) -> Outcome:
    """One trial: of kinds of faults one strikes, then of the next, perhaps before that is over."""
    with Trial(setting, seed) as trial:
        unhealed = ""
        try:
            trial.go_on()
            for kinds in faults:
                trial.rest(trial.random.uniform(0.0, 2.0))
                for _ in range(_TRIES):
                    kind = trial.random.choice(kinds)
                    struck = trial.strike(kind, FAULTS[kind])
                    if struck is not None:
                        tell(f"{struck.at:.3f} {struck}")
                        if trial.bucket is None:  # of which a look takes seconds
                            trial.look(str(struck))
                        break
                    trial.rest(0.1)
                if trial.random.random() < 0.5:
                    trial.go_on()
                    trial.look("it went on")
                    trial.ask(1)
            trial.go_on()
        except UnhealedError as error:
            unhealed = str(error)
        return trial.outcome(unhealed)


def trials(
    folder: Path,
    seed: int,
    faults: int,
    each: int,
    settings: Sequence[Setting],
    kinds: Sequence[str],
    first: int = 0,
) -> Iterator[Outcome]:
    """Trials of `each` faults, until there were so many; folders of those that failed stay.

    They are in one setting after the other, from the `first` trial of this seed on.
    """
    done, number = 0, first
    while done < faults:
        name = f"{seed}-{number}"
        place = replace(settings[number % len(settings)], folder=folder / name)
        supervised = ", supervised" if place.supervised else ""
        print(f"trial {name}: {place.on}{supervised}", flush=True)
        # Or it would hardly ever be an executor that is killed: there is none in other places.
        special = [kind for kind in kinds if kind in OF_PLACES.get(place.on, ())]
        chosen = [*kinds, *special * _MORE_OFTEN]
        outcome = run(place, name, [chosen] * min(each, faults - done), _say)
        done, number = done + len(outcome.struck), number + 1
        yield outcome
        for line in problems(outcome):
            _say(line)
        if outcome.is_good:
            shutil.rmtree(place.folder)
        else:
            _say(f"see {place.folder}")


def _say(text: str) -> None:
    print(f"  {text}", flush=True)


def problems(outcome: Outcome) -> Iterator[str]:
    """What a trial has shown to be wrong, a line each, and of each kind the first ones."""
    verdict = outcome.verdict
    ends = [f"{e.who} at {e.at:.3f} with {e.code}: {e.said[-600:]}" for e in outcome.ends]
    found: dict[str, Sequence[object]] = {
        "WRONG": verdict.wrong,
        "TWICE": verdict.twice,
        "ABSENT": verdict.absent,
        "ENDED": ends,
        "DAMAGED": outcome.damaged,
        "LEFT BEHIND": outcome.left,
        "UNHEALED": [outcome.unhealed] if outcome.unhealed else [],
    }
    for kind, those in found.items():
        yield from (f"{kind} {each}" for each in those[:_SHOWN])
        if len(those) > _SHOWN:
            yield f"{kind} {len(those) - _SHOWN:,} more"


COLUMNS = (
    "fault", "struck", "windows", "at 100 %", "in vain", "by bounds", "wrong", "twice",
    "longest gap",
)  # fmt: skip


def table(outcomes: Sequence[Outcome]) -> str:
    """A line for each kind of fault; a window belongs to the last fault before it left.

    Panes are named in vain that are said to be missing, and lack nothing. Most are of windows that
    left by their bounds, and had no time to hear that this was all; the others are counted apart.
    The last line has ranges of the past.
    """
    lines: list[tuple[str, ...]] = [COLUMNS]
    struck = [s for outcome in outcomes for s in outcome.struck]
    for kind in [*FAULTS, ""]:
        those = [_of(outcome, kind) for outcome in outcomes]
        often = len([s for s in struck if s.kind == kind])
        if not often and kind:
            continue
        windows = [window for found, _ in those for window in found]
        wrong = {id(w.window) for o in outcomes for w in o.verdict.wrong}
        twice = {id(window) for o in outcomes for window in o.verdict.twice}
        complete = sum(window.is_complete for window in windows)
        lines.append(
            (
                kind or "none yet",
                f"{often:,}" if kind else "",
                f"{len(windows):,}",
                f"{complete / max(1, len(windows)):.0%}",
                *_in_vain(windows),
                str(len({id(w) for w in windows} & wrong)),
                str(len({id(w) for w in windows} & twice)),
                "{:.1f} s, {}".format(*max(gap for _, gap in those)),
            )
        )
    total = [window for outcome in outcomes for window in outcome.verdict.windows]
    lines.append(
        (
            "all",
            f"{len(struck):,}",
            f"{len(total):,}",
            f"{sum(w.is_complete for w in total) / max(1, len(total)):.0%}",
            *_in_vain(total),
            str(len({id(w.window) for o in outcomes for w in o.verdict.wrong} & {*map(id, total)})),
            str(sum(len(o.verdict.twice) for o in outcomes)),
            "",
        )
    )
    lines.append(_asked(outcomes))
    widths = [max(len(line[i]) for line in lines) for i in range(len(COLUMNS))]
    return "\n".join(
        "  ".join(
            text.ljust(width) if i == 0 else text.rjust(width)
            for i, (text, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    )


def _asked(outcomes: Sequence[Outcome]) -> tuple[str, ...]:
    """The line of ranges that were asked about."""
    ranges = [each for outcome in outcomes for each in outcome.verdict.ranges]
    wrong = {id(w.window) for o in outcomes for w in o.verdict.wrong} & {id(r) for r in ranges}
    complete = sum(each.is_complete for each in ranges) / max(1, len(ranges))
    in_vain = sum(each.in_vain for each in ranges)
    shown = f"{len(ranges):,}", f"{complete:.0%}", f"{in_vain:,}", "", str(len(wrong))
    return "ranges asked about", "", *shown, "", ""


def _in_vain(windows: Sequence[Window]) -> tuple[str, str]:
    """How many panes were named in vain: by windows that left for another reason, and by bounds."""
    by_bounds = sum(window.in_vain for window in windows if window.c2["reason"] == "deadline")
    return f"{sum(window.in_vain for window in windows) - by_bounds:,}", f"{by_bounds:,}"


def _of(outcome: Outcome, kind: str) -> tuple[list[Window], tuple[float, str]]:
    """The windows that left after faults of a kind, and the longest time in which none left.

    Without a kind, those from before the first one.
    """
    found: list[Window] = []
    gap = 0.0, ""
    by_job: dict[str, list[Window]] = {}
    for window in outcome.verdict.windows:
        by_job.setdefault(window.job, []).append(window)
    for windows in by_job.values():
        ordered = sorted(windows, key=lambda window: window.left_at)
        for before, window in zip([None, *ordered], ordered, strict=False):
            if _last(outcome.struck, window.left_at) == kind:
                found.append(window)
                gap = max(gap, (window.left_at - (before or window).left_at, window.job))
    return found, gap


def _last(struck: Sequence[Struck], at: float) -> str:
    before = [each for each in struck if each.at <= at]
    return max(before, key=lambda each: each.at).kind if before else ""
