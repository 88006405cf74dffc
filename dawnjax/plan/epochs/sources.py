"""Epochs to the target of a planned run, from the best source that knows them.

The sources, in this order: the user (`--epochs`, or the runs of `--epochs_from`), observed trials
of the experiment, official results of the same benchmark. Without any a plan has the range from the
first evaluation to the end of the budget, and no estimate.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence

from dawnjax import records
from dawnjax.config.experiment import Experiment, Observation
from dawnjax.config.experiment_modules import changed_fields
from dawnjax.config.observations import observations_of
from dawnjax.errors import ConfigError
from dawnjax.plan.epochs import epochs
from dawnjax.plan.epochs.epochs import Epochs
from dawnjax.plan.epochs.interval import DEVIATIONS, octaves_outside
from dawnjax.plan.epochs.observations import TARGETS, convergence_points, official_points

GIVEN, RUNS = "given", "given runs"
TRIALS, OFFICIAL = "trials of the experiment", "official results"

_OTHER_EXPERIMENT = ("task", "model", "data", "targets")
"""Fields that make trials say nothing about the planned run."""

SAME_EPOCHS = (
    "global_batch_size", "compute_dtype", "xla_options", "accumulation_steps", "model.remat",
    "model.loss_chunk",
)  # fmt: skip
"""Fields that the estimate accounts for, or that change no mathematics."""

_NO_RECIPE = (
    *SAME_EPOCHS, "batch_norm_group_size", "data.", "evaluation.", "targets.", "mlperf_benchmark",
)  # fmt: skip
"""Beginnings of fields that official results account for, or that are no settings of a recipe."""

_WITH_BATCH = ("optimizer.base_learning_rate", "schedule.")
"""Beginnings of fields that MLPerf's reference points change with the batch."""


def given(number: float) -> Epochs:
    """Epochs that the user states; ConfigError unless above 0 and below a million."""
    if not 0 < number < 1e6:
        raise ConfigError("--epochs must be a number above 0 and below a million")
    return Epochs(mean=number, spread=0.0, basis="given by --epochs, taken as exact", source=GIVEN)


def known(
    experiment: Experiment, base: Experiment | None, batch: int, train_examples: int
) -> Epochs:
    """Estimate from the experiment's trials, or else from official results.

    Args:
      experiment: With the flags of the plan.
      base: The experiment without them, as in its file; None without a file's version, as for a
        tiny variant.
      batch: Global batch that is planned.
      train_examples: Examples of an epoch.
    """
    trials = None
    if base and (seen := observations_of(base)):
        trials = of_trials(experiment, base, seen, batch, train_examples)
    if trials and trials.mean is not None:
        return trials
    official = of_official_results(experiment, batch, train_examples)
    if official.mean is not None:
        return _of_other_recipe(official, base, experiment, batch)
    if not trials:
        return official
    return dataclasses.replace(official, basis=f"{trials.basis}; {official.basis}")


def _of_other_recipe(
    found: Epochs, base: Experiment | None, experiment: Experiment, batch: int
) -> Epochs:
    """Epochs of official results, widened where flags change the recipe."""
    if base is None:
        return found
    same = _NO_RECIPE if batch == base.global_batch_size else (*_NO_RECIPE, *_WITH_BATCH)
    changed = [name for name in changed_fields(base, experiment) if not name.startswith(same)]
    return _widened(found, changed)


def _widened(found: Epochs, changed: Sequence[str]) -> Epochs:
    """Estimate of trials whose recipe differs from the planned one in these fields."""
    if found.mean is None or not changed:
        return found
    basis = f"{found.basis}, with another {', '.join(changed)}: the interval is widened"
    return dataclasses.replace(found, spread=math.hypot(found.spread, epochs.RECIPES), basis=basis)


def of_trials(
    experiment: Experiment,
    base: Experiment,
    seen: Sequence[Observation],
    batch: int,
    train_examples: int,
) -> Epochs:
    """Estimate from observed trials of `base`."""
    counts = [count for one in seen for count in one.epochs_to_target]
    trials, reached = sum(one.trials for one in seen), sum(one.reached for one in seen)
    changed = [name for name in changed_fields(base, experiment) if name not in SAME_EPOCHS]
    other = [name for name in changed if name.split(".")[0] in _OTHER_EXPERIMENT]
    if experiment.initialize_from != base.initialize_from:
        other.append("initialize_from")
    if other:
        return _unknown(f"its {trials} trials had another {', '.join(other)}")
    if not counts:
        why = "were not kept" if reached else "are unknown: none reached the target"
        return _unknown(f"the epochs of its {trials} trials {why}")
    places = "; ".join(f"{one.hardware}, {one.date}" for one in seen if one.epochs_to_target)
    basis = f"mean of {len(counts)} of {trials} trials that reached the target ({places})"
    basis += _without_misses(trials - reached)
    return _widened(_of_counts(counts, base, batch, train_examples, basis, TRIALS), changed)


