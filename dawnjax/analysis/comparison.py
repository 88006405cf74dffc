"""Two entries compared: speedups, and the verdict on their expected times.

Source of the speedups: arXiv 1806.01427, Table 7.
"""

import dataclasses
from collections.abc import Iterable

from dawnjax.page.table import Column, Table
from dawnjax.statistics.interval import FEWEST_TRIALS
from dawnjax.statistics.sample import FEWEST_WITH_FAILURES
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
    of_small, of_large = small.summary, large.summary
    return Speedup(
        small=small.source,
        large=large.source,
        throughput=_over(
            of_small and of_small.seconds_per_epoch_mean,
            of_large and of_large.seconds_per_epoch_mean,
        ),
        tta=_over(
            of_small and of_small.unscaled_score_seconds,
            of_large and of_large.unscaled_score_seconds,
        ),
        epochs=_over(of_large and of_large.epochs_mean, of_small and of_small.epochs_mean),
        accelerators=_over(large.num_accelerators, small.num_accelerators),
    )


def speedup_table(pairs: Iterable[tuple[Entry, Entry]]) -> Table:
    """Table of the speedups of (small, large) pairs of entries (arXiv 1806.01427, Table 7)."""
    rows = []
    for small, large in pairs:
        value = speedup(small, large)
        rows.append(
            (
                small.benchmark,
                value.small,
                value.large,
                small.num_accelerators,
                large.num_accelerators,
                small.global_batch_size,
                large.global_batch_size,
                small.summary and small.summary.epochs_mean,
                large.summary and large.summary.epochs_mean,
                value.throughput,
                value.tta,
            )
        )
    return Table(
        name="speedups",
        title="Throughput speedup against time-to-accuracy speedup",
        columns=(
            Column("benchmark", "benchmark"),
            Column("small", "small system"),
            Column("large", "large system"),
            Column("small_accelerators", "accelerators, small", kind="integer"),
            Column("large_accelerators", "accelerators, large", kind="integer"),
            Column("small_batch_size", "batch size, small", kind="integer"),
            Column("large_batch_size", "batch size, large", kind="integer"),
            Column("small_epochs", "epochs, small", kind="number"),
            Column("large_epochs", "epochs, large", kind="number"),
            Column("throughput_speedup", "throughput speedup", "x", "number"),
            Column("tta_speedup", "time-to-accuracy speedup", "x", "number"),
        ),
        rows=tuple(rows),
        notes=(
            "Throughput speedup: ratio of the mean times per epoch. Time-to-accuracy speedup: "
            "ratio of the MLPerf scores, unscaled. Their gap is what more epochs cost.",
        ),
    )


def compare(first: Entry, second: Entry) -> Comparison:
    """Compare the expected times of two entries, as `dawnjax compare` does."""
    samples = first.sample, second.sample
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
    return [trial.file for trial in second.trials if trial.run_id in run_ids]


def compare_table(pairs: Iterable[tuple[Entry, Entry]]) -> Table:
    rows = []
    for first, second in pairs:
        value = compare(first, second)
        verdict = value.verdict
        ratio = verdict and verdict.ratio
        rows.append(
            (
                first.benchmark,
                value.first,
                value.second,
                *(_reached(entry) for entry in (first, second)),
                ratio and ratio.value,
                ratio and ratio.low,
                ratio and ratio.high,
                ratio and ratio.ends,
                verdict.word if verdict else "not known",
                verdict and verdict.why,
                verdict.advice.text() if verdict and verdict.advice else "",
                value.caution,
            )
        )
    return Table(
        name="comparisons",
        title="Comparisons",
        columns=(
            Column("benchmark", "benchmark"),
            Column("first", "first"),
            Column("second", "second"),
            Column("first_reached", "reached, first"),
            Column("second_reached", "reached, second"),
            Column("ratio", "ratio of expected times", "x", "number"),
            Column("ratio_low", "from", "x", "number"),
            Column("ratio_high", "to", "x", "number"),
            Column("ratio_ends", "the ends are"),
            Column("verdict", "second beside first"),
            Column("why", "why"),
            Column("advice", "further trials"),
            Column("caution", "caution"),
        ),
        rows=tuple(rows),
        notes=(
            "Expected time of the second over that of the first: below 1 the second is faster.",
            f"With fewer than {FEWEST_TRIALS} trials of either ({FEWEST_WITH_FAILURES} where some "
            "did not reach) there is no interval and no verdict; the range is that of the ratios "
            "of single trials.",
            "Each verdict stands for itself: of pairs of equal systems, 5 in 100 are found to "
            "differ.",
        ),
    )


def _reached(entry: Entry) -> str:
    return f"{sum(trial.reached for trial in entry.trials)}/{len(entry.trials)}"


def _over(numerator: float | None, denominator: float | None) -> float | None:
    return numerator / denominator if numerator is not None and denominator else None
