"""Warnings that predicted epochs or evaluations may not hold for the planned run."""

import math
from collections.abc import Collection

from dawnjax.config.experiment import Experiment
from dawnjax.plan.epochs.epochs import Epochs
from dawnjax.plan.epochs.sources import OFFICIAL, SAME_EPOCHS
from dawnjax.trials.target import Target

_SAME_EPOCHS = {*SAME_EPOCHS, "batch_norm_group_size", "data.data_dir"}
"""Flags that the estimate accounts for, or that change no mathematics."""

KNOWN_ERRORS = {
    "coco_mask_rcnn_resnet50": "official steps of this benchmark took 1.6 times the predicted, "
    "outside of the interval: DGX-1 maskrcnn, DGX-2 maskrcnn of MLPerf Training v0.6"
}
"""What a held-out result of an experiment's benchmark showed (`python -m benchmarks
plan_validation`), where it lies outside of its interval."""


def caveats(experiment: Experiment, overrides: Collection[str], epochs: Epochs) -> list[str]:
    """Reasons why the planned run, with the named flags overridden, may take longer or shorter."""
    found = []
    if on_host := experiment.task.scored_on_host:
        found.append(f"each evaluation computes {on_host} on the host too, which no time here has")
    if experiment.name in KNOWN_ERRORS:
        found.append(KNOWN_ERRORS[experiment.name])
    if epochs.mean is None:
        return found
    if epochs.source == OFFICIAL:
        if not epochs.has_own_target:
            own = " and ".join(Target(**vars(it)).words() for it in experiment.targets)
            found.append(
                f"epochs are not to the experiment's own target, {own}, but to the one above"
            )
        if changed := sorted(set(overrides) - _SAME_EPOCHS):
            found.append(f"epochs are of other settings than this plan's {', '.join(changed)}")
    count = epochs.interval(experiment.evaluation.first_epoch)
    ends = f"{count.low:.3g} to {count.high:.3g}"
    if 0 < experiment.num_epochs < count.low:
        found.append(
            f"the budget is {experiment.num_epochs:g} epochs, below the interval of those to the "
            f"target, {ends}: expect that the run ends before its target"
        )
    elif 0 < experiment.num_epochs < count.high:
        found.append(
            f"the budget is {experiment.num_epochs:g} epochs: a run that needs more, of the "
            f"interval of {ends}, ends before its target"
        )
    if epochs.mean < experiment.evaluation.first_epoch:
        found.append(
            f"the first evaluation is after {experiment.evaluation.first_epoch:g} epochs, and the "
            "time includes all until then"
        )
    return found


def straddling_groups(group: int, batch: int, shards: int) -> str:
    """Line about BatchNorm groups that straddle devices, with a group that avoids it; else empty.

    Args:
      group: Consecutive examples of the global batch that share statistics; 0 without groups.
      shards: Devices among which the global batch is divided.
    """
    share = batch // shards
    if not group or batch % shards or share % group == 0:
        return ""
    sizes = [size for size in range(1, share + 1) if share % size == 0]
    fits = min(sizes, key=lambda size: abs(math.log(size / group)))
    return (
        f"BatchNorm groups of {group} examples straddle devices of {share}, which exchange whole "
        f"activations for them: --batch_norm_group_size={fits}, another recipe, avoids it"
    )
