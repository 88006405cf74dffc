"""Batch normalization: by hand, in groups, and without communication inside a layer."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from dawnjax.models.batch_norm import BatchNorm
from dawnjax.models.convolution import Conv
from dawnjax.models.execution import ComputeDtype, Execution

pytestmark = pytest.mark.compiles


def execution(group_size: int, dtype: ComputeDtype = "float32", batch_shards: int = 1) -> Execution:
    return Execution(
        platform="cpu",
        compute_dtype=dtype,
        batch_norm_group_size=group_size,
        batch_shards=batch_shards,
    )


def set_params(norm: BatchNorm, scale: jax.Array, bias: jax.Array) -> None:
    if norm.scale is not None:
        norm.scale.set_value(scale)
    assert norm.bias is not None
    norm.bias.set_value(bias)


def test_two_groups_by_hand():
    # One channel; the groups are (1, 3) and (2, 8): means 2 and 5, biased variances 1 and 9.
    norm = BatchNorm(1, momentum=0.75, epsilon=0.0, execution=execution(2))
    set_params(norm, jnp.array([10.0]), jnp.array([0.5]))
    outputs = norm(jnp.array([[1.0], [3.0], [2.0], [8.0]]), train=True)
    np.testing.assert_allclose(outputs, [[-9.5], [10.5], [-9.5], [10.5]], rtol=1e-6)
    # Running statistics start at 0 and 1 and keep 0.75 of themselves, one row a group.
    np.testing.assert_allclose(norm.mean[...], [[0.5], [1.25]], rtol=1e-6)
    np.testing.assert_allclose(norm.var[...], [[1.0], [3.0]], rtol=1e-6)


def test_evaluation_uses_and_keeps_the_running_statistics():
    norm = BatchNorm(2, epsilon=0.0, execution=execution(4))
    norm.mean.set_value(jnp.array([1.0, -2.0]))
    norm.var.set_value(jnp.array([4.0, 0.25]))
    # 3 examples do not divide into groups of 4, which is no matter here.
    outputs = norm(jnp.array([[3.0, -2.0], [1.0, 0.0], [-1.0, -3.0]]), train=False)
    np.testing.assert_allclose(outputs, [[1.0, 0.0], [0.0, 4.0], [-1.0, -2.0]], rtol=1e-6)
    np.testing.assert_array_equal(norm.mean[...], [1.0, -2.0])
    with pytest.raises(ValueError, match="3 examples does not divide .* groups of 4"):
        norm(jnp.zeros((3, 2)), train=True)


@pytest.mark.parametrize("shape", [(1, 4096, 1), (1, 16, 16, 16, 1)])
def test_a_large_mean_does_not_cancel_the_variance(shape):
    # Mean 1000, standard deviation 0.1: E[x^2] - E[x]^2 in float32 would be off by +-0.06, more
    # than the variance of 0.01 itself. With the running mean as origin nothing cancels.
    inputs = 1000 + 0.1 * np.random.default_rng(0).standard_normal(shape)
    inputs = inputs.astype(np.float32)
    wanted = inputs.astype(np.float64).var()
    norm = BatchNorm(1, momentum=0.0, execution=execution(1))
    # A first step without a running mean is inexact, but never negative.
    norm(jnp.asarray(inputs), train=True)
    assert norm.var[...][0, 0] >= 0
    norm.mean.set_value(jnp.array([999.0]))
    norm(jnp.asarray(inputs), train=True)
    np.testing.assert_allclose(norm.var[...][0, 0], wanted, rtol=1e-3)
    np.testing.assert_allclose(norm.mean[...][0, 0], inputs.astype(np.float64).mean(), rtol=1e-6)


def test_groups_of_no_examples_are_refused():
    with pytest.raises(ValueError, match="batch_norm_group_size=0 must be 1 or more"):
        BatchNorm(4, execution=execution(0))


def test_bfloat16_inputs_have_float32_statistics():
    norm = BatchNorm(1, momentum=0.0, execution=execution(512, dtype="bfloat16"))
    # Half 0, half 2: mean and variance 1 exactly. Sums in bfloat16 would stop at 256.
    inputs = jnp.tile(jnp.array([0.0, 2.0], jnp.bfloat16), 256)[:, None]
    outputs = norm(inputs, train=True)
    assert outputs.dtype == jnp.bfloat16
    assert norm.mean[...].dtype == norm.var[...].dtype == jnp.float32
    np.testing.assert_allclose(norm.mean[...], [[1.0]])
    np.testing.assert_allclose(norm.var[...], [[1.0]])


def block_loss(params, images, batch_shards):
    """A convolution, BatchNorm in groups of 2, ReLU and a second convolution."""
    settings = execution(2, batch_shards=batch_shards)
    first = Conv(16, 16, (3, 3), execution=settings, rngs=nnx.Rngs(0))
    norm = BatchNorm(16, execution=settings)
    second = Conv(16, 16, (3, 3), execution=settings, rngs=nnx.Rngs(1))
    first.kernel.set_value(params["first"])
    second.kernel.set_value(params["second"])
    set_params(norm, params["scale"], params["bias"])
    hidden = jax.nn.relu(norm(first(images), train=True))
    return jnp.square(second(hidden)).mean(), (norm.mean[...], norm.var[...])


def block_inputs():
    rng = np.random.default_rng(0)
    params = {
        "first": rng.standard_normal((3, 3, 16, 16)) / 12,
        "second": rng.standard_normal((3, 3, 16, 16)) / 12,
        "scale": rng.standard_normal(16),
        "bias": rng.standard_normal(16),
    }
    params = {name: jnp.asarray(value, jnp.float32) for name, value in params.items()}
    return params, jnp.asarray(rng.standard_normal((8, 8, 8, 16)), jnp.float32)


def on_devices(count):
    mesh = Mesh(np.array(jax.devices()[:count]), ("data",))
    whole = NamedSharding(mesh, PartitionSpec())
    rows = NamedSharding(mesh, PartitionSpec("data"))
    gradient = jax.value_and_grad(lambda p, x: block_loss(p, x, count), has_aux=True)
    params, images = block_inputs()
    params, images = jax.device_put(params, whole), jax.device_put(images, rows)
    program = jax.jit(gradient, out_shardings=(((whole, (rows, rows))), whole))
    return program.lower(params, images).compile(), params, images


def test_groups_do_not_depend_on_the_number_of_devices():
    alone, params, images = on_devices(1)
    spread, spread_params, spread_images = on_devices(4)
    (loss, stats), gradients = alone(params, images)
    (spread_loss, spread_stats), spread_gradients = spread(spread_params, spread_images)
    assert stats[0].shape == (4, 16)
    np.testing.assert_allclose(spread_loss, loss, rtol=1e-6)
    for got, want in zip(spread_stats, stats, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    for name in gradients:
        scale = np.abs(gradients[name]).max()
        np.testing.assert_allclose(spread_gradients[name], gradients[name], atol=1e-5 * scale)


def test_devices_that_hold_whole_groups_reduce_nothing_but_gradients_and_loss():
    program, params, _ = on_devices(4)
    text = program.as_text() or ""
    for collective in ("all-gather", "all-to-all", "collective-permute", "reduce-scatter"):
        assert not re.search(rf"= \S+ {collective}", text), collective
    reduced = 0
    for shapes in re.findall(r"= (\(?[^=]*?) all-reduce(?:-start)?\(", text):
        for sizes in re.findall(r"\w+\[([\d,]*)\]", shapes):
            reduced += int(np.prod([int(size) for size in sizes.split(",") if size]))
    assert reduced == sum(value.size for value in params.values()) + 1
