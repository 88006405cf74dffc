"""Tiny variants: an experiment's optimizer, schedule and dtype on made-up images, for two steps.

`dawnjax train --experiment=NAME --tiny` runs the constant TINY of the experiment's module: a
minute's proof that the whole of a recipe compiles, steps and evaluates on this machine.
"""

import dataclasses
from typing import Any

from dawnjax.config.experiment import Experiment, ModelConfig
from dawnjax.input_pipeline.image_augmentation import ImageAugmentation
from dawnjax.input_pipeline.synthetic import Synthetic

GLOBAL_BATCH_SIZE = 16
NUM_STEPS = 2


def tiny(
    experiment: Experiment,
    *,
    model: ModelConfig | None = None,
    image_side: int = 32,
    image_channels: int = 3,
    augmentation: ImageAugmentation | None = None,
) -> Experiment:
    """Gives an experiment's tiny variant, two steps in one epoch.

    Args:
      experiment: The experiment.
      model: A small model of the same kind; None keeps the experiment's.
      image_side: Height and width of the made-up images.
      image_channels: Their channels.
      augmentation: In place of the experiment's, whose crops may be too large.
    """
    return dataclasses.replace(
        experiment,
        name=f"{experiment.name}_tiny",
        model=model or experiment.model,
        data=Synthetic(
            num_train_examples=NUM_STEPS * GLOBAL_BATCH_SIZE,
            num_eval_examples=20,  # no whole number of batches
            image_height=image_side,
            image_width=image_side,
            image_channels=image_channels,
        ),
        augmentation=augmentation or experiment.augmentation,
        schedule=_in_one_epoch(experiment.schedule, experiment.num_epochs),
        num_epochs=1.0,
        global_batch_size=GLOBAL_BATCH_SIZE,
        batch_norm_group_size=GLOBAL_BATCH_SIZE // 4,
        evaluation=dataclasses.replace(
            experiment.evaluation, every_epochs=1.0, first_epoch=0.0, global_batch_size=16
        ),
        target_note="two steps: whatever they reach says nothing",
        observations=(),
    )


def _in_one_epoch(schedule: Any, num_epochs: float) -> Any:
    """Gives a schedule whose epochs are fractions of the whole run."""
    shorter = {}
    for field in dataclasses.fields(schedule):
        if field.name.endswith("_epochs"):
            value = getattr(schedule, field.name)
            is_tuple = isinstance(value, tuple)
            shorter[field.name] = (
                tuple(item / num_epochs for item in value) if is_tuple else value / num_epochs
            )
    return dataclasses.replace(schedule, **shorter)
