"""Networks as most tests of them ask: in float32 on a CPU, and how many numbers they have."""

import dataclasses
import functools
import math
from typing import Any

import jax

from dawnjax.models.execution import Execution
from dawnjax.models.pure_model import pure_model

PLAIN = Execution(platform="cpu", compute_dtype="float32", batch_norm_group_size=0)


def count(tree: Any) -> int:
    """Numbers in all arrays, or shapes of arrays, of a tree."""
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(tree))


@functools.cache
def detector(
    model: Any, shape: tuple[int, int, int], num_classes: int = 80
) -> tuple[Any, Any, Any]:
    """A model of images in its pure form, with the shapes of its parameters and statistics."""
    execution = dataclasses.replace(PLAIN, batch_norm_group_size=2)
    pure = pure_model(
        lambda rngs: model.build(
            image_shape=shape, num_classes=num_classes, execution=execution, rngs=rngs
        )
    )
    return pure, *jax.eval_shape(pure.init, jax.random.key(0))
