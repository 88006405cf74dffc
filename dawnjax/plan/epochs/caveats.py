"""Warnings that predicted epochs or evaluations may not hold for the planned run."""

from dawnjax.config.experiment import Experiment
from dawnjax.plan.epochs.epochs import Epochs
from dawnjax.plan.epochs.sources import OFFICIAL
from dawnjax.trials.target import Target

KNOWN_ERRORS = {
    "coco_mask_rcnn_resnet50": "official steps of this benchmark took 1.6 times the predicted "
    "time, outside the interval: DGX-1 maskrcnn, DGX-2 maskrcnn of MLPerf Training v0.6"
}
"""What a held-out result of an experiment's benchmark showed (`python -m benchmarks
plan_validation`), where it lies outside of its interval."""


def caveats(experiment: Experiment, epochs: Epochs) -> list[str]:
    """Reasons why the planned run may take longer or shorter."""
    found = []
    if on_host := experiment.task.scored_on_host:
        found.append(
            f"each evaluation also computes {on_host} on the host; no time here includes that"
        )
    if experiment.name in KNOWN_ERRORS:
        found.append(KNOWN_ERRORS[experiment.name])
    if epochs.mean is None:
        return found
    if epochs.source == OFFICIAL and not epochs.has_own_target:
        own = " and ".join(Target(**vars(it)).words() for it in experiment.targets)
        found.append(f"epochs are to the target above, not to the experiment's own target, {own}")
    count = epochs.interval(experiment.evaluation.first_epoch)
    ends = f"{count.low:.3g} to {count.high:.3g}"
    if 0 < experiment.num_epochs < count.high:
        found.append(
            f"the budget is {experiment.num_epochs:g} epochs: a run that needs more (the interval "
            f"is {ends}) ends before its target"
        )
    if epochs.mean < experiment.evaluation.first_epoch:
        found.append(
            f"the first evaluation is after {experiment.evaluation.first_epoch:g} epochs, so the "
            "time includes at least these"
        )
    return found
