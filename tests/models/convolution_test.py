"""Convolution: every implementation against a plain sum in float64."""

import dataclasses
import functools
import itertools
import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from dawnjax.models import convolution, winograd
from dawnjax.models.convolution import (
    Conv,
    Linear,
    choose_implementation,
    convolve,
    convolve_few,
)
from dawnjax.models.execution import ComputeDtype, Execution

pytestmark = pytest.mark.compiles

CPU = Execution(platform="cpu", compute_dtype="float32", batch_norm_group_size=2)


def plain_convolution(images, kernel, strides, pads):
    """The definition, one position and one tap at a time, in float64."""
    images = np.pad(np.asarray(images, np.float64), ((0, 0), *pads, (0, 0)))
    kernel = np.asarray(kernel, np.float64)
    height = (images.shape[1] - kernel.shape[0]) // strides[0] + 1
    width = (images.shape[2] - kernel.shape[1]) // strides[1] + 1
    result = np.zeros((len(images), height, width, kernel.shape[3]))
    for row, column in itertools.product(range(height), range(width)):
        top, left = row * strides[0], column * strides[1]
        for i, j in itertools.product(range(kernel.shape[0]), range(kernel.shape[1])):
            result[:, row, column] += images[:, top + i, left + j] @ kernel[i, j]
    return result


def plain_gradients(images, kernel, strides, pads, cotangent):
    """Gradients of sum(result * cotangent), from the definition: the result is linear in both."""
    images, kernel = np.asarray(images, np.float64), np.asarray(kernel, np.float64)
    padded = np.pad(images, ((0, 0), *pads, (0, 0)))
    padded_gradient, kernel_gradient = np.zeros_like(padded), np.zeros_like(kernel)
    for row, column in itertools.product(range(cotangent.shape[1]), range(cotangent.shape[2])):
        top, left = row * strides[0], column * strides[1]
        for i, j in itertools.product(range(kernel.shape[0]), range(kernel.shape[1])):
            here = cotangent[:, row, column]
            kernel_gradient[i, j] += padded[:, top + i, left + j].T @ here
            padded_gradient[:, top + i, left + j] += here @ kernel[i, j].T
    (top, bottom), (left, right) = pads
    height, width = padded.shape[1:3]
    return padded_gradient[:, top : height - bottom, left : width - right], kernel_gradient


def drawn(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), jnp.float32)


# Chosen by hand: even, odd and tiny sizes, one and several tiles, uneven padding, both strides.
CASES = [
    ((8, 8), (3, 3), (1, 1), ((1, 1), (1, 1))),
    ((4, 4), (3, 3), (1, 1), ((1, 1), (1, 1))),
    ((7, 5), (3, 3), (1, 1), ((1, 1), (1, 1))),
    ((3, 8), (3, 3), (1, 1), ((0, 0), (0, 2))),
    ((8, 8), (3, 3), (2, 2), ((1, 1), (1, 1))),
    ((7, 8), (3, 3), (2, 1), ((0, 1), (1, 1))),
    ((5, 6), (1, 1), (2, 2), ((0, 0), (0, 0))),
    ((6, 7), (2, 4), (1, 3), ((1, 0), (2, 1))),
    ((9, 8), (3, 3), (1, 1), ((1, 1), (1, 1))),
    ((10, 9), (3, 3), (2, 2), ((0, 1), (1, 1))),
    ((9, 11), (2, 4), (3, 2), ((1, 0), (2, 1))),
]


@pytest.mark.parametrize("platform", ["cpu", "gpu"])
@pytest.mark.parametrize(("size", "kernel_size", "strides", "pads"), CASES)
def test_values_and_gradients_are_those_of_the_definition(
    size, kernel_size, strides, pads, platform
):
    images, kernel = drawn(4, *size, 16), drawn(*kernel_size, 16, 17, seed=1)
    if platform == "gpu":
        expected = "convolution"
    elif kernel_size == (3, 3) and strides == (1, 1):
        expected = "winograd"
    else:
        expected = "matmul" if size[0] * size[1] <= 64 else "one_layout"
    assert choose_implementation(images.shape, kernel.shape, strides, platform) == expected

    execution = dataclasses.replace(CPU, platform=platform, batch_shards=2)

    def function(images, kernel):
        return convolve(images, kernel, strides=strides, padding=pads, execution=execution)

    @jax.jit
    def with_gradients(images, kernel, cotangent):
        result, pull_back = jax.vjp(function, images, kernel)
        return result, *pull_back(cotangent)

    wanted = plain_convolution(images, kernel, strides, pads)
    assert jax.eval_shape(function, images, kernel).shape == wanted.shape
    cotangent = drawn(*wanted.shape, seed=2)
    # Sums of up to 200 products of unit variance in float32: 1e-6 of their size, and Winograd's
    # transforms another few 1e-6.
    for got, want in zip(
        with_gradients(images, kernel, cotangent),
        (wanted, *plain_gradients(images, kernel, strides, pads, np.asarray(cotangent))),
        strict=True,
    ):
        np.testing.assert_allclose(got, want, rtol=0, atol=3e-5 * want.std())


