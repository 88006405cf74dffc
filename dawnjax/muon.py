"""Muon: momentum whose updates are made orthogonal, and SGD for all that is not a matrix.

This is the optimizer of the CIFAR-10 speed record, with its own ways: kernels are scaled back to a
fixed norm before each update, and the whitening layer's bias has a schedule of its own.

Source: Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural networks"
(https://kellerjordan.github.io/posts/muon), and the record itself, `airbench94_muon.py` in
https://github.com/KellerJordan/cifar10-airbench.
"""

import math
from collections import defaultdict

import jax
import jax.numpy as jnp
import optax
from jax import lax

from dawnjax.experiment import Muon

NEWTON_SCHULZ_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the quintic a x + b x^3 + c x^5: steep at 0, and once above 0.68 a value stays there, near 1.

Source: Jordan et al. 2024, section "Tuning the coefficients".
"""


def muon(
    config: Muon,
    relative_schedule: optax.Schedule,
    steps_per_epoch: float,
    global_batch_size: int,
) -> optax.GradientTransformationExtraArgs:
    """Gives the transformation from gradients of the mean loss to parameter updates.

    Kernels are orthogonalized. A classifier's kernel and one-dimensional parameters get SGD with
    Nesterov momentum, a `whitening` layer's bias the same with a rate that falls linearly to 0,
    and a `whitening` layer's kernel nothing.

    Args:
      config: Rates and decays.
      relative_schedule: The rate as a fraction of its peak, from the count of steps already done.
      steps_per_epoch: Steps in an epoch, for the whitening bias's schedule.
      global_batch_size: Examples in a step; SGD's rates are for the sum of their losses.
    """
    whitening_steps = math.ceil(round(config.whitening_bias_epochs * steps_per_epoch, 6))

    def sgd(peak: float, relative: optax.Schedule) -> optax.GradientTransformation:
        if peak == 0:
            return optax.set_to_zero()
        return optax.chain(
            optax.scale(global_batch_size),
            optax.add_decayed_weights(config.sgd_weight_decay / peak),
            optax.sgd(lambda count: peak * relative(count), config.sgd_momentum, nesterov=True),
        )

    return optax.partition(
        {
            "kernel": optax.chain(
                optax.trace(config.momentum, nesterov=True),
                orthogonalize(config.newton_schulz_steps),
                optax.scale_by_learning_rate(
                    lambda count: config.base_learning_rate * relative_schedule(count)
                ),
                renormalize_kernels(),
            ),
            "classifier": sgd(config.head_learning_rate, relative_schedule),
            "one_dimensional": sgd(config.bias_learning_rate, relative_schedule),
            "whitening_bias": sgd(
                config.bias_learning_rate if whitening_steps else 0.0,
                optax.linear_schedule(1.0, 0.0, max(1, whitening_steps)),
            ),
            "fixed": optax.set_to_zero(),
        },
        parameter_kinds,
    )


def parameter_kinds(params: optax.Params) -> optax.Params:
    """Gives for each parameter the name of the rule that `muon` updates it by."""

    def kind(path: tuple, leaf: jax.Array) -> str:
        names = [str(getattr(entry, "key", entry)) for entry in path]
        if "whitening" in names:
            return "fixed" if names[-1] == "kernel" else "whitening_bias"
        if leaf.ndim < 2:
            return "one_dimensional"
        return "classifier" if "classifier" in names else "kernel"

    return jax.tree_util.tree_map_with_path(kind, params)


def orthogonalize(num_steps: int) -> optax.GradientTransformation:
    """Replaces each update by a near-orthogonal matrix with the same singular vectors.

    An array is a matrix of its last axis (outputs) by all others. Arrays of one matrix shape go
    through one chain of batched products.

    Args:
      num_steps: Iterations of `newton_schulz`.
    """

    def update(updates: optax.Updates) -> optax.Updates:
        leaves, structure = jax.tree.flatten(updates)
        matrices = [leaf.reshape(-1, leaf.shape[-1]) for leaf in leaves]
        places = defaultdict(list)
        for place, matrix in enumerate(matrices):
            places[matrix.shape].append(place)
        for same_shape in places.values():
            stack = jnp.stack([matrices[place] for place in same_shape])
            for place, matrix in zip(same_shape, newton_schulz(stack, num_steps), strict=True):
                leaves[place] = matrix.reshape(leaves[place].shape)
        return jax.tree.unflatten(structure, leaves)

    return optax.stateless(lambda updates, _: update(updates))


def newton_schulz(matrices: jax.Array, num_steps: int) -> jax.Array:
    """Brings all singular values of matrices near 1 and leaves the singular vectors.

    Divides by the Frobenius norm, so that no singular value exceeds 1, and maps each singular value
    by the quintic `num_steps` times. Accelerators compute in bfloat16, which is enough for an
    update's direction, CPUs in float32.

    Args:
      matrices: float32 [..., rows, columns].
      num_steps: How often the quintic is applied. With 3, singular values above a fiftieth of the
        norm end between 0.68 and 1.21; with 5, those above a two-hundredth.

    Returns:
      float32, same shape; zeros for zeros.
    """
    a, b, c = NEWTON_SCHULZ_COEFFICIENTS

    def iterate(x: jax.Array) -> jax.Array:
        for _ in range(num_steps):
            # The Gram matrix of the shorter side: the products are smaller and the result is equal.
            if x.shape[-2] < x.shape[-1]:
                gram = x @ x.mT
                x = a * x + (b * gram + c * gram @ gram) @ x
            else:
                gram = x.mT @ x
                x = a * x + x @ (b * gram + c * gram @ gram)
        return x

    norms = jnp.linalg.norm(matrices, axis=(-2, -1), keepdims=True)
    return lax.platform_dependent(
        matrices / (norms + 1e-7),
        cpu=iterate,
        default=lambda x: iterate(x.astype(jnp.bfloat16)).astype(jnp.float32),
    )


def renormalize_kernels() -> optax.GradientTransformation:
    """Adds to each update what scales the parameter to norm sqrt(outputs): 1 for a mean filter.

    What is under a BatchNorm does not depend on its kernel's scale; fixing the scale fixes what a
    step of a given size changes.
    """

    def add(update: jax.Array, param: jax.Array) -> jax.Array:
        norm = jnp.linalg.norm(param.reshape(-1))
        return update + param * (math.sqrt(param.shape[-1]) / norm - 1)

    return optax.stateless(lambda updates, params: jax.tree.map(add, updates, params))
