"""Which host is slow, from what each counts itself while the run trains."""

from collections.abc import Sequence
from typing import NamedTuple

from dawnjax.page import words

WINDOW_SECONDS = 5.0
"""At the least, of training."""

OWED_FRACTION = 0.1
"""Of the time: what the other hosts wait for a slow one, and twice what they wait for any other."""

BUSY_FRACTION, IDLE_FRACTION = 0.8, 0.5
"""A slow host's own work takes most of its steps; that of the others leaves them waiting."""


class Pace(NamedTuple):
    """What a host has counted since the start of its training.

    Attributes:
      steps: Train steps that ended.
      seconds: That they took.
      own_seconds: The part in which its main thread did not wait for the devices: it made inputs,
        or ran Python.
      owed_seconds: For which the other hosts waited for it, at the least; -1 where that is not
        measured.
    """

    steps: float = 0.0
    seconds: float = 0.0
    own_seconds: float = 0.0
    owed_seconds: float = -1.0


class Slow(NamedTuple):
    """A slow host, and what it costs each step."""

    host: int
    seconds_per_step: float
    message: str


def slow_host(before: Sequence[Pace], now: Sequence[Pace]) -> Slow | None:
    """The host that the others wait for between two counts; None without one."""
    spans = [
        Pace(*(late - early for late, early in zip(end, start, strict=True)))
        for start, end in zip(before, now, strict=True)
    ]
    if len(spans) < 2 or any(it.seconds < WINDOW_SECONDS / 2 or it.steps < 2 for it in spans):
        return None
    step = max(it.seconds / it.steps for it in spans)
    if all(pace.owed_seconds >= 0 for pace in now):
        return _most_owing(spans, step)
    return _busiest(spans, step)


def _most_owing(spans: Sequence[Pace], step: float) -> Slow | None:
    shares = [it.owed_seconds / it.seconds for it in spans]
    second, most = sorted(shares)[-2:]
    if most < max(OWED_FRACTION, 2 * second):
        return None
    host, cost = shares.index(most), most * step
    return Slow(
        host,
        cost,
        f"is slow: the other hosts wait for it at least {words.duration(cost)} of each step of "
        f"{words.duration(step)}",
    )


def _busiest(spans: Sequence[Pace], step: float) -> Slow | None:
    shares = [it.own_seconds / it.seconds for it in spans]
    second, most = sorted(shares)[-2:]
    if most < BUSY_FRACTION or second > IDLE_FRACTION:
        return None
    host = shares.index(most)
    cost = (most - second) * step
    return Slow(
        host,
        cost,
        f"is slow: its own work, such as its input, takes {words.duration(most * step)} of each "
        f"step of {words.duration(step)}, and that of any other host at most "
        f"{words.duration(second * step)}",
    )
