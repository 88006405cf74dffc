"""Batch normalization by hand and in groups, dropout and its masks, the cross entropy of tokens."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from dawnjax.models.batch_norm import BatchNorm
from dawnjax.models.cross_entropy import token_losses
from dawnjax.models.dropout import Dropout
from dawnjax.models.execution import ComputeDtype, Execution
from dawnjax.tasks.classification import smoothed_cross_entropy

pytestmark = pytest.mark.compiles


def execution(group_size: int, dtype: ComputeDtype = "float32") -> Execution:
    return Execution(platform="cpu", compute_dtype=dtype, batch_norm_group_size=group_size)


def test_two_groups_by_hand():
    # One channel; the groups are (1, 3) and (2, 8): means 2 and 5, biased variances 1 and 9.
    norm: Any = BatchNorm(1, momentum=0.75, epsilon=0.0, execution=execution(2))
    norm.scale.set_value(jnp.array([10.0]))
    norm.bias.set_value(jnp.array([0.5]))
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


def test_bfloat16_inputs_have_float32_statistics():
    norm = BatchNorm(1, momentum=0.0, execution=execution(512, dtype="bfloat16"))
    # Half 0, half 2: mean and variance 1 exactly. Sums in bfloat16 would stop at 256.
    inputs = jnp.tile(jnp.array([0.0, 2.0], jnp.bfloat16), 256)[:, None]
    outputs = norm(inputs, train=True)
    assert outputs.dtype == jnp.bfloat16
    assert norm.mean[...].dtype == norm.var[...].dtype == jnp.float32
    np.testing.assert_allclose(norm.mean[...], [[1.0]])
    np.testing.assert_allclose(norm.var[...], [[1.0]])


KEY = jax.random.key(0)


def test_it_keeps_the_mean_and_follows_its_key():
    values = jnp.ones((64, 512))
    dropped = Dropout(KEY)(values, 0.1)
    kept = dropped != 0
    # 32,768 draws: a standard deviation of 0.0017.
    assert float(kept.mean()) == pytest.approx(0.9, abs=0.008)
    np.testing.assert_allclose(dropped[kept], 1 / 0.9, rtol=1e-4)
    np.testing.assert_array_equal(dropped, Dropout(KEY)(values, 0.1))
    dropout = Dropout(KEY)
    first, second = dropout(values, 0.5), dropout(values, 0.5)
    # Masks of two calls are independent: they agree in half of the places.
    assert float((first == second).mean()) == pytest.approx(0.5, abs=0.015)
    assert Dropout(None)(values, 0.5) is values


def test_devices_make_their_own_parts_of_the_same_mask():
    mesh = jax.make_mesh((4,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    rows = NamedSharding(mesh, PartitionSpec("data"))
    drop = jax.jit(lambda values: Dropout(KEY)(values, 0.3), in_shardings=rows, out_shardings=rows)
    values = jnp.ones((8, 16, 64))
    compiled = drop.lower(values).compile()
    np.testing.assert_array_equal(compiled(jax.device_put(values, rows)), Dropout(KEY)(values, 0.3))
    text = compiled.as_text() or ""
    assert "all-gather" not in text and "all-reduce" not in text
    assert "u32[8,16,64]" not in text  # each draws its own


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("platform", ["cpu", "gpu", "images"])
def test_an_offset_that_all_logits_share_changes_no_loss_and_no_gradient(platform, smoothing):
    eighths = np.random.default_rng(2).integers(-40, 40, (3, 50)) / 8
    targets, weights = jnp.array([3, 0, 49]), np.array([1.0, 3.0, 0.5])

    def losses(logits) -> jax.Array:
        if platform == "images":
            return smoothed_cross_entropy(logits, targets, smoothing)
        return jnp.asarray(token_losses(logits, targets, smoothing, platform))

    def measured(offset):
        logits = jnp.asarray(eighths + offset, jnp.float32)
        return losses(logits), jax.grad(lambda logits: (losses(logits) * weights).sum())(logits)

    shifted = eighths - eighths.max(1, keepdims=True)
    log_softmax = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    wanted = np.full((3, 50), smoothing / 50)
    wanted[np.arange(3), targets] += 1 - smoothing
    for offset in (0.0, 2.0**18, -(2.0**18)):  # sums are exact: float32 has 24 bits
        given = measured(offset)
        np.testing.assert_allclose(given[0], -(wanted * log_softmax).sum(1), rtol=1e-5)
        np.testing.assert_allclose(
            given[1], (np.exp(log_softmax) - wanted) * weights[:, None], atol=3e-6
        )
    # All logits are equal in float32, so that nothing is known of the target.
    np.testing.assert_allclose(measured(1e12)[0], np.log(50), rtol=1e-5)
