"""Two entries compared: speedups, and the verdict on their expected times.

Source of the speedups: arXiv 1806.01427, Table 7.
"""

import dataclasses

from dawnjax.statistics.verdict import Verdict, judge
from dawnjax.trials.group import Entry


@dataclasses.dataclass(frozen=True, kw_only=True)
class Speedup:
    """A large system against a small one; `small` and `large` are the sources of their entries.

    Attributes:
      throughput: Mean time per epoch of the small over that of the large; None if unknown.
      tta: Score of the small over score of the large, both before any factor of a review, as the
        epochs and the times per epoch are; None where one has no score.
      epochs: Mean epochs of the large over those of the small: the price of the larger batch.
      accelerators: Accelerators of the large over those of the small; None if unknown.
    """

    small: str
    large: str
    throughput: float | None
    tta: float | None
    epochs: float | None
    accelerators: float | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Comparison:
    """A second entry beside a first one, by the sources of both.

    Attributes:
      verdict: Verdict on the second entry; None if a trial's length is unknown.
      caution: Limits of the comparison; empty if there are none.
    """

    first: str
    second: str
    verdict: Verdict | None
    caution: str


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


def compare(first: Entry, second: Entry) -> Comparison:
    """Compare the expected times of two entries, as `dawnjax compare` does."""
    samples = first.figures.sample, second.figures.sample
    verdict = None
    if samples[0] is not None and samples[1] is not None:
        verdict = judge(samples[0], samples[1])
    cautions = [] if verdict else ["how long a trial ran is not known"]
    if (first.suite, first.benchmark) != (second.suite, second.benchmark):
        cautions.append("different benchmarks")
    elif first.target != second.target:
        cautions.append("different targets")
    if first.identity != second.identity:
        cautions.append("different experiments")
    if shared := shared_trials(first, second):
        cautions.append(f"{len(shared)} of the second's trials in the first too")
    if first.scaling_factor != second.scaling_factor:
        factors = f"{first.scaling_factor:.4g} and {second.scaling_factor:.4g}"
        cautions.append(f"times before the round's review, which scaled the scores by {factors}")
    return Comparison(
        first=first.source, second=second.source, verdict=verdict, caution="; ".join(cautions)
    )


def shared_trials(first: Entry, second: Entry) -> list[str]:
    """Names of the second's trials that are, by their run's id, trials of the first too."""
    run_ids = {trial.run_id for trial in first.trials} - {""}
    return [trial.name for trial in second.trials if trial.run_id in run_ids]


def _over(numerator: float | None, denominator: float | None) -> float | None:
    return numerator / denominator if numerator is not None and denominator else None
