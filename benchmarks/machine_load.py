"""Load of the machine during a trial, and the rule for a disturbed one.

A trial is disturbed when other processes and other guests of the host together took more than
`MOST_TAKEN` of the machine's processor time while it ran. The rule looks at no time of the trial,
so that a slow trial is not called disturbed for being slow.
"""

import contextlib
import os
import resource
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

MOST_TAKEN = 0.05
"""Of all processors' time. An idle machine of two cores takes 0.01 for itself."""

Trial = Mapping[str, Any]


class _Ticks(NamedTuple):
    """Processor time since the start of the machine, in clock ticks."""

    busy: int
    stolen: int
    all: int


def _ticks() -> _Ticks | None:
    """Ticks of all processors, by `/proc/stat`; None where there is none."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        first = Path("/proc/stat").read_text().split("\n", 1)[0].split()
        user, nice, system, idle, wait, interrupt, soft, stolen = map(int, first[1:9])
        busy = user + nice + system + interrupt + soft
        return _Ticks(busy, stolen, busy + idle + wait + stolen)
    return None


def _own_ticks() -> float:
    """Ticks of this process and of the children that have ended."""
    used = 0.0
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        usage = resource.getrusage(who)
        used += usage.ru_utime + usage.ru_stime
    return used * os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def watched() -> Iterator[dict[str, Any]]:
    """Watch the machine while a child runs to its end; the yielded record is filled then.

    `load_before`: mean number of runnable processes over the last minute. `others_fraction` and
    `stolen_fraction`: of all processors' time, what other processes and other guests took; None
    where the system does not say.
    """
    record: dict[str, Any] = {"load_before": round(os.getloadavg()[0], 2)}
    before, own = _ticks(), _own_ticks()
    try:
        yield record
    finally:
        after = _ticks()
        others = stolen = None
        if before and after and after.all > before.all:
            whole = after.all - before.all
            taken = after.busy - before.busy - (_own_ticks() - own)
            others = round(max(0.0, taken / whole), 4)
            stolen = round((after.stolen - before.stolen) / whole, 4)
        record |= {"others_fraction": others, "stolen_fraction": stolen}


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
