"""Muon: momentum whose updates are made orthogonal, and SGD for all that is not a matrix.

Source: Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural networks"
(https://kellerjordan.github.io/posts/muon), and the CIFAR-10 speed record, `airbench94_muon.py` in
https://github.com/KellerJordan/cifar10-airbench.
"""

import math
from collections import defaultdict
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jax.sharding import Mesh

from dawnjax.machine.mesh import batch_sharding, batch_shards
from dawnjax.optim.update_rules import Muon

Coefficients = tuple[float, float, float]


def muon(
    config: Muon, relative_schedule: optax.Schedule, steps_per_epoch: float, global_batch_size: int
) -> optax.GradientTransformationExtraArgs:
    """Transformation from gradients of the mean loss to parameter updates.

    Kernels are orthogonalized, and `whitening` kernels fixed. SGD with Nesterov momentum updates
    the rest, a `whitening` bias with a rate of its own that falls linearly to 0.
    """
    whitening_steps = math.ceil(round(config.whitening_bias_epochs * steps_per_epoch, 6))

    def sgd(peak: float, relative: optax.Schedule) -> optax.GradientTransformation:
        if peak == 0:
            return optax.set_to_zero()
        return optax.chain(
            # The record's rates are for the sum of the examples' losses.
            optax.scale(global_batch_size),
            optax.add_decayed_weights(config.sgd_weight_decay / peak),
            optax.sgd(lambda count: peak * relative(count), config.sgd_momentum, nesterov=True),
        )

    return optax.partition(
        {
            "kernel": optax.chain(
                optax.trace(config.momentum, nesterov=True),
                orthogonalize((config.newton_schulz_coefficients,) * config.newton_schulz_steps),
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
    """Name of the rule that `muon` updates each parameter by."""

    def kind(path: tuple, leaf: jax.Array) -> str:
        names = [str(getattr(entry, "key", entry)) for entry in path]
        if "whitening" in names:
            return "fixed" if names[-1] == "kernel" else "whitening_bias"
        if leaf.ndim < 2:
            return "one_dimensional"
        return "classifier" if "classifier" in names else "kernel"

    return jax.tree_util.tree_map_with_path(kind, params)


def orthogonalize(
    polynomials: Sequence[Coefficients], mesh: Mesh | None = None
) -> optax.GradientTransformation:
    """Replace each update by a near-orthogonal matrix with the same singular vectors.

    An array is a matrix of its last axis (outputs) by all others. The devices of `mesh` share the
    matrices; with None each device computes all of them.
    """

    def update(updates: optax.Updates) -> optax.Updates:
        leaves, structure = jax.tree.flatten(updates)
        matrices = [leaf.reshape(-1, leaf.shape[-1]) for leaf in leaves]
        results = orthogonalized(matrices, polynomials, mesh)
        return jax.tree.unflatten(
            structure,
            [result.reshape(leaf.shape) for result, leaf in zip(results, leaves, strict=True)],
        )

    return optax.stateless(lambda updates, _: update(updates))


def orthogonalized(
    matrices: list[jax.Array], polynomials: Sequence[Coefficients], mesh: Mesh | None = None
) -> list[jax.Array]:
    """Results of `newton_schulz` on float32 [rows, columns], in one batch for each shape."""
    # Tall, as most kernels are: the transpose of the result is the result of the transpose.
    is_wide = [matrix.shape[0] < matrix.shape[1] for matrix in matrices]
    tall = [m.T if wide else m for m, wide in zip(matrices, is_wide, strict=True)]
    places = defaultdict(list)
    for place, matrix in enumerate(tall):
        places[matrix.shape].append(place)
    results: list[jax.Array] = list(matrices)
    for same_shape in places.values():
        stack = jnp.stack([tall[place] for place in same_shape])
        if mesh is not None:
            # Each device takes as many matrices as the others.
            filling = -len(same_shape) % batch_shards(mesh)
            stack = jnp.pad(stack, ((0, filling), (0, 0), (0, 0)))
            stack = lax.with_sharding_constraint(stack, batch_sharding(mesh, 0))
        for place, result in zip(same_shape, newton_schulz(stack, polynomials), strict=False):
            results[place] = result.T if is_wide[place] else result
    return results


def newton_schulz(matrices: jax.Array, polynomials: Sequence[Coefficients]) -> jax.Array:
    """Matrices with all singular values near 1 and the same singular vectors; zeros for zeros.

    Args:
      matrices: float32 [..., rows, columns].
      polynomials: (a, b, c) of each quintic a x + b x^3 + c x^5. With `Muon`'s default 3 times,
        singular values above a fiftieth of the norm end between 0.68 and 1.21; with it 5 times,
        those above a two-hundredth.
    """

    def iterate(x: jax.Array) -> jax.Array:
        for a, b, c in polynomials:
            # The Gram matrix of the shorter side: the products are smaller and the result is equal.
            if x.shape[-2] < x.shape[-1]:
                gram = x @ x.mT
                x = a * x + (b * gram + c * gram @ gram) @ x
            else:
                gram = x.mT @ x
                x = a * x + x @ (b * gram + c * gram @ gram)
        return x

    # No singular value exceeds the Frobenius norm.
    norms = jnp.linalg.norm(matrices, axis=(-2, -1), keepdims=True)
    return lax.platform_dependent(
        matrices / (norms + 1e-7),
        cpu=iterate,
        # bfloat16 is enough for an update's direction.
        default=lambda x: iterate(x.astype(jnp.bfloat16)).astype(jnp.float32),
    )


def renormalize_kernels() -> optax.GradientTransformation:
    """Change each update so that the parameter gets norm sqrt(outputs): 1 for a mean filter."""

    def add(update: jax.Array, param: jax.Array) -> jax.Array:
        norm = jnp.linalg.norm(param.reshape(-1))
        return update + param * (math.sqrt(param.shape[-1]) / norm - 1)

    # Under a BatchNorm a kernel's scale has no effect; fixing it fixes what a step of a given size
    # changes.
    return optax.stateless(lambda updates, params: jax.tree.map(add, updates, params))
