"""Goodput: fraction of wall time spent on steps that were kept.

Wall time runs from the start of the first process to the last event, gaps between attempts
included. Steps count if the newest state holds them: those that an attempt made after the save from
which a later one began are lost, and were made again. So are self-play and gating after that save.

Source: the name and the division of the time: ML Goodput Measurement for MaxText
(github.com/AI-Hypercomputer/ml-goodput-measurement), which calls lost steps "wasted progress".
"""

from collections.abc import Mapping, Sequence

from dawnjax.runs.clock import GENERATION_PHASES
from dawnjax.runs.log import Event
from dawnjax.runs.logged_run import (
    CLOCK_SLACK_SECONDS,
    LoggedAttempt,
    LoggedRun,
    events_of,
    last_event,
    save_point,
)

PARTS = (
    "setup",
    "compile",
    "restore",
    "gating",
    "self_play",
    "steps",
    "evaluation",
    "checkpoint",
    "profile",
    "lost_steps",
    "input_wait",
    "other",
    "gaps",
)
"""Parts of the wall time, complete and without overlap."""

_PHASES = {"eval": "evaluation"}
"""Parts that are called otherwise than their phase."""


def wall_seconds(run: LoggedRun) -> tuple[dict[str, float], str]:
    """Seconds of each of `PARTS`, or nothing and the reason."""
    if run.lost_log:
        return {}, "the end of a log is lost: which steps were made when is not known"
    seconds: dict[str, float] = dict.fromkeys(PARTS, 0.0)
    for place, attempt in enumerate(run.attempts):
        phases = attempt.phase_seconds()
        train = phases.pop("train")
        later = run.attempts[place + 1 :]
        for name, lost in _lost_generation_seconds(attempt, later).items():
            phases[name] -= lost
            seconds["lost_steps"] += lost
        for name, value in phases.items():
            seconds[_PHASES.get(name, name)] += value
        for name, value in _of_train_phase(attempt, train, later).items():
            seconds[name] += value
        if later:
            gap = _gap_seconds(attempt, later[0])
            if gap is None:
                return {}, f"the clocks of attempts {attempt.number} and {later[0].number} disagree"
            seconds["gaps"] += gap
    return {name: round(value, 6) for name, value in seconds.items()}, ""


def share(seconds: Mapping[str, float]) -> float:
    """Goodput, from all of `PARTS`."""
    return sum(seconds[name] for name in ("steps", *GENERATION_PHASES)) / sum(seconds.values())


def _of_train_phase(
    attempt: LoggedAttempt, seconds: float, later: Sequence[LoggedAttempt]
) -> dict[str, float]:
    """Parts of an attempt's seconds in the train phase; `later` are the attempts after it."""
    last = last_event(attempt.events, "train")
    if last is None:
        return {"lost_steps" if _began(later) else "other": seconds}
    first, made = _first_step(attempt), sum(e["steps"] for e in events_of(attempt.events, "train"))
    recorded = min(seconds, attempt.phase_seconds(last["t"])["train"])
    waited = min(recorded, last["input_wait_seconds"])
    # A later attempt may begin from an older save than the one after this attempt.
    kept = min([first + made, *(_first_step(other) for other in _began(later))])
    share = max(0, kept - first) / made if made else 0.0
    after = seconds - recorded  # steps of a killed process that it did not record
    return {
        "steps": share * (recorded - waited),
        "lost_steps": (1 - share) * (recorded - waited) + (after if _began(later) else 0.0),
        "input_wait": waited,
        "other": 0.0 if _began(later) else after,
    }


def _lost_generation_seconds(
    attempt: LoggedAttempt, later: Sequence[LoggedAttempt]
) -> dict[str, float]:
    """Seconds of self-play and of gating after the save from which a later attempt began."""
    whole = attempt.phase_seconds()
    begun = [_first_point(other) for other in _began(later)]
    if not begun:
        return dict.fromkeys(GENERATION_PHASES, 0.0)
    saves = [e["t"] for e in events_of(attempt.events, "checkpoint") if save_point(e) == min(begun)]
    kept = attempt.phase_seconds(saves[-1]) if saves else {}
    return {name: whole[name] - kept.get(name, 0.0) for name in GENERATION_PHASES}


def _began(attempts: Sequence[LoggedAttempt]) -> list[LoggedAttempt]:
    """Attempts that came to have a state: others neither keep nor lose a step."""
    return [a for a in attempts if any(e["event"] in ("restored", "train") for e in a.events)]


def _first_step(attempt: LoggedAttempt) -> int:
    return _first_point(attempt)[0]


def _first_point(attempt: LoggedAttempt) -> tuple[int, int]:
    restored = last_event(attempt.events, "restored")
    return (0, 0) if restored is None else save_point(restored)


def _gap_seconds(attempt: LoggedAttempt, following: LoggedAttempt) -> float | None:
    """Seconds between the last event of an attempt and the start of the next process."""
    end: Event = max(attempt.events, key=lambda event: event["t"])
    start = following.start
    if not start:
        return None
    one_boot = attempt.start.get("boot_id") == start.get("boot_id") is not None
    for clock in ("boot_seconds", "unix_seconds") if one_boot else ("unix_seconds",):
        if None not in (start.get(clock), end.get(clock)):
            gap = start[clock] - start["t"] - end[clock]
            if gap > -CLOCK_SLACK_SECONDS:
                return max(gap, 0.0)
    return None
