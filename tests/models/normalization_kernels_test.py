"""Kernels of batch normalization, interpreted: the same function and gradients as without them."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from record_nets import logits_and_gradients

from dawnjax.models.batch_norm import BatchNorm, has_kernels
from dawnjax.models.execution import Execution
from dawnjax.models.record_net import RecordNet

pytestmark = pytest.mark.compiles

PLAIN = Execution(platform="gpu", compute_dtype="float32", batch_norm_group_size=2)
KERNELS = dataclasses.replace(PLAIN, normalization="kernels")

# Every shape of the record net, with fewer images: after a convolution, and after pooling.
SHAPES = [
    ((31, 31, 64), True),
    ((15, 15, 64), False),
    ((15, 15, 256), True),
    ((7, 7, 256), False),
    ((7, 7, 256), True),
    ((3, 3, 256), False),
    ((6, 4, 48), True),
]

# Only the order of sums differs, of 18 values and more. A gradient in bfloat16 may round to the
# neighbour.
TOLERANCES = {"float32": 3e-5, "bfloat16": 2**-7}


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize(("shape", "halves"), SHAPES)
def test_kernels_are_the_same_function_with_the_same_gradients(shape, halves, dtype):
    check(shape, halves, "gelu", dtype, batch=2)


@pytest.mark.parametrize("activation", ["silu", "relu", None])
def test_so_are_those_of_other_activations_and_of_two_groups(activation):
    check((5, 6, 32), True, activation, "float32", batch=4)


def check(shape, halves, activation, dtype, batch):
    random = np.random.default_rng(0)
    # Few values, so that windows have several largest ones.
    inputs = (random.integers(-8, 8, (batch, *shape)) + random.normal(size=shape[-1])) / 4
    inputs = jnp.asarray(inputs, dtype)
    sides = tuple(side // 2 for side in shape[:2]) if halves else shape[:2]
    weights = jnp.asarray(random.normal(size=(batch, *sides, shape[-1])), jnp.float32)
    scale, bias = jnp.asarray(random.normal(size=(2, shape[-1])), jnp.float32)

    def results(execution):
        execution = dataclasses.replace(execution, compute_dtype=dtype)
        assert (execution.normalization == "kernels") == has_kernels(
            inputs.shape, activation, halves, execution
        )

        def loss(inputs, scale, bias):
            norm = BatchNorm(shape[-1], execution=execution)
            assert norm.scale is not None
            norm.scale.set_value(scale)
            norm.bias.set_value(bias)
            outputs = norm(inputs, train=True, activation=activation, halves=halves)
            return (outputs * weights).sum(), (outputs, norm.mean[...], norm.var[...])

        return jax.jit(jax.grad(loss, argnums=(0, 1, 2), has_aux=True))(inputs, scale, bias)

    tolerance = TOLERANCES[dtype]
    for ours, plain in zip(*map(jax.tree.leaves, map(results, (KERNELS, PLAIN))), strict=True):
        assert ours.shape == plain.shape and ours.dtype == plain.dtype
        ours, plain = (np.asarray(array, np.float32) for array in (ours, plain))
        np.testing.assert_allclose(ours, plain, tolerance, tolerance * np.abs(plain).max() / 4)


def test_a_network_learns_the_same_with_kernels():
    config = RecordNet(group_widths=(16, 32, 32))
    ours, plain = (logits_and_gradients(config, execution) for execution in (KERNELS, PLAIN))
    for got, want in zip(jax.tree.leaves(ours), jax.tree.leaves(plain), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4 * np.abs(want).max())


def test_what_has_no_kernels_is_left_to_xla_and_said_once(caplog):
    cases = [
        ((2, 8, 8, 24), KERNELS, "24 channels, only for multiples of 16"),
        ((2, 8, 8, 32), dataclasses.replace(KERNELS, batch_shards=2), "one device, not for 2"),
        ((2, 8, 8, 32), dataclasses.replace(KERNELS, platform="tpu"), "no kernels on a tpu"),
    ]
    for shape, execution, reason in cases:
        caplog.clear()
        assert not has_kernels(shape, "gelu", True, execution)
        assert not has_kernels(shape, "gelu", False, execution)
        said = caplog.text
        assert said.count("left to XLA") == 1 and reason in said
    # Where XLA makes as few passes, nothing is lacking.
    caplog.clear()
    assert not has_kernels((2, 8, 8, 32), "relu", False, KERNELS)
    assert not has_kernels((2, 8, 8, 32), "gelu", False, PLAIN)
    assert not caplog.text
