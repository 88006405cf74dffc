"""Load of the machine during a trial, and the rule for a disturbed one.

A trial is disturbed when other processes and other guests of the host together took more than
`MOST_TAKEN` of the machine's processor time while it ran. The rule looks at no time of the trial,
so that a slow trial is not called disturbed for being slow.
"""

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dawnjax.machine import load
from dawnjax.machine.load import MOST_TAKEN

Trial = Mapping[str, Any]


@contextlib.contextmanager
def watched() -> Iterator[dict[str, Any]]:
    """Watch the machine while a child runs to its end; the yielded record is filled then.

    `load_before`: mean number of runnable processes over the last minute. `others_fraction` and
    `stolen_fraction`: of all processors' time, what other processes and other guests took; None
    where the system does not say.
    """
    record: dict[str, Any] = {"load_before": round(os.getloadavg()[0], 2)}
    record |= {"others_fraction": None, "stolen_fraction": None}
    before = load.use()
    try:
        yield record
    finally:
        after = load.use()
        if before and after:
            record |= load.load_of(["here"], [after.since(before)], "cpu")
            record.pop("limit_fraction", None)


def is_recorded(trials: Sequence[Trial]) -> bool:
    """True if the load during every trial is known."""
    return all(trial.get("machine", {}).get("others_fraction") is not None for trial in trials)


def is_disturbed(trial: Trial) -> bool:
    """True if others took more than `MOST_TAKEN` during a trial; false where it is not known."""
    load = trial.get("machine", {})
    taken = (load.get("others_fraction") or 0.0) + (load.get("stolen_fraction") or 0.0)
    return taken > MOST_TAKEN


def disturbed_words(sides: Mapping[str, Sequence[Trial]]) -> str:
    """Disturbed trials of each side, by seed; or that none were, or that it is not known."""
    if not all(map(is_recorded, sides.values())):
        return "load during the trials not recorded"
    named = [
        f"{side} seed {trial['seed']}"
        for side, trials in sides.items()
        for trial in trials
        if is_disturbed(trial)
    ]
    return f"disturbed: {', '.join(named)}" if named else "no trial disturbed"
