"""Tests of the GPU's 1x1 convolutions, interpreted on a CPU, against the plain layers."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from dawnjax.models.execution import ComputeDtype, Execution, Pointwise
from dawnjax.models.resnet import ResNet
from dawnjax.pure_model import pure_model

BATCH, GROUP, SIDE = 6, 3, 9
"""243 and 75 rows a group: a whole tile and a part of one, and less than one."""

CONFIG = ResNet(stage_sizes=(2, 1), stage_widths=(64, 128), block="bottleneck", last_scale=0.5)


def model(pointwise: Pointwise, dtype: ComputeDtype, batch_shards: int = 1):
    execution = Execution(
        platform="gpu",
        compute_dtype=dtype,
        batch_norm_group_size=GROUP,
        batch_shards=batch_shards,
        pointwise=pointwise,
    )
    return pure_model(
        lambda rngs: CONFIG.build(
            image_shape=(SIDE, SIDE, 3), num_classes=10, execution=execution, rngs=rngs
        )
    )


@functools.cache
def start():
    """Gives the same parameters and statistics for all."""
    return jax.jit(model("convolution", "float32").init)(jax.random.key(0))


@functools.cache
def step(pointwise: Pointwise, dtype: ComputeDtype):
    """Gives loss, gradients, running statistics and the traced program of one step."""
    pure = model(pointwise, dtype)
    params, stats = start()
    random = np.random.default_rng(0)
    # Away from 1 and 0, so that a wrong factor or offset shows; and an origin that is not 0.
    params = jax.tree.map(
        lambda a: a + 0.3 * random.normal(size=a.shape).astype(a.dtype) if a.ndim == 1 else a,
        params,
    )
    stats = jax.tree.map(lambda a: a + np.float32(0.05), stats)
    images = jnp.asarray(random.normal(size=(BATCH, SIDE, SIDE, 3)), jnp.float32)
    labels = jnp.arange(BATCH) % 10

    def loss(params):
        module = pure.bind(params, stats)
        logits = module(images, train=True)
        value = -jax.nn.log_softmax(logits)[jnp.arange(BATCH), labels].mean()
        return value, nnx.state(module, nnx.BatchStat).to_pure_dict()

    traced = jax.jit(jax.value_and_grad(loss, has_aux=True)).trace(params)
    (value, new_stats), gradients = traced.lower().compile()(params)
    return value, gradients, new_stats, str(traced.jaxpr)


def test_kernels_compute_what_the_layers_do():
    plain, kernels = step("convolution", "float32"), step("kernel", "float32")
    # Two a block, one of each projection, and one of each gradient of what was normalized; each for
    # a GPU, and interpreted.
    assert kernels[3].count("pallas_call") == 2 * (3 * 2 + 2 + 3)
    assert "pallas_call" not in plain[3]
    for one, other in zip(jax.tree.leaves(plain[:3]), jax.tree.leaves(kernels[:3]), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(other, one, rtol=0, atol=2e-5 * abs(one).max())


def test_in_bfloat16_kernels_are_as_exact_as_the_layers():
    exact, plain, kernels = (
        [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(made[:3])]
        for made in (
            step("convolution", "float32"),
            step("convolution", "bfloat16"),
            step("kernel", "bfloat16"),
        )
    )
    for true, one, other in zip(exact, plain, kernels, strict=True):
        error, wanted = (np.linalg.norm(values - true) for values in (other, one))
        size = np.linalg.norm(true)
        assert error < 1.5 * wanted + 1e-3 * size, (error / size, wanted / size)
        assert error > 0


def test_several_devices_are_refused():
    with pytest.raises(ValueError, match="for one device"):
        model("kernel", "bfloat16", batch_shards=2).init(jax.random.key(0))
