"""Evaluation of a classifier: ranks with ties and no numbers, padding, and few classes."""

import dataclasses
import math
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from dataset_specs import SMALL_IMAGES

from dawnjax.tasks.classification import Classification
from dawnjax.tasks.task import Setting

TASK = Classification()


def evaluated(logits: list[list[float]], labels: list[int], mask: list[bool]) -> dict[str, Any]:
    """Metrics of a batch for which a module gives these logits."""
    array = jnp.array(logits)
    spec = dataclasses.replace(SMALL_IMAGES, num_classes=array.shape[1])
    nothing: Any = None
    setting = Setting(model=nothing, data=nothing, spec=spec, execution=nothing)
    images = jnp.zeros((len(labels), 8, 8, 1), jnp.uint8)
    batch = {"image": images, "label": jnp.array(labels), "mask": jnp.array(mask)}
    totals = TASK.add_batch(lambda images: array, batch, TASK.zero_totals(setting), setting)
    on_host = {name: np.asarray(total) for name, total in totals.items()}
    return TASK.metrics_of(on_host | {"examples": np.array(sum(mask))}, setting)


def test_metrics_by_hand():
    found = evaluated(
        [
            [2.0, 0, 0, 0, 0, 0],  # the highest
            [5.0, 4, 3, 2, 0, 1],  # the fifth
            [5.0, 4, 3, 2, 1, 0],  # the sixth
            [3.0, 3, 0, 0, 0, 0],  # one equal, which counts as higher
            [9.0, 0, 0, 0, 0, 0],  # padding
        ],
        labels=[0, 5, 5, 1, 0],
        mask=[True, True, True, True, False],
    )
    assert (found["top_1_accuracy"], found["top_5_accuracy"]) == (1 / 4, 3 / 4)
    steps = math.log(sum(math.exp(logit) for logit in range(6)))
    nats = [math.log(math.exp(2) + 5) - 2, steps - 1, steps, math.log(2 * math.exp(3) + 4) - 3]
    assert found["loss"] == pytest.approx(sum(nats) / 4, rel=1e-6)


def test_a_score_that_is_no_number_hits_nothing():
    found = evaluated([[math.nan, 0, 0, 0, 0, 0]], labels=[0], mask=[True])
    assert (found["top_1_accuracy"], found["top_5_accuracy"]) == (0, 0)
    found = evaluated([[1.0, math.nan, 0, 0, 0, 0]], labels=[0], mask=[True])
    assert (found["top_1_accuracy"], found["top_5_accuracy"]) == (0, 1)


def test_of_five_classes_each_is_among_the_first_five_and_no_such_figure_is_given():
    assert evaluated([[1.0, 0, 0, 0, 0]], labels=[0], mask=[True]).keys() == {
        "top_1_accuracy",
        "loss",
    }
