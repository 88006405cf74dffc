"""How time to accuracy falls with more accelerators, and how steps fall with a larger batch."""

import dataclasses
import re
import statistics
from collections.abc import Iterable, Sequence

import numpy as np

from dawnjax.analysis.comparison import speedup
from dawnjax.analysis.entry_tables import COMPILATION, mean_compile_seconds
from dawnjax.errors import ConfigError
from dawnjax.page.table import Column, Table, row_of
from dawnjax.results.entries import Entry

LEAST_BATCH_SIZES = 4
"""Distinct batch sizes that a fit of two parameters needs: two more show whether it fits."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScalingPoint:
    """One system of a series, against the smallest.

    Attributes:
      entry: The entry.
      num_accelerators: Of the job.
      seconds: Score where there is one, else mean time to accuracy.
      speedup: Seconds of the smallest system over these.
      efficiency: Speedup over the ratio of accelerators; 1 is linear.
      gap_from_linear: Ratio of accelerators minus speedup; 0 is linear.
      throughput_efficiency: Throughput speedup over the ratio of accelerators: what communication
        and small per-device batches cost. None if epochs are not known.
      epochs_ratio: Epochs over those of the smallest: what the larger batch costs.
    """

    entry: Entry
    num_accelerators: int
    seconds: float
    speedup: float
    efficiency: float
    gap_from_linear: float
    throughput_efficiency: float | None
    epochs_ratio: float | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class CriticalBatchFit:
    """The fit of S = Smin + Emin / B, for steps S to the target at batch size B.

    Attributes:
      critical_batch_size: Emin / Smin: twice the fewest steps and twice the fewest examples meet
        there.
      min_steps: Smin, steps at an unlimited batch size.
      min_examples: Emin, examples at the smallest batch size.
      low: Smallest critical batch size of the fits without one of the batch sizes.
      high: Largest of them; None if one of those fits has no positive Smin.
      relative_error: Root mean square of (fitted - S) / S.
      batch_sizes: Those fitted, in their order.
      extrapolated: Whether the critical batch size is outside of them.
    """

    critical_batch_size: float
    min_steps: float
    min_examples: float
    low: float
    high: float | None
    relative_error: float
    batch_sizes: tuple[float, ...]
    extrapolated: bool


def seconds_of(entry: Entry) -> float | None:
    """The one time of an entry: its score, or the mean where all trials reached."""
    summary = entry.summary
    if summary is None:
        return None
    if summary.score_seconds is not None:
        return summary.score_seconds
    return summary.mean_seconds if summary.reached == summary.trials else None


def scaling(entries: Iterable[Entry]) -> list[ScalingPoint]:
    """Scaling of one series of systems, the smallest first.

    Entries without a time or a number of accelerators are left out; of one number of accelerators
    the smallest system's fastest entry is the base.
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
    """Groups entries that differ in size alone, as far as they say.

    They agree in suite, round, benchmark, target, submitter, framework, model and, but for whole
    numbers, in what they call their hardware (`tpuv3-8` and `tpuv3-512`). Ours must also run the
    same experiment up to its batch size, which is for the caller to know: they agree in its name,
    and the table of scaling names those that differ in more. Groups of one size are left out.
    """
    groups: dict[tuple[str, ...], list[Entry]] = {}
    for entry in entries:
        if entry.kind == "training" and entry.num_accelerators and seconds_of(entry):
            key = (
                entry.suite,
                entry.round,
                entry.benchmark,
                repr(dataclasses.astuple(entry.target)),
                entry.submitter,
                entry.framework_family,
                entry.model,
                re.sub(r"\b\d+\b", "#", entry.hardware),
            )
            groups.setdefault(key, []).append(entry)
    return [
        group
        for _, group in sorted(groups.items())
        if len({entry.num_accelerators for entry in group}) > 1
    ]


