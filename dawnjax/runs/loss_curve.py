"""Training loss by step, from the log of a run."""

from collections.abc import Sequence
from typing import NamedTuple

from dawnjax.runs.log import LOSSES, Event


class StepLoss(NamedTuple):
    """Loss of one step before its update, and the norm of its gradient where that is recorded."""

    step: int
    loss: float
    gradient_norm: float | None = None


_EACH_BITS = 12


def next_kept(step: int) -> int:
    """Next step after `step` whose loss is kept: each up to 4,096, then 2,048 of each doubling.

    The steps are the same in every run and attempt, however many a call makes. Of a million steps
    20,290 are kept, which take half a megabyte of the log.
    """
    shift = max(0, step.bit_length() - _EACH_BITS)
    return ((step >> shift) + 1) << shift


def loss_curve(events: Sequence[Event]) -> list[StepLoss]:
    """Kept losses by ascending step; of a step that was made again, the last attempt's.

    What an attempt made beyond the checkpoint from which the next one continued is left out.
    """
    curve: dict[int, StepLoss] = {}
    attempt = 0
    for event in events:
        if event["event"] != LOSSES or not event["at_steps"]:
            continue
        if event["attempt"] != attempt:
            attempt, first = event["attempt"], event["at_steps"][0]
            curve = {step: point for step, point in curve.items() if step < first}
        norms = event.get("gradient_norms") or [None] * len(event["at_steps"])
        for step, loss, norm in zip(event["at_steps"], event["losses"], norms, strict=True):
            # NaN and infinities are text in a log.
            curve[step] = StepLoss(step, float(loss), None if norm is None else float(norm))
    return list(curve.values())


def averaged(curve: Sequence[StepLoss], most: int) -> list[tuple[int, float]]:
    """At most `most` points (step, loss): means over stretches of equal numbers of kept losses.

    Losses that are NaN or infinite are left out.
    """
    finite = [point for point in curve if abs(point.loss) < float("inf")]
    each = -(-len(finite) // most) or 1
    stretches = [finite[at : at + each] for at in range(0, len(finite), each)]
    return [(s[-1].step, sum(point.loss for point in s) / len(s)) for s in stretches]
