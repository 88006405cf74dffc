"""Search for the host of a run that the others wait for."""

import dataclasses
from collections.abc import Sequence
from typing import Any

NO_TRACE = "the host that the others wait for cannot be named: a host's trace is missing"

STRAGGLER_FRACTION = 0.05
"""A host that costs the others less than this share of a step is no straggler."""


@dataclasses.dataclass(frozen=True)
class Straggler:
    """A host that the others wait for.

    `cost_seconds_per_step` is the mean wait of each other host per step, `fraction` the same as a
    fraction of the step.
    """

    process_index: int
    cost_seconds_per_step: float
    fraction: float

    def line(self) -> str:
        return (
            f"host {self.process_index} holds the others up: each waits "
            f"{1000 * self.cost_seconds_per_step:.3g} ms a step for it, {self.fraction:.0%} of the "
            "traced step"
        )

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def find_straggler(
    waits: Sequence[float | None], step_seconds: float
) -> tuple[Straggler | None, str]:
    """The host that waits least, if all other hosts wait (seconds); or None and the reason."""
    known = [(wait, index) for index, wait in enumerate(waits) if wait is not None]
    if len(known) < len(waits):
        return None, NO_TRACE
    if len(known) < 2:
        return None, ""
    least, slowest = min(known)
    cost = (sum(wait for wait, _ in known) - least) / (len(known) - 1) - least
    if cost < STRAGGLER_FRACTION * step_seconds:
        return None, (
            f"no host holds the others up: each waits {1000 * cost:.3g} ms a step for host "
            f"{slowest}, {cost / step_seconds:.1%} of the traced step, and less than "
            f"{STRAGGLER_FRACTION:.0%} names none"
        )
    return Straggler(slowest, round(cost, 9), round(cost / step_seconds, 6)), ""
