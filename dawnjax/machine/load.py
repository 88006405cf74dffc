"""Use of a machine's processors: by this process, by others, and by other guests of its host.

It looks at processor time alone and at no step's time: a slow run is not called disturbed for being
slow.
"""

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import psutil

MOST_TAKEN = 0.05
"""Fraction of all processors' time that others may take from an undisturbed run on a CPU. An idle
machine of two cores takes 0.01 for itself."""

MOST_TAKEN_BESIDE = 0.5
"""Where an accelerator makes the steps: a host of eight of them runs eight trials side by side."""


class Use(NamedTuple):
    """Seconds of all processors since some moment; `own` of this process and its children."""

    all: float
    busy: float
    stolen: float
    own: float

    def since(self, earlier: "Use") -> "Use":
        return Use(*(now - then for now, then in zip(self, earlier, strict=True)))


def use() -> Use | None:
    """Use since the machine's start, by `/proc/stat`; None where there is none."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        first = Path("/proc/stat").read_text().split("\n", 1)[0].split()
        ticks = os.sysconf("SC_CLK_TCK")
        user, nice, system, idle, wait, interrupt, soft, stolen = (
            int(text) / ticks for text in first[1:9]
        )
        busy = user + nice + system + interrupt + soft
        return Use(busy + idle + wait + stolen, busy, stolen, _own())
    return None


def _own() -> float:
    """Seconds of this process and of all that it started, whether they have ended or not."""
    used = sum(os.times()[:4])
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            used += sum(child.cpu_times()[:4])
    return used


def load_of(
    machines: Sequence[str], used: Sequence[Sequence[float] | None], platform: str
) -> dict[str, float]:
    """What others took while a run used its machines; empty where a system does not say.

    Args:
      machines: The machine of each process of the run.
      used: What each process saw: the numbers of a `Use`.

    Returns:
      `others_fraction` and `stolen_fraction` of all processors' time, by other processes and by
      other guests, on the machine that lost most; `limit_fraction` is what an undisturbed run may
      lose.
    """
    loads = []
    for machine in dict.fromkeys(machines):
        here = [
            None if seen is None else Use(*seen)
            for name, seen in zip(machines, used, strict=True)
            if name == machine
        ]
        first = here[0]
        if first is None or any(seen is None or seen.all <= 0 for seen in here):
            return {}
        own = sum(seen.own / seen.all for seen in here if seen is not None)
        others = max(0.0, first.busy / first.all - own)
        loads.append((others, first.stolen / first.all))
    others, stolen = max(loads, key=sum)
    return {
        "others_fraction": round(others, 4),
        "stolen_fraction": round(stolen, 4),
        "limit_fraction": MOST_TAKEN if platform == "cpu" else MOST_TAKEN_BESIDE,
    }
