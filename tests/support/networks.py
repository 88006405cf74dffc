"""Networks and recipes as most tests ask for them: in float32 on a CPU, and how trees compare."""

import dataclasses
import functools
import math
from typing import Any

import jax
import numpy as np

from dawnjax.machine.mesh import make_mesh
from dawnjax.machine.mesh_shape import MeshShape
from dawnjax.models.execution import Execution
from dawnjax.models.pure_model import pure_model
from dawnjax.train_step import Recipe, execution_of, make_recipe

PLAIN = Execution(platform="cpu", compute_dtype="float32", batch_norm_group_size=0)


def count(tree: Any) -> int:
    """Numbers in all arrays, or shapes of arrays, of a tree."""
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(tree))


def assert_close(found: Any, wanted: Any, **tolerances: float) -> None:
    """Compare two trees, leaf by leaf."""
    compare: Any = functools.partial(np.testing.assert_allclose, **tolerances)
    jax.tree.map(compare, found, wanted)


def recipe_of(experiment: Any, spec: Any = None, devices: int = 1, **execution: Any) -> Recipe:
    """Recipe on some devices, by default for the published data; with fields of its execution."""
    mesh = make_mesh(MeshShape(), jax.devices()[:devices])
    spec = spec or experiment.data.published_spec()
    changed = dataclasses.replace(execution_of(experiment, mesh), **execution)
    return make_recipe(experiment, spec, mesh, execution=changed)


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
