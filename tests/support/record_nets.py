"""A small record net in two forms, for tests of equal logits and gradients."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dawnjax.models.configs.record_net import RecordNet
from dawnjax.models.execution import Execution
from dawnjax.models.pure_model import pure_model


def logits_and_gradients(config: RecordNet, execution: Execution) -> Any:
    """Of the sum of squared logits, for four images with an odd side."""
    images = jnp.asarray(np.random.default_rng(0).normal(size=(4, 23, 16, 3)), jnp.float32)
    model = pure_model(
        lambda rngs: config.build(
            image_shape=(23, 16, 3), num_classes=10, execution=execution, rngs=rngs
        )
    )
    params, stats = model.init(jax.random.key(0))

    def loss(params):
        logits = model.apply(params, stats, images, train=True)[0]
        return jnp.square(logits).sum(), logits

    return jax.jit(jax.value_and_grad(loss, has_aux=True))(params)