def test_named_padding_is_that_of_xla():
    images, kernel = drawn(2, 7, 8, 3), drawn(3, 3, 3, 5, seed=1)
    for padding, strides in itertools.product(("SAME", "VALID"), ((1, 1), (2, 2))):
        wanted = jax.lax.conv_general_dilated(
            images, kernel, strides, padding, dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        got = convolve(images, kernel, strides=strides, padding=padding, execution=CPU)
        np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-4)


def test_winograd_matrices_are_the_published_ones():
    # Barabasz et al. 2018 list the points; with them, one row of A holds their squares.
    inverse, kernel, image = winograd.toom_cook()
    np.testing.assert_allclose(inverse[2], [0, 1, 1, 0.25, 4, 0])
    # By hand: 4 results of 3 taps from 6 values.
    values, taps = np.array([3.0, -1, 4, 1, -5, 9]), np.array([2.0, -6, 5])
    by_hand = [32, -21, -23, 77]
    np.testing.assert_allclose(inverse @ ((kernel @ taps) * (image @ values)), by_hand, atol=1e-9)


@pytest.mark.parametrize("side", [8, 12])
def test_a_batch_of_any_size_has_the_whole_gradient(side):
    images, kernel = drawn(6, side, side, 16), drawn(3, 3, 16, 16, seed=1)

    def kernel_gradient(batch_shards):
        execution = dataclasses.replace(CPU, batch_shards=batch_shards)

        def total(kernel):
            return (convolve(images, kernel, execution=execution) ** 2).sum()

        return jax.jit(jax.grad(total))(kernel)

    # 4 does not divide 6: one run of all examples.
    wanted = kernel_gradient(1)
    for batch_shards in (2, 3, 4, 6):
        difference = jnp.abs(kernel_gradient(batch_shards) - wanted).max() / jnp.abs(wanted).max()
        assert difference < 1e-5


def test_a_kernels_gradient_comes_from_whole_chunks_of_examples():
    megabyte = 1 << 20
    assert convolution.chunk_size(2000, megabyte) == 2
    assert convolution.chunk_size(2000, 50 * megabyte) == 2
    assert convolution.chunk_size(100, megabyte // 8) == 20  # of 10, 20 and 25, for 16 wanted
    assert convolution.chunk_size(7, megabyte) == 1
    assert convolution.chunk_size(4, 100) == 4


@pytest.mark.parametrize("side", [8, 12])
def test_spread_examples_need_no_communication_but_of_the_kernels_gradient(side):
    images, kernel = drawn(8, side, side, 16), drawn(3, 3, 16, 24, seed=1)

    def gradients(images, kernel, batch_shards):
        execution = dataclasses.replace(CPU, batch_shards=batch_shards)

        def total(images, kernel):
            return (convolve(images, kernel, execution=execution) ** 2).sum()

        return jax.grad(total, argnums=(0, 1))(images, kernel)

    mesh = jax.make_mesh((4,), ("data",), devices=jax.devices()[:4])
    spread = jax.NamedSharding(mesh, jax.P("data"))
    whole = jax.NamedSharding(mesh, jax.P())
    compiled = (
        jax.jit(
            functools.partial(gradients, batch_shards=4),
            in_shardings=(spread, whole),
            out_shardings=(spread, whole),
        )
        .lower(images, kernel)
        .compile()
    )
    text = compiled.as_text()
    assert text is not None
    for collective in ("all-gather", "all-to-all", "collective-permute", "reduce-scatter"):
        assert collective not in text
    (reduced,) = re.findall(r"= f32\[(\S+?)\]\S* all-reduce\(", text)
    assert math.prod(int(size) for size in reduced.split(",")) == kernel.size
    placed = jax.device_put(images, spread), jax.device_put(kernel, whole)
    alone = jax.jit(functools.partial(gradients, batch_shards=1))(images, kernel)
    for got, want in zip(compiled(*placed), alone, strict=True):
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-5 * float(jnp.abs(want).max()))


def test_small_images_on_cpu_leave_no_convolution_in_the_program():
    layer = Conv(16, 32, (3, 3), strides=(2, 2), execution=CPU, rngs=nnx.Rngs(0))
    small = jax.make_jaxpr(lambda images: layer(images))(drawn(2, 8, 8, 16))
    large = jax.make_jaxpr(lambda images: layer(images))(drawn(2, 32, 32, 16))
    assert "conv_general_dilated" not in str(small)
    assert "conv_general_dilated" in str(large)