def _without_misses(trials: int) -> str:
    return f"; time and cost leave out the {trials} that did not reach it" if trials else ""


def _of_counts(
    counts: Sequence[float],
    ran: Experiment,
    batch: int,
    train_examples: int,
    basis: str,
    source: str,
) -> Epochs:
    """Estimate from the epochs of trials of an experiment that reached its target."""
    mean, counted = math.fsum(counts) / len(counts), ran.global_batch_size
    # The interval reaches the next evaluation after the mean: a few trials that all reached at one
    # evaluation do not show that the next trial does.
    every = ran.evaluation.epochs_between(train_examples / counted)
    spread = max(epochs.spread_of_trials(counts), math.log1p(every / mean) / DEVIATIONS)
    mean = epochs.at_other_batch(mean, counted, batch)
    return at_batch(mean, spread, [counted], batch, basis, source)


def of_runs(path: str, experiment: Experiment) -> Callable[[int, int], Epochs]:
    """Estimate by batch, and examples of an epoch, from runs; ConfigError where they are unfit.

    The runs are taken to have evaluated as often as the planned one.
    """
    from dawnjax.analysis import loading

    loaded, _ = loading.load_with_runs(records.path_of(path))
    name, entries = experiment.name, list(loaded)
    ours = [entry for entry in entries if (entry.suite, entry.benchmark) == ("dawnjax", name)]
    if not ours:
        names = ", ".join(sorted({entry.benchmark for entry in entries}))
        found = f"of {names}" if entries else "trials that chose a recipe"
        raise ConfigError(f"--epochs_from={path}: found no run of {name}, but {found}")
    if len({entry.identity for entry in ours}) > 1:
        raise ConfigError(
            f"--epochs_from={path}: the runs differ in recipe, batch or target (identity); give "
            "runs of one"
        )
    trials = [trial for entry in ours for trial in entry.trials]
    counts = [trial.epochs_to_target for trial in trials if trial.epochs_to_target]
    if not counts:
        raise ConfigError(
            f"--epochs_from={path}: no trial there has the number of epochs to its target"
        )
    basis = f"mean of {len(counts)} of {len(trials)} trials in {path} that reached "
    basis += ours[0].target.words() + _without_misses(sum(not trial.reached for trial in trials))
    if loaded.problems:
        basis += f"; left out: {len(loaded.problems)} (`dawnjax report` says why)"
    counted = ours[0].global_batch_size or experiment.global_batch_size
    ran = dataclasses.replace(experiment, global_batch_size=counted)
    return lambda batch, train_examples: _of_counts(counts, ran, batch, train_examples, basis, RUNS)


def of_official_results(experiment: Experiment, batch: int, train_examples: int) -> Epochs:
    """Estimate from official results of the experiment's benchmark.

    Points to the experiment's own target weigh more than points to another.
    """
    name, target = experiment.name, math.nan
    if experiment.targets:
        target = experiment.targets[0].value
    official = official_points(name)
    points = [*official, *convergence_points(name, train_examples)]
    curve = epochs.fit(points, target)
    if curve is None:
        return _unknown("no official result has the epochs to the target")
    parts = []
    if official:
        parts.append(f"{len(official)} results of MLPerf Training v0.5 to {TARGETS[name]:g}")
    if others := len(points) - len(official):
        to = ", ".join(f"{point:g}" for point in sorted({p.target for p in points[-others:]}))
        parts.append(f"{others} reference points of later rounds to {to}")
    basis, own = " and ".join(parts), any(point.target == target for point in points)
    found = at_batch(curve.at(batch), curve.spread, curve.batches, batch, basis, OFFICIAL)
    return dataclasses.replace(found, has_own_target=own)


def _unknown(basis: str) -> Epochs:
    return Epochs(mean=None, spread=0.0, basis=basis)


def at_batch(
    mean: float,
    spread: float,
    batches: Sequence[int],
    global_batch: int,
    basis: str,
    source: str,
) -> Epochs:
    """Estimate at a batch; its spread grows beyond the counted batches until it is withheld."""
    away = octaves_outside(batches, global_batch)
    smallest, largest = min(batches), max(batches)
    counted = f"batch {smallest:,}" + (f" to {largest:,}" if largest > smallest else "")
    if away > epochs.MOST_OCTAVES:
        return _unknown(
            f"epochs were counted at {counted}: {global_batch:,} is {2**away:.1f} times beyond; "
            "at three doublings, 1 in 10 predictions was wrong by a factor of "
            f"{math.exp(epochs.ERROR_OF_3_OCTAVES):.1f} or more"
        )
    if away:
        basis += f", at {counted}: moved to {global_batch:,}, and the interval is widened"
    spread = epochs.spread_outside(spread, batches, global_batch)
    return Epochs(mean=mean, spread=spread, basis=basis, source=source)
