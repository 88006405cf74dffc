"""Convolution: XLA's own, and Winograd's algorithm against it."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from dawnjax.models import convolution
from dawnjax.models.convolution import Conv, Linear, convolve
from dawnjax.models.execution import Execution
from dawnjax.models.kernels import winograd

pytestmark = pytest.mark.compiles

CPU = Execution(platform="cpu", compute_dtype="float32", batch_norm_group_size=2)


def plain(images, kernel, strides, pads):
    return jax.lax.conv_general_dilated(
        images, kernel, strides, pads, dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def drawn(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), jnp.float32)


# Chosen by hand: even, odd and tiny sizes, one and several tiles, uneven padding.
CASES = [
    ((8, 8), ((1, 1), (1, 1))),
    ((4, 4), ((1, 1), (1, 1))),
    ((7, 5), ((1, 1), (1, 1))),
    ((3, 8), ((0, 0), (0, 2))),
    ((9, 8), ((1, 1), (1, 1))),
]


@pytest.mark.parametrize(("size", "pads"), CASES)
def test_winograd_has_the_values_and_gradients_of_xlas_convolution(size, pads):
    images, kernel = drawn(4, *size, 16), drawn(3, 3, 16, 17, seed=1)
    shape = jax.eval_shape(lambda: plain(images, kernel, (1, 1), pads)).shape
    cotangent = drawn(*shape, seed=2)

    @functools.partial(jax.jit, static_argnums=0)
    def with_gradients(convolve, images, kernel):
        result, pull_back = jax.vjp(lambda x, k: convolve(x, k, pads), images, kernel)
        return result, *pull_back(cotangent)

    # Sums of up to 200 products of unit variance in float32: 1e-6 of their size, and Winograd's
    # transforms another few 1e-6.
    for got, want in zip(
        with_gradients(winograd.convolve, images, kernel),
        with_gradients(lambda x, k, pads: plain(x, k, (1, 1), pads), images, kernel),
        strict=True,
    ):
        np.testing.assert_allclose(got, want, rtol=0, atol=3e-5 * want.std())


def test_named_padding_is_that_of_xla():
    images, kernel = drawn(2, 7, 8, 3), drawn(3, 3, 3, 5, seed=1)
    for padding, strides in itertools.product(("SAME", "VALID"), ((1, 1), (2, 2))):
        wanted = plain(images, kernel, strides, padding)
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


def test_a_cpu_has_no_convolution_where_winograds_algorithm_pays():
    def program(size, channels, strides):
        images, kernel = drawn(2, size, size, channels), drawn(3, 3, channels, 32)
        return str(
            jax.make_jaxpr(lambda x: convolve(x, kernel, strides=strides, execution=CPU))(images)
        )

    for size, channels, strides, is_plain in (
        (32, 16, (1, 1), False),
        (8, 1, (1, 1), True),
        (32, 8, (1, 1), True),  # fewer than 16 channels: the transforms cost more
        (32, 16, (2, 2), True),
    ):
        assert ("conv_general_dilated" in program(size, channels, strides)) == is_plain


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


def test_a_linear_layer_sums_in_float32():
    execution = Execution(platform="cpu", compute_dtype="bfloat16", batch_norm_group_size=1)
    layer = Linear(1024, 3, execution=execution, rngs=nnx.Rngs(0))
    layer.kernel.set_value(jnp.ones((1024, 3)))
    inputs = jnp.full((1, 1024), 1.0).at[0, 0].set(2.0)
    # 1025 has no bfloat16; its neighbours are 1024 and 1032.
    np.testing.assert_array_equal(layer(inputs), np.full((1, 3), 1025.0, np.float32))
