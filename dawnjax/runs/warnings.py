"""Warnings to a reader of a run's numbers: the logged ones, and those that the events show."""

import itertools
from collections.abc import Sequence

from dawnjax.runs.log import Event
from dawnjax.runs.logged_run import HEARTBEAT_SECONDS, LoggedRun, events_of

WALL_CLOCK_STEP_SECONDS = 60.0
"""A wall clock that differs more from the machine's clock was set; one that is slewed does not."""


def run_warnings(run: LoggedRun) -> list[str]:
    """Warnings of a run, of all its attempts: those logged first."""
    events = run.events
    messages = [event["message"] for event in events_of(events, "warning")]
    if run.lost_log:
        messages.append(
            "the end of an earlier log was lost; the rest comes from a checkpoint; no time or "
            "cost here includes what its last attempt did after that checkpoint"
        )
    for attempt in run.attempts:
        first, last = attempt.events[0], attempt.events[-1]
        if None not in (first["boot_seconds"], last["boot_seconds"]):
            slept = (last["boot_seconds"] - first["boot_seconds"]) - (last["t"] - first["t"])
            if slept > HEARTBEAT_SECONDS:
                messages.append(
                    f"the machine was suspended for {slept:.0f} s in attempt "
                    f"{attempt.number}; no time here counts them"
                )
            stepped = last["unix_seconds"] - first["unix_seconds"]
            stepped -= last["boot_seconds"] - first["boot_seconds"]
            if abs(stepped) > WALL_CLOCK_STEP_SECONDS:
                messages.append(
                    f"the wall clock was set by {stepped:+,.0f} s in attempt {attempt.number}; no "
                    "duration in it is read from that clock"
                )
    messages += _gaps_by_wall_clocks(run)
    messages += _differing_versions(events)
    metrics: dict[int, dict] = {}
    for event in events_of(events, "evaluation"):
        if metrics.setdefault(event["step"], event["metrics"]) != event["metrics"]:
            messages.append(
                f"the evaluation at step {event['step']} was made again after a restart and gave "
                "other values; the first is reported"
            )
    return messages


def _gaps_by_wall_clocks(run: LoggedRun) -> list[str]:
    """Warnings on gaps between attempts that only wall clocks measure, which may have been set."""
    messages = []
    for before, after in itertools.pairwise(run.attempts):
        boots = [attempt.start.get("boot_id") for attempt in (before, after)]
        if run.run_start is None or not all(boots) or boots[0] == boots[1]:
            continue
        gap = after.events[0]["unix_seconds"] - before.events[-1]["unix_seconds"]
        messages.append(
            f"attempts {before.number} and {after.number} ran on two boots or machines, whose wall "
            f"clocks lie {gap:+,.0f} s apart: elapsed_seconds_to_accuracy is only as right as they"
        )
    return messages


def _differing_versions(events: Sequence[Event]) -> list[str]:
    """Warnings on versions that differ between attempts, with the attempts of each."""
    versions = {
        f"attempt {e['attempt']}": e["versions"] for e in events_of(events, "attempt_start")
    }
    differences = []
    for name in dict.fromkeys(name for installed in versions.values() for name in installed):
        ran_with: dict[str, list[str]] = {}
        for attempt, installed in versions.items():
            ran_with.setdefault(installed.get(name, "none"), []).append(attempt)
        if len(ran_with) > 1:
            told = (f"{version} ({', '.join(who)})" for version, who in ran_with.items())
            differences.append(f"{name} {', '.join(told)}")
    if not differences:
        return []
    return [
        f"the attempts did not run with the same versions: {'; '.join(differences)}; the result "
        "has only the last attempt's"
    ]
