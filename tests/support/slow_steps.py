"""The experiment `synthetic_image`, whose backward pass takes longer on one process.

DAWNJAX_TEST_SLOW is that process, and the useless products of its backward pass: `1:30`.
"""

import dataclasses
import os
from typing import ClassVar

import jax
import jax.numpy as jnp

from dawnjax.cluster import launched
from dawnjax.experiments import synthetic_image
from dawnjax.tasks.classification import Classification

process, _, products = os.environ.get("DAWNJAX_TEST_SLOW", ":").partition(":")
PRODUCTS = int(products) if os.environ.get(launched.PROCESS_ID, "0") == process else 0


@jax.custom_vjp
def delayed(loss: jax.Array) -> jax.Array:
    return loss


def backward(_: None, cotangent: jax.Array) -> tuple[jax.Array]:
    # It hangs on the cotangent, or XLA would compute it once and for all.
    matrix = jnp.full((600, 600), 1e-3) * cotangent.sum()
    matrix = jax.lax.fori_loop(0, PRODUCTS, lambda _, product: jnp.tanh(product @ matrix), matrix)
    return (cotangent + 0 * matrix[0, 0],)


delayed.defvjp(lambda loss: (loss, None), backward)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Slowly(Classification):
    TAG: ClassVar[str] = "slowly"

    def loss(self, *given, **more):
        total, count = super().loss(*given, **more)
        return delayed(total), count


_BASE = synthetic_image.EXPERIMENT
_FIELDS = {field.name: getattr(_BASE.task, field.name) for field in dataclasses.fields(_BASE.task)}
EXPERIMENT = dataclasses.replace(_BASE, name="slow_steps", task=Slowly(**_FIELDS))