def scaling_table(groups: Iterable[Sequence[Entry]]) -> Table:
    """Table of the scaling of several series."""
    columns = (
        Column("series", "series"),
        Column("system", "system"),
        Column("source", "entry"),
        Column("num_accelerators", "accelerators", kind="integer"),
        Column("global_batch_size", "batch size", kind="integer"),
        Column("seconds", "time to accuracy", "s", "number"),
        COMPILATION,
        Column("speedup", "speedup", "x", "number"),
        Column("efficiency", "efficiency", "", "fraction"),
        Column("gap_from_linear", "gap from linear", "x", "number"),
        Column("throughput_efficiency", "efficiency of throughput", "", "fraction"),
        Column("epochs_ratio", "ratio of epochs", "x", "number"),
    )
    rows, recipes = [], []
    for number, group in enumerate(groups, start=1):
        points = scaling(group)
        variants = sorted({point.entry.variant or "as it is" for point in points})
        if len(variants) > 1:
            recipes.append(f"Series {number} joins several recipes: {'; '.join(variants)}.")
        for point in points:
            entry = point.entry
            rows.append(
                row_of(
                    columns,
                    point,
                    entry,
                    series=f"{number}: {entry.submitter} {entry.benchmark}".strip(),
                    system=entry.system or entry.hardware,
                    compile_seconds=mean_compile_seconds(entry),
                )
            )
    return Table(
        name="scaling",
        title="Scaling",
        columns=columns,
        rows=tuple(rows),
        notes=(
            "Against the smallest system of the series. Efficiency: speedup over ratio of "
            "accelerators; gap from linear: that ratio minus the speedup.",
            "Recipes may differ between sizes: the ratio of epochs and the batch size tell.",
            *recipes,
        ),
    )


def fit_critical_batch_size(
    batch_sizes: Sequence[float], steps: Sequence[float]
) -> CriticalBatchFit:
    """Fits the steps to the target against the batch size.

    (S / Smin - 1)(E / Emin - 1) = 1 with E = B S, that is S = Smin + Emin / B; least squares of the
    relative errors, so that long and short runs weigh the same.

    Source: S. McCandlish et al., "An Empirical Model of Large-Batch Training" (arXiv 1812.06162),
    equations 2.11 and 2.12.

    Args:
      batch_sizes: Examples a step, one a trial; several trials of one size are welcome.
      steps: Steps to the target, of the same trials.

    Raises:
      ConfigError: There are too few batch sizes, or the points do not follow the law.
    """
    if len(batch_sizes) != len(steps):
        raise ConfigError(f"{len(batch_sizes)} batch sizes for {len(steps)} numbers of steps")
    if any(value <= 0 for value in (*batch_sizes, *steps)):
        raise ConfigError("batch sizes and steps must be above 0")
    distinct = tuple(sorted(set(batch_sizes)))
    if len(distinct) < LEAST_BATCH_SIZES:
        raise ConfigError(
            f"a critical batch size needs {LEAST_BATCH_SIZES} distinct batch sizes that reached "
            f"the target; there are {len(distinct)}"
        )
    sizes, counts = np.asarray(batch_sizes, np.float64), np.asarray(steps, np.float64)
    min_steps, min_examples = _fit(sizes, counts)
    if min_examples <= 0:
        raise ConfigError(
            "steps do not fall with the batch size, so that there is no critical batch size: all "
            "sizes here are above it, or the recipe is not tuned for each"
        )
    if min_steps <= 0:
        raise ConfigError(
            "steps fall in proportion to the batch size or faster, so that the critical batch size "
            "is above all sizes here; add larger ones"
        )
    critical = min_examples / min_steps
    partial_fits = [_fit(sizes[sizes != size], counts[sizes != size]) for size in distinct]
    bounded = [e / s for s, e in partial_fits if s > 0]
    fitted = min_steps + min_examples / sizes
    return CriticalBatchFit(
        critical_batch_size=critical,
        min_steps=min_steps,
        min_examples=min_examples,
        low=max(0.0, min([critical, *bounded])),
        high=max([critical, *bounded]) if len(bounded) == len(partial_fits) else None,
        relative_error=float(np.sqrt(np.mean((fitted / counts - 1) ** 2))),
        batch_sizes=distinct,
        extrapolated=not distinct[0] <= critical <= distinct[-1],
    )


def batch_points(entries: Iterable[Entry], num_train_examples: int) -> list[tuple[int, float]]:
    """Batch size and mean steps to the target of the entries whose trials all reached.

    Args:
      entries: Of one experiment at several batch sizes.
      num_train_examples: Examples of an epoch.
    """
    points = []
    for entry in entries:
        epochs = [trial.epochs for trial in entry.trials]
        known = [count for count in epochs if count is not None]
        all_reached = all(trial.reached for trial in entry.trials)
        if entry.global_batch_size and known and all_reached and len(known) == len(epochs):
            steps = statistics.fmean(known) * num_train_examples / entry.global_batch_size
            points.append((entry.global_batch_size, steps))
    return sorted(points)


def _fit(sizes: np.ndarray, counts: np.ndarray) -> tuple[float, float]:
    """Fits Smin and Emin by least squares of the relative errors."""
    design = np.stack([1 / counts, 1 / (sizes * counts)], axis=1)
    scale = np.abs(design).max(axis=0)
    solution, *_ = np.linalg.lstsq(design / scale, np.ones(len(counts)), rcond=None)
    min_steps, min_examples = solution / scale
    return float(min_steps), float(min_examples)
