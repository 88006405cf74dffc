"""Tiny variants: an experiment's optimizer, schedule and dtype on made-up data, for two steps.

`dawnjax train --experiment=NAME --tiny` is a minute's proof that the recipe compiles, steps and
evaluates on this machine. The network is the one that its config's `tiny()` gives; a file with a
task of its own defines `TINY = tiny(EXPERIMENT, data=...)`.
"""

import dataclasses
from typing import Any

from dawnjax.config.choices import AnyData, AnyModel, AnyTask
from dawnjax.config.experiment import Experiment
from dawnjax.errors import ConfigError
from dawnjax.runs.stages import Stages

GLOBAL_BATCH_SIZE = 16
NUM_STEPS = 2
_EXAMPLES = {
    "num_train_examples": NUM_STEPS * GLOBAL_BATCH_SIZE,
    "num_eval_examples": 20,  # no whole number of batches
}


def tiny_of(experiment: Experiment) -> Experiment:
    """Tiny variant; ConfigError for a task of a user's file, or a model without `tiny()`."""
    if not hasattr(experiment.model, "tiny"):
        raise ConfigError(
            f"{experiment.name} has no tiny variant: its module defines no TINY, and "
            f"model={experiment.model.TAG} has no tiny()"
        )
    model = experiment.model.tiny()
    task, data = _task_and_data(experiment, model)
    return tiny(experiment, data=data, model=model, task=task)


def tiny(
    experiment: Experiment,
    *,
    data: AnyData,
    model: AnyModel | None = None,
    task: AnyTask | None = None,
) -> Experiment:
    """Tiny variant of an experiment: two steps in one epoch, on 32 made-up training examples.

    `model` and `task` replace the experiment's, whose crops may be too large, say. Of several
    stages there are two, and the second has half the batch where stages change it.
    """
    stages = experiment.stages
    if stages.boundary_epochs:
        halves = (GLOBAL_BATCH_SIZE // 2,) if stages.global_batch_size else ()
        stages = Stages(boundary_epochs=(0.5,), global_batch_size=halves)
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
        # Two on each of four devices, of half the batch too.
        batch_norm_group_size=GLOBAL_BATCH_SIZE // 8 if experiment.batch_norm_group_size else 0,
        stages=stages,
        evaluation=dataclasses.replace(
            experiment.evaluation, every_epochs=1.0, first_epoch=0.0, global_batch_size=16
        ),
        mlperf_benchmark="",
        target_note="two steps: the quality means nothing",
        observations=(),
    )


def _task_and_data(experiment: Experiment, model: AnyModel) -> tuple[AnyTask, AnyData]:
    """Small settings of a task, and made-up data; ConfigError for a task of a user's file."""
    task, data = experiment.task, experiment.data
    replace = dataclasses.replace
    # A run loads nothing of the other tasks.
    match task.TAG:
        case "classification":
            return _small_images(task, data)
        case "translation":
            from dawnjax.input_pipeline.datasets.synthetic import SyntheticText

            return task, SyntheticText(**_EXAMPLES)
        case "recommendation":
            from dawnjax.input_pipeline.datasets.synthetic import SyntheticRatings

            return task, SyntheticRatings(num_users=16, num_items=40, ratings_per_user=3)
        case "language_modelling":
            from dawnjax.input_pipeline.datasets.synthetic import SyntheticTokens

            stages = replace(task.stages, window=(0,) if task.stages.window else ())
            window = 8 if task.window else 0
            task = replace(task, target_vocabulary="bytes", window=window, stages=stages)
            return task, SyntheticTokens()
        case "span_answering":
            from dawnjax.input_pipeline.datasets.synthetic import SyntheticQuestions

            width = model.word_width if getattr(data, "word_vectors", "") else 0
            return task, SyntheticQuestions(**_EXAMPLES, vector_width=width)
        case "object_detection" | "instance_segmentation":
            from dawnjax.input_pipeline.datasets.synthetic import SyntheticObjects

            if task.TAG == "object_detection":
                return task, SyntheticObjects(**_EXAMPLES)
            regions = replace(
                task.regions, scored=64, scored_evaluated=64, proposals=40, anchors=64, sampled=32
            )
            search = replace(task.search, most=20, most_a_class=20)
            task = replace(task, search=search, regions=regions)
            return task, SyntheticObjects(**_EXAMPLES, mask_side=14)
        case "self_play" | "professional_moves":
            return _small_games(task, data)
    raise ConfigError(
        f"{experiment.name} has no tiny variant: its module defines no TINY, and there are no "
        f"made-up data for task={task.TAG}"
    )


def _small_images(task: Any, data: Any) -> tuple[AnyTask, AnyData]:
    from dawnjax.input_pipeline.datasets.synthetic import Synthetic

    channels = getattr(data, "image_channels", 1 if data.TAG == "digits" else 3)
    side = 8 if channels == 1 else 16
    if task.augmentation.crop_pixels:
        side = 80  # AmoebaNet's auxiliary head needs 72
        stages = task.stages
        if stages.crop_pixels:
            area = stages.crop_min_area[-1:]
            stages = dataclasses.replace(stages, crop_pixels=(side,), crop_min_area=area)
        augmentation = dataclasses.replace(task.augmentation, crop_pixels=72)
        task = dataclasses.replace(task, augmentation=augmentation, stages=stages)
    shape = {"image_height": side, "image_width": side, "image_channels": channels}
    return task, Synthetic(**_EXAMPLES, **shape)


def _small_games(task: Any, data: Any) -> tuple[AnyTask, AnyData]:
    replace = dataclasses.replace
    search = replace(task.search, simulations=4, considered=4)
    task = replace(task, games=8, moves=4, window_generations=2, search=search)
    if task.gating_games:
        task = replace(task, gating_games=2)
    if task.TAG == "professional_moves":
        task = replace(task, predict_simulations=4)
        return task, type(data)(game="go_5x5", examples_per_generation=32, made_up_moves=5)
    games = type(data)(game="tic_tac_toe", examples_per_generation=32, num_eval_games=20)
    return task, games


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
