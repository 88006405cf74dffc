"""Warnings that predicted epochs may not hold for the planned run."""

from collections.abc import Collection

from dawnjax.config.experiment import Experiment, Target
from dawnjax.plan.epochs import Epochs

_SAME_EPOCHS = {"global_batch_size", "batch_norm_group_size", "compute_dtype", "data.data_dir"}
"""Flags that the estimate accounts for, or that change no mathematics."""


def caveats(
    experiment: Experiment, overrides: Collection[str], epochs: Epochs, global_batch: int
) -> list[str]:
    """Reasons why the planned run, with the named flags overridden, may take other epochs."""
    if epochs.mean is None:
        return []
    found = []
    if epochs.of_official_results:
        own = " and ".join(map(_words, experiment.targets))
        found.append(f"epochs are not to the experiment's own target, {own}, but to the one above")
        changed = sorted(set(overrides) - _SAME_EPOCHS)
        if changed:
            found.append(f"epochs are of other settings than this plan's {', '.join(changed)}")
    if epochs.batches and global_batch not in epochs.batches:
        counted = ", ".join(f"{batch:,}" for batch in epochs.batches)
        found.append(f"epochs were counted at batch {counted}, not {global_batch:,}")
    if 0 < experiment.num_epochs < epochs.mean:
        found.append(
            f"the budget is {experiment.num_epochs:g} epochs: without a longer one, the run ends "
            "before its target"
        )
    if epochs.mean < experiment.evaluation.first_epoch:
        found.append(
            f"the first evaluation is after {experiment.evaluation.first_epoch:g} epochs, and the "
            "time includes all until then"
        )
    return found


def _words(target: Target) -> str:
    return f"{target.metric} {target.direction.replace('_', ' ')} {target.value:g}"