def test_large_images_with_many_channels_go_the_way_of_small_ones():
    def choice(channels):
        return choose_implementation((8, 16, 16, 256), (3, 3, 256, channels), (1, 1), "cpu")

    assert choice(16) == "winograd"
    assert choice(8) == "one_layout"  # fewer than 16: the transforms cost more
    assert choose_implementation((8, 48, 64, 16), (3, 3, 16, 16), (1, 1), "cpu") == "winograd"


def test_gradients_of_a_convolution_on_cpu_have_its_layout():
    # Any other layout is slow inside a loop; strides are what tempts into one.
    def total(kernel, images):
        hidden = convolve(images, kernel, strides=(2, 2), execution=CPU)
        return convolve(hidden, kernel, execution=CPU).sum()

    gradient = jax.grad(total, argnums=(0, 1))
    program = str(jax.make_jaxpr(gradient)(drawn(3, 3, 8, 8), drawn(2, 24, 24, 8)))
    layouts = re.findall(r"ConvDimensionNumbers\((.*?\).*?\).*?\))\)", program)
    assert len(layouts) == 4  # two forward, two to the images; kernels take matrix products
    assert set(layouts) == {
        "lhs_spec=(0, 3, 1, 2), rhs_spec=(3, 2, 0, 1), out_spec=(0, 3, 1, 2)",
    }


def test_bfloat16_layer_is_close_to_float32_and_keeps_its_parameters_in_float32():
    images = drawn(4, 8, 8, 16)
    results = {}
    dtypes: tuple[ComputeDtype, ...] = ("float32", "bfloat16")
    for dtype in dtypes:
        execution = Execution(platform="cpu", compute_dtype=dtype, batch_norm_group_size=2)
        layer = Conv(16, 24, (3, 3), execution=execution, rngs=nnx.Rngs(0))
        assert layer.kernel[...].dtype == jnp.float32
        results[dtype] = layer(images)
        assert results[dtype].dtype == jnp.dtype(dtype)
    exact = np.asarray(results["float32"], np.float64)
    error = np.asarray(results["bfloat16"], np.float64) - exact
    # bfloat16 keeps 8 bits: relative errors of 2^-9 on images, kernel and result.
    assert 0 < error.std() < 0.01 * exact.std()


@pytest.mark.parametrize(
    ("initializer", "variance", "bound"),
    [
        (convolution.he_normal_fan_out, 2 / (9 * 64), np.inf),
        (convolution.uniform_fan_in, 1 / (3 * 9 * 32), 1 / np.sqrt(9 * 32)),
    ],
)
def test_initial_kernels_have_the_variance_that_their_source_gives(initializer, variance, bound):
    layer = Conv(
        32, 64, (3, 3), kernel_initializer=initializer, execution=CPU, rngs=nnx.Rngs(params=3)
    )
    kernel = np.asarray(layer.kernel[...])
    # 18,432 values: the standard error of their variance is 1 %.
    np.testing.assert_allclose(kernel.var(), variance, rtol=0.05)
    assert np.abs(kernel).max() <= bound


@pytest.mark.parametrize("platform", ["cpu", "gpu"])
def test_a_bias_has_the_sum_over_all_positions_as_gradient(platform):
    images, bias, cotangent = drawn(3, 5, 4, 6), drawn(6, seed=1), drawn(3, 5, 4, 6, seed=2)
    execution = dataclasses.replace(CPU, platform=platform)
    identity = jnp.eye(6)[None, None]
    result, pull_back = jax.vjp(
        lambda images, bias: convolve_few(images, identity, bias, execution), images, bias
    )
    np.testing.assert_array_equal(result, np.asarray(images) + np.asarray(bias))
    images_gradient, bias_gradient = pull_back(cotangent)
    np.testing.assert_array_equal(images_gradient, cotangent)
    # 60 float32 values of unit variance.
    wanted = np.asarray(cotangent, np.float64).sum((0, 1, 2))
    np.testing.assert_allclose(bias_gradient, wanted, rtol=0, atol=1e-5)


def test_a_linear_layer_sums_in_float32():
    execution = Execution(platform="cpu", compute_dtype="bfloat16", batch_norm_group_size=1)
    layer = Linear(1024, 3, execution=execution, rngs=nnx.Rngs(0))
    layer.kernel.set_value(jnp.ones((1024, 3)))
    inputs = jnp.full((1, 1024), 1.0).at[0, 0].set(2.0)
    # 1025 has no bfloat16; its neighbours are 1024 and 1032.
    np.testing.assert_array_equal(layer(inputs), np.full((1, 3), 1025.0, np.float32))
