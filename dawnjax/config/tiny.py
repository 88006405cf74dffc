"""Tiny variants: an experiment's optimizer, schedule and dtype on made-up data, for two steps.

`dawnjax train --experiment=NAME --tiny` runs the constant TINY of the experiment's module: a
minute's proof that the recipe compiles, steps and evaluates on this machine.
"""

import dataclasses
from typing import Any

from dawnjax.config.choices import AnyData, AnyModel, AnyTask
from dawnjax.config.experiment import Experiment
from dawnjax.input_pipeline.datasets.synthetic import Synthetic

GLOBAL_BATCH_SIZE = 16
NUM_STEPS = 2


def tiny_images(side: int = 32, channels: int = 3) -> Synthetic:
    return Synthetic(
        num_train_examples=NUM_STEPS * GLOBAL_BATCH_SIZE,
        num_eval_examples=20,  # no whole number of batches
        image_height=side,
        image_width=side,
        image_channels=channels,
    )


def tiny(
    experiment: Experiment,
    *,
    data: AnyData,
    model: AnyModel | None = None,
    task: AnyTask | None = None,
) -> Experiment:
    """Tiny variant of an experiment: two steps in one epoch, on 32 made-up training examples.

    `model` and `task` replace the experiment's, whose crops may be too large, say.
    """
    return dataclasses.replace(
        experiment,
        name=f"{experiment.name}_tiny",
        task=task or experiment.task,
        model=model or experiment.model,
        data=data,
        schedule=_in_one_epoch(experiment.schedule, experiment.num_epochs or 1.0),
        num_epochs=1.0,
        max_steps=0,
        max_examples=0,
        global_batch_size=GLOBAL_BATCH_SIZE,
        batch_norm_group_size=GLOBAL_BATCH_SIZE // 4 if experiment.batch_norm_group_size else 0,
        evaluation=dataclasses.replace(
            experiment.evaluation, every_epochs=1.0, first_epoch=0.0, global_batch_size=16
        ),
        mlperf_benchmark="",
        target_note="two steps: whatever they reach says nothing",
        observations=(),
    )


def _in_one_epoch(schedule: Any, num_epochs: float) -> Any:
    shorter = {}
    for field in dataclasses.fields(schedule):
        if field.name.endswith("_epochs"):
            value = getattr(schedule, field.name)
            is_tuple = isinstance(value, tuple)
            shorter[field.name] = (
                tuple(item / num_epochs for item in value) if is_tuple else value / num_epochs
            )
    return dataclasses.replace(schedule, **shorter)
