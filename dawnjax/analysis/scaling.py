"""Speedups of larger systems, and time to accuracy against the number of accelerators.

Source of the speedups: arXiv 1806.01427, Table 7.
"""

import dataclasses
import re
from collections.abc import Iterable

from dawnjax.trials.group import Entry


@dataclasses.dataclass(frozen=True, kw_only=True)
class Speedup:
    """A large system against a small one; `small` and `large` are the sources of their entries.

    Attributes:
      throughput: Mean time per epoch of the small over the large system's; None if unknown.
      tta: Score of the small over score of the large, both before any factor of a review, as the
        epochs and the times per epoch are; None where one has no score.
      epochs: Mean epochs of the large over the small system's: the price of the larger batch.
      accelerators: Accelerators of the large over the small system's; None if unknown.
    """

    small: str
    large: str
    throughput: float | None
    tta: float | None
    epochs: float | None
    accelerators: float | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScalingPoint:
    """One system of a series, against the smallest.

    Attributes:
      seconds: Unscaled score where there is one, else mean time to accuracy.
      speedup: Seconds of the smallest system over these.
      efficiency: Speedup over the ratio of accelerators; 1 is linear.
      gap_from_linear: Ratio of accelerators minus speedup; 0 is linear.
      throughput_efficiency: Throughput speedup over the ratio of accelerators, which shows the cost
        of communication and small per-device batches. None if epochs are unknown.
      epochs_ratio: Epochs over the smallest system's: the price of the larger batch.
    """

    entry: Entry
    num_accelerators: int
    seconds: float
    speedup: float
    efficiency: float
    gap_from_linear: float
    throughput_efficiency: float | None
    epochs_ratio: float | None


def speedup(small: Entry, large: Entry) -> Speedup:
    of_small, of_large = small.figures, large.figures
    return Speedup(
        small=small.source,
        large=large.source,
        throughput=_over(
            of_small.seconds_per_epoch_mean,
            of_large.seconds_per_epoch_mean,
        ),
        tta=_over(
            of_small.unscaled_score_seconds,
            of_large.unscaled_score_seconds,
        ),
        epochs=_over(of_large.epochs_mean, of_small.epochs_mean),
        accelerators=_over(large.num_accelerators, small.num_accelerators),
    )


def seconds_of(entry: Entry) -> float | None:
    """Single time of an entry: its score, or the mean where all trials reached.

    The score is that before any factor of a review, as are the epochs and the times per epoch.
    """
    summary = entry.figures
    if summary.unscaled_score_seconds is not None:
        return summary.unscaled_score_seconds
    return summary.mean_seconds if summary.reached == summary.trials else None


def scaling(entries: Iterable[Entry]) -> list[ScalingPoint]:
    """Scaling of one series of systems, the smallest first.

    Entries without a time or a number of accelerators are left out. The base is the fastest entry
    of the smallest system.
    """
    known = [
        (entry.num_accelerators, seconds, entry)
        for entry in entries
        if entry.num_accelerators and (seconds := seconds_of(entry))
    ]
    known.sort(key=lambda point: (point[0], point[1], point[2].source))
    if not known:
        return []
    base_accelerators, base_seconds, base = known[0]
    points = []
    for accelerators, seconds, entry in known:
        ratio = accelerators / base_accelerators
        gained = base_seconds / seconds
        parts = speedup(base, entry)
        points.append(
            ScalingPoint(
                entry=entry,
                num_accelerators=accelerators,
                seconds=seconds,
                speedup=gained,
                efficiency=gained / ratio,
                gap_from_linear=ratio - gained,
                throughput_efficiency=None
                if parts.throughput is None
                else parts.throughput / ratio,
                epochs_ratio=parts.epochs,
            )
        )
    return points


def series(entries: Iterable[Entry]) -> list[list[Entry]]:
    """Group entries that differ in size alone, as far as they say.

    They agree in suite, round, benchmark, data, target, submitter, framework, model and, but for
    whole numbers, in hardware (`tpuv3-8` and `tpuv3-512`). Ours agree in the experiment's name; the
    caller must know that nothing but the batch size differs, and the scaling table names entries
    that differ in more. Groups of one size are left out.
    """
    groups: dict[tuple[str, ...], list[Entry]] = {}
    for entry in entries:
        if entry.kind == "training" and entry.num_accelerators and seconds_of(entry):
            key = (
                entry.suite,
                entry.round,
                entry.benchmark,
                entry.data,
                # As text, because a missing value does not sort beside a number.
                repr(dataclasses.astuple(entry.target)),
                entry.submitter,
                entry.framework_family,
                entry.model,
                # Numbers alone differ between the sizes of one machine, as in tpuv3-8 and
                # tpuv3-512.
                re.sub(r"\b\d+\b", "#", entry.hardware),
            )
            groups.setdefault(key, []).append(entry)
    return [
        group
        for _, group in sorted(groups.items())
        if len({entry.num_accelerators for entry in group}) > 1
    ]


def _over(numerator: float | None, denominator: float | None) -> float | None:
    return numerator / denominator if numerator is not None and denominator else None
